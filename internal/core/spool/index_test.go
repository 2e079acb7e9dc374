//go:build linux

package spool

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// spoolOf writes five records: out, err, trim of out, out, err.
func spoolOf(t *testing.T) (*writer, []byte) {
	w := testWriter(t)
	w.data(process.Stdout, bytes.Repeat([]byte("a"), BlockSize+2), whole)
	w.data(process.Stderr, []byte("bb"), whole)
	w.trim(process.Stdout, BlockSize)
	w.data(process.Stdout, []byte("cc"), whole)
	w.data(process.Stderr, []byte("dd"), whole)
	index, err := os.ReadFile(filepath.Join(w.dir, IndexName))
	if err != nil || len(index) != 5*IndexSize {
		t.Fatal(len(index), err)
	}
	return w, index
}

// replay repairs the directory and reads it.
func replay(t *testing.T, w *writer, index []byte) (*Recovered, []string) {
	t.Helper()
	proctest.Must(t, os.WriteFile(filepath.Join(w.dir, IndexName), index, 0o600))
	rec := proctest.Value(Recover(w.dir))(t)
	if again, err := Recover(w.dir); err != nil || cmp.Diff(rec, again) != "" {
		t.Fatalf("a second repair changes something: %v\n%s", err, cmp.Diff(rec, again))
	}
	src, _, err := Finished(w.dir)
	if err != nil {
		t.Fatal(err)
	}
	r := proctest.Value(NewReader(w.dir, "p", outputs, src, process.ReadOptions{}))(t)
	defer r.Close()
	return rec, tell(t, r)
}

func TestATornIndexLosesNoByteAndNoTrimBeforeTheTear(t *testing.T) {
	w, index := spoolOf(t)
	for n := range len(index) + 1 {
		rec, notes := replay(t, w, index[:n:n])
		all := strings.Join(notes, " ")
		if trimmed := n >= 3*IndexSize; (rec.Base[process.Stdout] == BlockSize) != trimmed || slices.Contains(notes, "gap") != trimmed {
			t.Fatalf("cut at %d: base %v, events %q", n, rec.Base, notes)
		}
		if !strings.Contains(all, "aacc") && !strings.Contains(all, "aa stdout cc") && !strings.Contains(all, "aa stderr bb stdout cc") {
			t.Fatalf("cut at %d: %q", n, notes)
		}
		if strings.Count(all, "b") != 2 || strings.Count(all, "stderr dd")+strings.Count(all, "bbdd")+strings.Count(all, "bb stderr dd") == 0 {
			t.Fatalf("cut at %d: %q", n, notes)
		}
	}
}

func TestADamagedRecordCostsItsOwnOrderAlone(t *testing.T) {
	w, index := spoolOf(t)
	for n := range index {
		bad := slices.Clone(index)
		bad[n] ^= 0x10
		rec, notes := replay(t, w, bad)
		if record := n / IndexSize; record != 2 && (rec.Base[process.Stdout] != BlockSize || !slices.Contains(notes, "gap")) {
			t.Fatalf("damaged at %d: a trim is forgotten: %v, %q", n, rec.Base, notes)
		}
		want := len(index)
		if n/IndexSize == 3 {
			want += IndexSize // the end of stdout is covered again, after all others
		}
		if rec.IndexEnd != int64(want) {
			t.Fatalf("damaged at %d: the index has %d bytes after repair", n, rec.IndexEnd)
		}
		out := strings.Join(notes, "")
		if strings.Count(out, "c") != 2 || !strings.Contains(out, "bb") || !strings.Contains(out, "dd") {
			t.Fatalf("damaged at %d: %q", n, notes)
		}
	}
}

