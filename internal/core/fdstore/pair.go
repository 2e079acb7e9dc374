//go:build linux

package fdstore

import "github.com/tend-run/tend/internal/core/wire"

// The indexes of a Pair.
const (
	Anchor = iota
	Mirror // the launcher
	Count
)

// Pair is both vaults.
type Pair [Count]*Client

// Epochs are those of one process, one for each vault: in which all of its
// descriptors were deposited. They are guarded by the lock of the process.
type Epochs [Count]uint32

// Put deposits descriptors of one process in both. whole: these are all it has.
func (vs *Pair) Put(e *Epochs, whole bool, ref wire.Ref, kinds []byte, fds []int) {
	for i, v := range vs {
		v.Put(&e[i], whole, ref, kinds, fds)
	}
}

// Drop has both close their copies; no kinds: all of the process.
func (vs *Pair) Drop(e *Epochs, ref wire.Ref, kinds ...byte) {
	for i, v := range vs {
		v.Drop(&e[i], ref, kinds...)
	}
}

// Hurry makes both look at once: somebody waits for a drop.
func (vs *Pair) Hurry() {
	for _, v := range vs {
		v.Hurry()
	}
}
