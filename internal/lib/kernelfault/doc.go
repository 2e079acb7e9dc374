// Package kernelfault runs a program in tests as if on a kernel or a machine that lacks
// a feature: a seccomp filter answers chosen system calls with an error, or lets the
// test see each of them and decide; and mounts are changed in a separate namespace.
// Both apply to all child processes too. An [Older] kernel refuses what its mounts cannot do.
package kernelfault