// Whatever was announced before the keeper died, and wherever the index is torn.
func TestRepairFromWhatWasAnnouncedFindsWhatRepairFromTheStartFinds(t *testing.T) {
	w, index := spoolOf(t)
	w.data(process.Stdout, []byte("not covered"), hole)
	path := filepath.Join(w.dir, IndexName)
	repaired := func(index []byte, announced *Progress) (*Recovered, []byte) {
		proctest.Must(t, os.WriteFile(path, index, 0o600))
		rec := proctest.Value(RecoverFrom(w.dir, announced))(t)
		after := proctest.Value(os.ReadFile(path))(t)
		return rec, after
	}
	for n := range len(index) + 1 {
		want, wantIndex := repaired(index[:n:n], nil)
		for records := range len(index)/IndexSize + 1 {
			for late := range 2 { // the last record is not announced, as bytes or as a base
				announced := &Progress{IndexEnd: int64(records * IndexSize)}
				for at := 0; at < (records-late)*IndexSize; at += IndexSize {
					switch rec, _ := ParseIndex(index[at:]); rec.Kind {
					case IndexData:
						announced.End[rec.Stream] = rec.Offset + int64(rec.Len)
					case IndexTrim:
						announced.Base[rec.Stream] = rec.Offset
					}
				}
				got, gotIndex := repaired(index[:n:n], announced)
				if diff := cmp.Diff(want, got) + cmp.Diff(wantIndex, gotIndex); diff != "" {
					t.Fatalf("cut at %d, %d records announced: (-from the start +from there)\n%s", n, records, diff)
				}
			}
		}
	}
}

func TestBytesThatTheIndexDoesNotCoverGetARecordWithoutATime(t *testing.T) {
	w, _ := spoolOf(t)
	rec, _ := replay(t, w, nil)
	if rec.IndexEnd != 2*IndexSize {
		t.Fatalf("%d bytes of index; want a record for each stream", rec.IndexEnd)
	}
	src, j, err := Finished(w.dir)
	if err != nil || j.Started == nil || j.Started.PID != 42 {
		t.Fatal(j, err)
	}
	r := proctest.Value(NewReader(w.dir, "p", outputs, src, process.ReadOptions{NoFollow: true}))(t)
	defer r.Close()
	for {
		ev, ok, err := r.Next()
		if !ok || err != nil {
			break
		}
		if ev.Kind == process.EventOutput && !ev.Time.Equal(time.Time{}) {
			t.Errorf("output at %d has the time %v", ev.Offset, ev.Time)
		}
	}
}

// benchmarkRead reads 1 GiB of holes per round, 64 KiB to a record: the cost
// of the reader and the page cache, not of a disk.
func benchmarkRead(b *testing.B, next func(*reader) (n int, ok bool, err error)) {
	const total, record = 1 << 30, 64 << 10
	w := newWriter(b, b.TempDir())
	defer w.close()
	w.data(process.Stdout, []byte("x"), hole)
	if err := os.Truncate(filepath.Join(w.dir, "stdout"), total); err != nil {
		b.Fatal(err)
	}
	for at := int64(0); at < total; at += record {
		w.record(IndexRecord{Kind: IndexData, Stream: process.Stdout, Offset: at, Len: record}, false)
	}
	w.announce(func(p *Progress) { p.End[process.Stdout] = total; p.Exit = &process.Exit{} })
	b.SetBytes(total)
	b.ReportAllocs()
	for b.Loop() {
		r, err := NewReader(w.dir, "p", outputs, w, process.ReadOptions{})
		if err != nil {
			b.Fatal(err)
		}
		got := 0
		for {
			n, ok, err := next(r.(*reader))
			if got += n; !ok || err != nil {
				break
			}
		}
		r.Close()
		if got != total {
			b.Fatalf("read %d bytes", got)
		}
	}
}

func BenchmarkNext(b *testing.B) {
	benchmarkRead(b, func(r *reader) (int, bool, error) {
		ev, ok, err := r.Next()
		return len(ev.Data), ok, err
	})
}

func BenchmarkNextSpan(b *testing.B) {
	benchmarkRead(b, func(r *reader) (int, bool, error) {
		_, span, ok, err := r.NextSpan(0)
		return span.Len, ok, err
	})
}
