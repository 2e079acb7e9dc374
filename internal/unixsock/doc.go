// Package unixsock is what unix sockets do that others do not: their messages carry
// descriptors (SCM_RIGHTS), and the kernel says who is at the other end (SO_PEERCRED).
//
// [Send] and [Receive] work on sockets of all kinds, blocking or not. A descriptor that
// arrives is close-on-exec and the receiver's. If anything is wrong with its message, it
// is closed before the error is returned.
//
// It works on Linux, and needs the standard library and x/sys alone.
package unixsock
