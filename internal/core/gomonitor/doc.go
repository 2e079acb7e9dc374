// Package gomonitor keeps Go's monitor thread from running more than a role needs.
//
// While a Go program is active, its monitor checks every 20 µs whether a thread is
// stuck in a system call. In roles that mostly make short system calls and wait in
// between, this was a third of their total cost, and each check took the core from the
// process that the role waited for. So this package gives the monitor's sleeps a longer
// timer slack (prctl(2), PR_SET_TIMERSLACK). The keeper also gets a few more of Go's
// processors (P), so that a thread that returns from a system call finds a free one
// before the monitor has retaken one from another thread. [Loop] prevents a thread that
// only waits in system calls from being treated as one that runs all the time.
//
// Threads and programs inherit the slack. Call [Thread] before a fork or an exec, so
// that programs get the original value.
package gomonitor
