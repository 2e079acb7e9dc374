//go:build linux

// Package vault is the keeper's side of the vaults: the two roles that hold
// copies of its descriptors, so that no pipe breaks when the keeper dies.
//
// # The holders
//
// The anchor and the launcher (the mirror) each hold all descriptors that must
// not close: of each process its pipes or terminal, its pidfd and the input that
// waits; and, of no process, the board and the keeper's sockets. A deposit goes
// to both before a start is answered. So the keeper may die together with either
// one of them. The messages are in package wire.
//
// # Deposits never wait
//
// A holder that does not take a deposit is dead, stopped or slow. A new epoch
// begins then, and a goroutine hands every process over again as soon as there is
// a holder that listens. Until it reaches a process, the changes of that process
// are not sent: its descriptors go as a whole, with the epoch noted, under the
// lock of the process.
//
// # A new keeper
//
// Fetch returns what a former keeper left. Covers says whether that is enough to
// go on with a process, Merge adds what the other holder has.
//
// The methods of a Client may be called concurrently, but for Fetch, FetchRest
// and DiscardRest, which belong to the beginning.
package vault
