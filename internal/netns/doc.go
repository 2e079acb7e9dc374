// Package netns does something in a network namespace: [Do] takes a thread there and back.
// What is made in it, such as a socket, belongs to it for ever, whichever thread uses it then.
// [Socket] makes one also where an ordinary user may take no thread.
// It exists on Linux alone.
package netns
