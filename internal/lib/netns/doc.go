// Package netns does something in a network namespace: [Do] takes a thread there and
// back. An object created there, such as a socket, belongs to that namespace
// permanently, whichever thread uses it later. [Socket] creates a socket even where an
// ordinary user may not move a thread. The package exists only on Linux.
package netns
