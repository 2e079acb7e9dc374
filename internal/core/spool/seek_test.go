//go:build linux

package spool

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// order is what a reader delivers, byte by byte: which stream, which offset.
type order []struct {
	s  process.Stream
	at int64
}

func orderOf(t *testing.T, r process.Reader) (all order) {
	t.Helper()
	defer r.Close()
	for {
		ev, ok, err := r.Next()
		if err == io.EOF || err == nil && !ok {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		for i := range ev.Data {
			all = append(all, struct {
				s  process.Stream
				at int64
			}{ev.Stream, ev.Offset + int64(i)})
		}
	}
}

// A reader that begins in the middle delivers what one from the beginning does
// from there on, in the same order, whatever the index looks like.
func TestAReaderThatBeginsInTheMiddleKeepsTheOrder(t *testing.T) {
	for _, c := range []struct {
		name   string
		stderr int // one of so many records
		spoilt int // one of so many is damaged or missing; 0: none
		trim   bool
	}{
		{"two busy streams", 2, 0, false},
		{"a stream that seldom writes", 300, 0, false},
		{"a stream that never writes", 1 << 30, 0, false},
		{"damaged and missing records", 5, 10, false},
		{"a head that was freed", 3, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(1, 2))
			w := testWriter(t)
			for i := range 1500 {
				s, index := process.Stdout, whole
				if i%c.stderr == c.stderr-1 {
					s = process.Stderr
				}
				if c.spoilt > 0 && rnd.IntN(c.spoilt) == 0 {
					index = damaged + rnd.IntN(2)
				}
				w.data(s, bytes.Repeat([]byte{'x'}, 1+rnd.IntN(40)), index)
			}
			if c.trim {
				w.trim(process.Stdout, w.p.End[1]/2)
				w.trim(process.Stderr, w.p.End[2]/2)
				base := w.p.Base
				proctest.Value(TrimIndex(w.idx, 0, w.p.IndexEnd, 1<<30, &base))(t)
			}
			all := orderOf(t, w.open(t, process.ReadOptions{}))
			for range 100 {
				var from [4]int64
				for s := process.Stdout; s <= process.Stderr; s++ {
					switch rnd.IntN(4) {
					case 0: // from the beginning
					case 1:
						from[s] = w.p.End[s]
					default:
						from[s] = rnd.Int64N(w.p.End[s] + 1)
					}
				}
				var want order
				for _, b := range all {
					if b.at >= from[b.s] {
						want = append(want, b)
					}
				}
				got := orderOf(t, w.open(t, process.ReadOptions{From: from}))
				if len(got) != len(want) {
					t.Fatalf("from %v: %d bytes, want %d", from, len(got), len(want))
				}
				for i := range got {
					// Bytes that no record covers have no place of their own.
					if got[i] != want[i] && c.spoilt == 0 {
						t.Fatalf("from %v: byte %d is %v, want %v", from, i, got[i], want[i])
					}
				}
			}
		})
	}
}

// bigIndex is a process whose two streams have written records pieces of one
// byte each, all but every hundredth to stdout. The data is a hole.
func bigIndex(b *testing.B, records int) *writer {
	w := newWriter(b, b.TempDir())
	b.Cleanup(w.close)
	raw := make([]byte, 0, records*IndexSize)
	var rec [IndexSize]byte
	for i := range records {
		s := process.Stdout
		if i%100 == 99 {
			s = process.Stderr
		}
		IndexRecord{Kind: IndexData, Stream: s, Offset: w.p.End[s], Len: 1, Wall: 1}.Put(&rec)
		raw = append(raw, rec[:]...)
		w.p.End[s]++
	}
	w.p.IndexEnd = int64(len(raw))
	w.check(os.WriteFile(filepath.Join(w.dir, IndexName), raw, 0o600))
	for s := process.Stdout; s <= process.Stderr; s++ {
		fd, err := OpenStream(w.dir, s)
		w.check(err)
		w.fds[s] = fd
		w.check(unix.Ftruncate(fd, w.p.End[s]))
	}
	return w
}

// How long a reader that begins in the middle takes to its first output.
func BenchmarkBeginInTheMiddle(b *testing.B) {
	for _, records := range []int{1 << 14, 1 << 20} {
		b.Run(fmt.Sprintf("%d records", records), func(b *testing.B) {
			w := bigIndex(b, records)
			from := [4]int64{1: w.p.End[1] / 2, 2: w.p.End[2] / 2}
			for b.Loop() {
				r, err := NewReader(w.dir, "p", []process.Stream{process.Stdout, process.Stderr}, w, process.ReadOptions{From: from, MaxChunk: 4096})
				if err != nil {
					b.Fatal(err)
				}
				for {
					ev, ok, err := r.Next()
					if err != nil || !ok {
						b.Fatal(ok, err)
					}
					if ev.Kind == process.EventOutput {
						break
					}
				}
				r.Close()
			}
		})
	}
}
