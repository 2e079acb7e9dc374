//go:build linux

package keeper

import (
	"encoding/binary"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tend-run/tend/internal/scene"
	"github.com/tend-run/tend/keeper/vault"
)

var update = flag.Bool("update", false, "write the golden files anew")

func example() *snapshot {
	return &snapshot{
		Keeper: snapshotKeeper{EP: 4, Board: 5, Wake: 6, Listen: 7, Lock: 8, Vaults: [vault.Count]int64{9, 10}, Complete: [vault.Count]bool{true, false},
			Upgrades: 3, Began: 123456789, Killed: slotList(map[uint32]bool{7: true}), Limited: slotList(map[uint32]bool{300: true})},
		Procs: []snapshotProc{
			{Slot: 1, Gen: 2, PID: 4711, PIDFD: 11, Flags: snapStarted | snapPTY | snapStdinOpen, IndexEnd: 64, Limit: 1 << 32, Policy: 1,
				Out: [2]snapshotStream{{FD: 12, StageR: 13, StageW: 14, Base: 4096, End: 1 << 40, Unpunched: 4096, Flags: snapWaiting}, {Flags: snapEOF}}},
			{Slot: 16383, Gen: 1 << 31, PID: 1, Flags: snapStarted | snapExited, Cause: 2, CauseSig: 9, TreeFD: 15, StdinFD: 16, Mem: 17, FeedR: 18, FeedW: 19,
				Owed: []byte("a record that found no room")},
		},
	}
}

func TestASnapshotIsReadAsItWasWritten(t *testing.T) {
	want := example()
	got, err := decodeSnapshot(want.encode(newestSnapshot))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// The golden files are what keepers of each version have written. They are
// never written anew but for a new version.
func TestSnapshotsOfEachVersionAreRead(t *testing.T) {
	for v := byte(oldestSnapshot); v <= newestSnapshot; v++ {
		path := filepath.Join("testdata", "snapshot-v"+string('0'+v))
		if *update {
			scene.Must(t, os.WriteFile(path, example().encode(v), 0o644))
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decodeSnapshot(b)
		if err != nil {
			t.Fatalf("version %d: %v", v, err)
		}
		want := example()
		if v < 2 {
			want.Procs[1].Owed = nil
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("version %d: %s", v, d)
		}
	}
}

// A newer keeper may add kinds and tags; after a downgrade they are skipped.
func TestWhatANewerVersionAddsIsSkipped(t *testing.T) {
	want := example()
	b := want.encode(newestSnapshot)
	b = b[:len(b)-5]
	b[len(snapshotMagic)]++
	b = append(b, 99, 3, 0, 0, 0, 'x', 'y', 'z') // an unknown kind
	b = appendRecord(b, kindProcess, []field{{tag: 1, number: &want.Procs[0].Slot}, {tag: 77, number: &want.Procs[0].PID}}, newestSnapshot)
	b = seal(append(b, snapshotEnd))
	got, err := decodeSnapshot(b)
	if err != nil {
		t.Fatal(err)
	}
	want.Procs = append(want.Procs, snapshotProc{Slot: 1})
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func seal(b []byte) []byte { return binary.LittleEndian.AppendUint32(b, checksum(b)) }

func TestADamagedSnapshotIsRefused(t *testing.T) {
	whole := example().encode(newestSnapshot)
	for n := range whole {
		if _, err := decodeSnapshot(whole[:n]); err == nil {
			t.Fatalf("cut to %d of %d bytes it was read", n, len(whole))
		}
		damaged := append([]byte(nil), whole...)
		damaged[n] ^= 0x10
		if _, err := decodeSnapshot(damaged); err == nil {
			t.Fatalf("with byte %d changed it was read", n)
		}
	}
	far := append([]byte(nil), whole[:len(whole)-4]...)
	far[len(snapshotMagic)] = newestSnapshot + 2
	if _, err := decodeSnapshot(seal(far)); err == nil {
		t.Error("a version two above ours was read")
	}
}

func FuzzSnapshot(f *testing.F) {
	f.Add(example().encode(newestSnapshot))
	f.Add(example().encode(oldestSnapshot))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > headSnapshot {
			b = seal(append(b, snapshotEnd)) // let the fuzzer past the checksum
		}
		s, err := decodeSnapshot(b)
		if err != nil {
			return
		}
		again, err := decodeSnapshot(s.encode(newestSnapshot))
		if err != nil {
			t.Fatalf("what was read cannot be written and read again: %v", err)
		}
		if len(again.Procs) != len(s.Procs) {
			t.Fatalf("%d processes became %d", len(s.Procs), len(again.Procs))
		}
	})
}
