// Package poorkernel runs a program, in tests, as on a kernel or a machine that
// lacks something: a seccomp filter answers chosen system calls with an error,
// or lets the test see each of them and decide; and mounts are changed in a
// namespace of its own. Both hold for all that the program starts.
package poorkernel
