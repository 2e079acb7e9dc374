// Package limits proves what a real daemon does at the end of what it has:
// readers that never read, more processes than descriptors, a full disk,
// thousands of finished processes, outputs past every boundary. At each limit the
// error says what to do, no role dies, and other clients notice nothing.
//
// LIMITS_PROCESSES is how many processes are started at once (default 1,500;
// as many as descriptors allow, at most). LIMITS_LARGE=1 adds an output of more
// than 4 GiB. scripts/soak sets both.
package limits
