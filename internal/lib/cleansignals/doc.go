// Package cleansignals gives a program, and so all its children, the signal state of a
// login: nothing ignored, nothing blocked.
//
// Both are inherited over exec(2). Go resets what it handles in a child, but
// passes on what was ignored (by nohup, or by a shell's &) and what was blocked
// when the program started, and does not let itself be told to handle signals
// 32 to 34 at all, of which the C library's posix_spawn, so make(1), leaves two
// ignored. The only way to a clean start that also Go's runtime sees is to set
// all of it and to execute the program again.
package cleansignals
