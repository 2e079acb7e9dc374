// Package crashtest proves the promise: roles of a real daemon are killed with
// SIGKILL at random moments while processes write self-describing output, and
// a client (the Go SDK, unmodified) must get every byte once, in order, and
// every exit status, with no help from its caller.
//
// The seed of the moments is printed; CRASHTEST_SEED repeats a run.
// CRASHTEST_KILLS is the number of kills of each role (default 12).
package crashtest
