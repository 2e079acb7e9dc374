// Package unixsock implements the special features of unix sockets: messages that carry
// descriptors (SCM_RIGHTS), and the peer's identity from the kernel (SO_PEERCRED).
//
// [Send] and [Receive] work on sockets of all kinds, blocking or not. A descriptor that
// arrives is close-on-exec and the receiver's. If anything is wrong with its message, it
// is closed before the error is returned.
//
// It works on Linux, and needs only the standard library and x/sys.
package unixsock
