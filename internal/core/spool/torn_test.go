package spool

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

func TestAJournalIsReadAsItWasWritten(t *testing.T) {
	b, ends := journalBytes()
	at := time.Unix(1700000000, 12345)
	want := &Journal{
		Spec:     process.Spec{ID: "id", Argv: []string{"sh", "-c", "true"}, Env: map[string]string{"A": "b"}},
		SpecTime: at, StartedTime: at.Add(1), Started: &Started{PID: 42, StartTicks: 77, BootID: "boot"}, Inside: 17,
		Exit: &process.Exit{Code: 3, Signal: 9, Cause: process.CauseTimeout, CoreDumped: true,
			UserTime: 5, SystemTime: 6, MaxRSS: 7, Time: at.Add(4)},
		EOF: [4]bool{2: true}, EOFAt: [4]int64{2: 1 << 40}, TreeGone: true, Pinned: true, Input: Input{Accepted: 1 << 33, EOF: true}, Size: int64(ends[len(ends)-1]),
	}
	got := proctest.Value(parseJournal(b))(t)
	if got.ExitBoot > procfs.BootTime() || got.ExitBoot < procfs.BootTime()-time.Minute.Nanoseconds() {
		t.Errorf("it exited at %d ns since the boot; now it is %d", got.ExitBoot, procfs.BootTime())
	}
	got.ExitBoot = 0
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Journals from before the exit had its time since the boot.
func TestAnExitWithoutTheTimeSinceTheBootIsRead(t *testing.T) {
	b := AppendSpec(nil, time.Now(), &process.Spec{ID: "id", Argv: []string{"true"}})
	b = appendRecord(b, recExited, time.Now(), func(b []byte) []byte { return append(b, make([]byte, 42)...) })
	j, err := parseJournal(b)
	if err != nil || j.Torn || j.Exit == nil || j.ExitBoot != 0 {
		t.Errorf("%+v, %v; want an exit and no time", j, err)
	}
}

func TestATornJournalKeepsItsWholeRecords(t *testing.T) {
	b, ends := journalBytes()
	wholeBefore := func(n int) (size int64) {
		for _, e := range ends {
			if e <= n {
				size = int64(e)
			}
		}
		return size
	}
	check := func(t *testing.T, b []byte, size int64) {
		dir := t.TempDir()
		path := filepath.Join(dir, JournalName)
		proctest.Must(t, os.WriteFile(path, b, 0o600))
		r, err := Recover(dir)
		if size == 0 {
			if !errors.Is(err, process.ErrNotFound) {
				t.Errorf("a journal without a spec: %v", err)
			}
			return
		}
		if err != nil || r.Journal.Size != size || r.Journal.Torn != (int64(len(b)) > size) {
			t.Fatalf("%+v, %v; want %d bytes of whole records", r, err, size)
		}
		if after, _ := os.ReadFile(path); !bytes.Equal(after, b[:size]) {
			t.Errorf("repair leaves %d bytes; want %d", len(after), size)
		}
		j, err := ReadJournal(dir)
		if err != nil || j.Torn || j.Size != size {
			t.Errorf("after repair: %+v, %v", j, err)
		}
	}
	t.Run("cut at each byte", func(t *testing.T) {
		for n := range len(b) + 1 {
			check(t, b[:n], wholeBefore(n))
		}
	})
	t.Run("damaged at each byte", func(t *testing.T) {
		for n := range len(b) {
			bad := bytes.Clone(b)
			bad[n] ^= 0x81
			check(t, bad, wholeBefore(n))
		}
	})
}

func FuzzJournal(f *testing.F) {
	b, ends := journalBytes()
	f.Add(b)
	f.Add(b[:ends[0]])
	f.Add(b[:ends[2]-1])
	f.Add([]byte{17, 0, 0, 0})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, recSpec})
	f.Fuzz(func(t *testing.T, b []byte) {
		j, err := parseJournal(b)
		if err != nil {
			return
		}
		if j.Size > int64(len(b)) || j.Torn != (j.Size < int64(len(b))) {
			t.Fatalf("%d of %d bytes, torn %v", j.Size, len(b), j.Torn)
		}
		again := proctest.Value(parseJournal(b[:j.Size]))(t)
		again.Torn = j.Torn
		if diff := cmp.Diff(j, again); diff != "" {
			t.Errorf("the whole records alone are read otherwise:\n%s", diff)
		}
	})
}

func FuzzParseIndex(f *testing.F) {
	var b [IndexSize]byte
	for _, r := range []IndexRecord{
		{Kind: IndexData, Stream: process.Stdout, Offset: 1 << 40, Len: 77, Wall: 12345, Mono: 9},
		{Kind: IndexTrim, Stream: process.PTY, Offset: 4096},
		{Kind: 9, Stream: process.Stderr, Offset: -1},
	} {
		r.Put(&b)
		f.Add(b[:])
	}
	f.Add(b[:31])
	f.Fuzz(func(t *testing.T, b []byte) {
		r, ok := ParseIndex(b)
		if !ok {
			return
		}
		var again [IndexSize]byte
		r.Put(&again)
		if got, ok := ParseIndex(again[:]); !ok || got != r {
			t.Errorf("%+v becomes %+v", r, got)
		}
		if r.Offset+int64(r.Len) < r.Offset || r.Stream < process.Stdout || r.Stream > process.PTY {
			t.Errorf("%+v is accepted", r)
		}
	})
}

func FuzzRecover(f *testing.F) {
	journal, _ := journalBytes()
	var rec [IndexSize]byte
	IndexRecord{Kind: IndexData, Stream: process.Stdout, Len: 100}.Put(&rec)
	f.Add(journal, rec[:], uint16(100))
	f.Add(journal[:len(journal)-3], append(rec[:], rec[:20]...), uint16(5000))
	IndexRecord{Kind: IndexTrim, Stream: process.Stdout, Offset: 4096}.Put(&rec)
	f.Add(journal, append(make([]byte, IndexSize), rec[:]...), uint16(5000))
	f.Fuzz(func(t *testing.T, journal, index []byte, length uint16) {
		dir := t.TempDir()
		for name, b := range map[string][]byte{JournalName: journal, IndexName: index, "stdout": make([]byte, length)} {
			proctest.Must(t, os.WriteFile(filepath.Join(dir, name), b, 0o600))
		}
		first, err := Recover(dir)
		if err != nil {
			if !errors.Is(err, process.ErrNotFound) {
				t.Fatal(err)
			}
			return
		}
		second := proctest.Value(Recover(dir))(t)
		first.Journal.Torn = false
		if diff := cmp.Diff(first, second); diff != "" {
			t.Errorf("a second repair changes something:\n%s", diff)
		}
		src, _, err := Finished(dir)
		if err != nil {
			t.Fatal(err)
		}
		r := proctest.Value(NewReader(dir, "p", outputs, src, process.ReadOptions{Drain: -1}))(t)
		defer r.Close()
		at := int64(0)
		for {
			ev, ok, err := r.Next()
			if err != nil || !ok { // without an exit it just waits
				break
			}
			switch ev.Kind {
			case process.EventOutput:
				at = ev.Offset + int64(len(ev.Data))
			case process.EventGap:
				at = ev.Gap.To
			}
		}
		if at != int64(length) {
			t.Errorf("a reader comes to %d of %d", at, length)
		}
	})
}
