//go:build linux

package keeper

import (
	"encoding/binary"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tend-run/tend/internal/core/fdstore"
	"github.com/tend-run/tend/internal/core/wire"
	"github.com/tend-run/tend/internal/support/proctest"
)

var update = flag.Bool("update", false, "write the golden files anew")

func example() *handover {
	return &handover{
		Keeper: handoverKeeper{Epoll: 4, FDs: heldFDs{wire.FDBoard: 5, wire.FDWake: 6, wire.FDListen: 7}, Lock: 8, Sockets: [fdstore.Count]int64{9, 10},
			Complete: [fdstore.Count]bool{true, false}, Upgrades: 3, Began: 123456789},
		Procs: []handoverProc{
			{Slot: 1, Gen: 2, Limit: 1 << 32, Policy: 1, Streams: [2]int64{streamWaits, 4},
				FDs: heldFDs{wire.FDPid: 11, wire.FDStdout: 12, wire.FDStageR: 13, wire.FDStageW: 14}},
			{Slot: 16383, Gen: 1 << 31, Events: 15, Deferred: []byte("a record that found no room"),
				FDs: heldFDs{wire.FDStdin: 16, wire.FDStdinMem: 17, wire.FDFeedR: 18, wire.FDFeedW: 19}},
		},
	}
}

// A terminal has staging pipes, and its descriptor the place of stdout.
func TestDescriptorsAreHandedOverByTheirKinds(t *testing.T) {
	for _, want := range []fdstore.FDs{
		{wire.FDStdout: 10, wire.FDStderr: 11, wire.FDStdin: 12, wire.FDPid: 13, wire.FDStdinMem: 14},
		{wire.FDPTY: 10, wire.FDStageR: 11, wire.FDStageW: 12, wire.FDPid: 13, wire.FDStdinMem: 14, wire.FDFeedR: 15, wire.FDFeedW: 16},
		{wire.FDStderr: 11},
		{},
	} {
		var fds heldFDs
		for kind, fd := range want {
			fds.put([]byte{kind}, []int{fd})
		}
		if got := fds.held(); !maps.Equal(got, want) {
			t.Errorf("%v became %v", want, got)
		}
	}
}

func TestAHandoverIsReadAsItWasWritten(t *testing.T) {
	want := example()
	got := proctest.Value(decodeHandover(want.encode(newestHandover)))(t)
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// The golden files are what keepers of each version have written. They are
// never rewritten but for a new version.
func TestHandoversOfEachVersionAreRead(t *testing.T) {
	for _, v := range []byte{1, 2, newestHandover} {
		path := filepath.Join("testdata", "snapshot-v"+string('0'+v))
		if *update && v == newestHandover {
			proctest.Must(t, os.WriteFile(path, example().encode(v), 0o644))
		}
		b := proctest.Value(os.ReadFile(path))(t)
		got, err := decodeHandover(b)
		if err != nil {
			t.Fatalf("version %d: %v", v, err)
		}
		want := example()
		if v < 2 {
			want.Procs[1].Deferred = nil
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("version %d: %s", v, d)
		}
	}
}

// A newer keeper may add kinds and tags; after a downgrade they are skipped.
func TestWhatANewerVersionAddsIsSkipped(t *testing.T) {
	want := example()
	b := want.encode(newestHandover)
	b = b[:len(b)-5]
	b[len(handoverMagic)]++
	b = append(b, 99, 3, 0, 0, 0, 'x', 'y', 'z') // an unknown kind
	b = appendRecord(b, kindProcess, []field{{tag: 1, number: &want.Procs[0].Slot}, {tag: 77, number: &want.Procs[0].Gen}})
	b = seal(append(b, handoverEnd))
	got := proctest.Value(decodeHandover(b))(t)
	want.Procs = append(want.Procs, handoverProc{Slot: 1})
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func seal(b []byte) []byte { return binary.LittleEndian.AppendUint32(b, checksum(b)) }

func TestADamagedHandoverIsRefused(t *testing.T) {
	whole := example().encode(newestHandover)
	for n := range whole {
		if _, err := decodeHandover(whole[:n]); err == nil {
			t.Fatalf("cut to %d of %d bytes it was read", n, len(whole))
		}
		damaged := append([]byte(nil), whole...)
		damaged[n] ^= 0x10
		if _, err := decodeHandover(damaged); err == nil {
			t.Fatalf("with byte %d changed it was read", n)
		}
	}
	far := append([]byte(nil), whole[:len(whole)-4]...)
	far[len(handoverMagic)] = newestHandover + 2
	if _, err := decodeHandover(seal(far)); err == nil {
		t.Error("a version two above ours was read")
	}
}

func FuzzHandover(f *testing.F) {
	f.Add(example().encode(newestHandover))
	f.Add(example().encode(oldestHandover))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > headHandover {
			b = seal(append(b, handoverEnd)) // let the fuzzer past the checksum
		}
		s, err := decodeHandover(b)
		if err != nil {
			return
		}
		again, err := decodeHandover(s.encode(newestHandover))
		if err != nil {
			t.Fatalf("what was read cannot be written and read again: %v", err)
		}
		if len(again.Procs) != len(s.Procs) {
			t.Fatalf("%d processes became %d", len(s.Procs), len(again.Procs))
		}
	})
}
