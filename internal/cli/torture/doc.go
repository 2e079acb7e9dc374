// Package torture proves on a given machine that nothing is lost: it runs a
// real daemon, kills its roles at random moments, alone and several at once,
// while processes of all kinds run, and checks every byte, every exit status
// and every piece of input through real clients (the Go SDK, the native API
// and envd by raw HTTP).
//
// It is the engine of both `tend torture` and the tests in crashtest. Output
// describes itself: the byte at offset o of a stream is byte o mod 8 of the
// little-endian number o / 8, so a byte that is lost, doubled or from elsewhere
// shows where it is.
package torture
