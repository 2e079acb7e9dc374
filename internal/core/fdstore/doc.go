//go:build linux

// Package fdstore is the keeper's side of the vaults: the two roles that hold
// copies of its descriptors, so that no pipe breaks when the keeper dies.
//
// # The holders
//
// The anchor and the launcher (the mirror) each hold all descriptors that must stay
// open: for each process its pipes or terminal, its pidfd and its pending input; and
// also the board and the keeper's sockets. A deposit goes to both before a start is
// answered. So the keeper may die together with either one of them. The messages are in
// package wire.
//
// # Deposits never wait
//
// A holder that does not accept a deposit is dead, stopped or slow. Then a new epoch
// begins, and a goroutine sends every process again as soon as a holder listens. Until
// it reaches a process, changes of that process are not sent: its descriptors are then
// sent together, marked with the epoch, under the lock of the process.
//
// # A new keeper
//
// Fetch returns the descriptors that a previous keeper left. Covers says whether they
// are enough to continue a process; Merge adds those of the other holder.
//
// The methods of a Client may be called concurrently, except Fetch, FetchRest and
// DiscardRest, which belong to the takeover.
package fdstore
