//go:build linux

package spool

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// sized writes the record of a size at the end of the terminal's output.
func (w *writer) sized(cols, rows uint16) {
	w.record(Sized(w.p.End[process.PTY], process.Size{Cols: cols, Rows: rows}), false)
}

// typed writes a byte to the terminal, with a record.
func (w *writer) typed() { w.data(process.PTY, []byte("x"), whole) }

// sizesFrom are the sizes that a reader from an offset on is told of, and where.
func sizesFrom(t *testing.T, w *writer, from int64) (all []string) {
	t.Helper()
	opts := process.ReadOptions{Sizes: true, NoFollow: true}
	opts.From[process.PTY] = from
	r := proctest.Value(NewReader(w.dir, "p", []process.Stream{process.PTY}, w, opts))(t)
	defer r.Close()
	for {
		ev, ok, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		if ev.Kind == process.EventResized {
			all = append(all, fmt.Sprintf("%d %dx%d", ev.Offset, ev.Size.Cols, ev.Size.Rows))
		}
	}
}

func (w *writer) trimIndex(t *testing.T, from, most int64) int64 {
	t.Helper()
	base := [4]int64{math.MaxInt64, math.MaxInt64, math.MaxInt64, w.p.Base[process.PTY]}
	return proctest.Value(TrimIndex(w.idx, from, w.p.IndexEnd, most, &base))(t)
}

func TestASizeThatIsRepeatedIsDeliveredOnce(t *testing.T) {
	w := testWriter(t)
	w.sized(80, 24)
	w.typed()
	w.sized(80, 24)
	w.typed()
	w.sized(90, 24)
	w.sized(90, 24)
	w.typed()
	for from, want := range map[int64][]string{
		0: {"0 80x24", "2 90x24"},
		1: {"1 80x24", "2 90x24"},
		2: {"2 80x24", "2 90x24"},
		3: {"3 90x24"},
	} {
		if got := sizesFrom(t, w, from); !slices.Equal(got, want) {
			t.Errorf("from %d on: %q, want %q", from, got, want)
		}
	}
}

// What an older version has written has no sizes, or none of late.
func TestASizeThatIsNotRecordedIsNotMadeUp(t *testing.T) {
	w := testWriter(t)
	w.typed()
	if got := sizesFrom(t, w, 0); got != nil {
		t.Errorf("%q, want none", got)
	}
	w.sized(90, 30)
	for range lookBack + 1 {
		w.typed()
	}
	if got := sizesFrom(t, w, w.p.End[process.PTY]); got != nil {
		t.Errorf("%q, want none: the last is too far back", got)
	}
	if got, want := sizesFrom(t, w, 0), []string{"1 90x30"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// The size that holds for the oldest byte that is kept is kept with it.
func TestTheNewestSizeOfWhatIsFreedIsKept(t *testing.T) {
	w := testWriter(t)
	w.sized(80, 24)
	big := bytes.Repeat([]byte("x"), BlockSize)
	for i := range 4 {
		w.data(process.PTY, big, whole)
		w.sized(uint16(100+i), 30)
	}
	w.data(process.PTY, big, whole)
	w.trim(process.PTY, 3*BlockSize)
	at := w.trimIndex(t, 0, 1<<20)
	if want := int64(6 * IndexSize); at != want {
		t.Errorf("freed up to %d, want %d: the size before what is kept", at, want)
	}
	if again := w.trimIndex(t, at, 1<<20); again != at {
		t.Errorf("then up to %d, want %d", again, at)
	}
	want := []string{fmt.Sprintf("%d 102x30", 3*BlockSize+1), fmt.Sprintf("%d 103x30", 4*BlockSize)}
	if got := sizesFrom(t, w, 3*BlockSize+1); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	w.trim(process.PTY, 5*BlockSize)
	if got := w.trimIndex(t, at, 1<<20); got != 8*IndexSize {
		t.Errorf("then up to %d, want %d", got, 8*IndexSize)
	}
}

// A version that does not repeat sizes may have gone on. Its records are freed.
func TestASizeThatIsNotRepeatedHoldsUpNothing(t *testing.T) {
	w := testWriter(t)
	w.sized(80, 24)
	for range 2000 {
		w.data(process.PTY, []byte("12345678"), whole)
	}
	w.trim(process.PTY, 3*BlockSize)
	const look = 32 << 10
	if at := w.trimIndex(t, 0, look); at != look {
		t.Errorf("freed up to %d, want %d", at, look)
	}
}
