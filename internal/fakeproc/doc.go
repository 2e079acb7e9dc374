// Package fakeproc is a [process.Manager] for tests: real processes, and their
// output in memory. There is no daemon, no file and no other role, so that a
// test of something that uses a Manager needs only
//
//	m := fakeproc.New(t)
//
// It passes package processtest. What it cannot do is what needs a cgroup: the
// limits of the tree are refused with process.ErrUnsupported, Kill is never
// Verified, and a descendant that left the session and lost its parent is
// not found.
//
// All processes end with the test. It works on Linux.
//
// There is one mutex for each process and one for the manager. The manager's
// may be held when a process's is taken, never the other way round.
package fakeproc
