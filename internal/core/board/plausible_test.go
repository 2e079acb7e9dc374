//go:build linux

package board

import (
	"testing"

	"github.com/tend-run/tend/process"
)

// A flag that a keeper sets is no damage: the next one would make the board again
// for it, and lose what it does not find.
func TestNoFlagOfAKeeperIsStrange(t *testing.T) {
	b, err := Create()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	s := b.Slot(0)
	s.Reserve("p")
	for _, f := range []uint32{FlagUsed, FlagExited, FlagTreeGone, FlagFinal, FlagStdinOpen, FlagNoSpace, FlagBlocked, FlagFeedArmed, FlagStdinMem, FlagSyncExit,
		FlagSyncInterval, FlagNoGroup, FlagTakenBack, FlagStdinBroken, FlagEOF(process.Stdout), FlagEOF(process.Stderr), FlagEOF(process.PTY)} {
		if s.Set(f); !s.Plausible() {
			t.Fatalf("flag %#x is taken for damage", f)
		}
	}
}
