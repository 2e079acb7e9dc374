//go:build linux

package spool

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// tell writes events as a person would note them, until the reader waits or
// ends.
func tell(t *testing.T, r process.Reader) (notes []string) {
	t.Helper()
	for {
		ev, ok, err := r.Next()
		switch {
		case err == io.EOF:
			return append(notes, "end")
		case err != nil:
			t.Fatal(err)
		case !ok:
			return notes
		}
		note := ev.Kind.String()
		switch ev.Kind {
		case process.EventOutput:
			note = ev.Stream.String() + " " + string(ev.Data)
		case process.EventEOF:
			note += " " + ev.Stream.String()
		}
		notes = append(notes, note)
	}
}

func wantNotes(t *testing.T, got []string, want ...string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %q; want %q", got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("got %q; want %q", got, want)
		}
	}
}

// stale is a source whose ends were looked at before its index was.
type stale struct {
	*writer
	behind [4]int64
}

func (s *stale) Progress() Progress {
	p := s.writer.Progress()
	for i := range p.End {
		p.End[i] -= s.behind[i]
	}
	return p
}

func TestNothingOvertakesBytesWhoseEndIsNotAnnouncedYet(t *testing.T) {
	w := testWriter(t)
	src := &stale{writer: w}
	r := proctest.Value(NewReader(w.dir, "p", outputs, src, process.ReadOptions{}))(t)
	defer r.Close()
	w.data(process.Stdout, []byte("first"), whole)
	w.data(process.Stderr, []byte("second"), whole)
	src.behind[process.Stdout] = 5
	wantNotes(t, tell(t, r), "started")
	src.behind[process.Stdout] = 2
	wantNotes(t, tell(t, r), "stdout fir")
	src.behind[process.Stdout] = 0
	wantNotes(t, tell(t, r), "stdout st", "stderr second")
}

// growing writes between two looks at the progress.
type growing struct {
	*writer
	grow func()
}

func (g *growing) Progress() Progress {
	p := g.writer.Progress()
	if g.grow != nil {
		grow := g.grow
		g.grow = nil
		grow()
	}
	return p
}

func TestFromNowKeepsTheOrderOfWhatArrivesMeanwhile(t *testing.T) {
	w := testWriter(t)
	w.data(process.Stdout, []byte("old"), whole)
	g := &growing{writer: w, grow: func() { w.data(process.Stdout, []byte("between"), whole) }}
	r := proctest.Value(NewReader(w.dir, "p", outputs, g, process.ReadOptions{From: [4]int64{1: process.FromNow, 2: process.FromNow}}))(t)
	defer r.Close()
	w.data(process.Stderr, []byte("e"), whole)
	w.data(process.Stdout, []byte("o"), whole)
	wantNotes(t, tell(t, r), "started", "stderr e", "stdout o")
}

// Order is the order of arrival, not of the times.
func TestAClockThatIsSetBackChangesNoOrder(t *testing.T) {
	w := testWriter(t)
	w.wall = 1 << 60
	w.data(process.Stdout, []byte("one"), whole)
	w.wall = 1 << 50
	w.data(process.Stderr, []byte("two"), whole)
	w.wall = 1 << 61
	w.data(process.Stdout, []byte("three"), whole)
	r := proctest.Value(NewReader(w.dir, "p", outputs, w, process.ReadOptions{}))(t)
	defer r.Close()
	wantNotes(t, tell(t, r), "started", "stdout one", "stderr two", "stdout three")
}

func TestOutputThatArrivedLaterIsAnEventOfItsOwn(t *testing.T) {
	w := testWriter(t)
	for _, at := range []struct {
		mono uint32
		data string
	}{{1<<32 - 50, "a"}, {1<<32 - 1, "b"}, {49, "c"}, {50, "d"}, {50, "e"}, {3000, "g"}} { // the clock wraps
		w.mono = at.mono
		w.data(process.Stdout, []byte(at.data), whole)
	}
	w.wall = -1 // as repair leaves it: not known
	w.data(process.Stdout, []byte("f"), whole)
	for name, c := range map[string]struct {
		opts  process.ReadOptions
		data  []string
		times []int64
	}{
		"within 100 ms": {process.ReadOptions{}, []string{"abc", "de", "g", "f"}, []int64{2, 5, 7, 0}},
		"exact":         {process.ReadOptions{ExactTimes: true}, []string{"a", "b", "c", "de", "g", "f"}, []int64{2, 3, 4, 5, 7, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			data, times := timesOf(t, w, c.opts)
			if !slices.Equal(data, c.data) || !slices.Equal(times, c.times) {
				t.Errorf("events %q at %d; want %q at %d", data, times, c.data, c.times)
			}
		})
	}
}

// timesOf reads what there is, and when it came: 0 if that is not known.
func timesOf(t *testing.T, w *writer, opts process.ReadOptions) (got []string, times []int64) {
	r := proctest.Value(NewReader(w.dir, "p", outputs, w, opts))(t)
	defer r.Close()
	for {
		ev, ok, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return got, times
		}
		if ev.Kind != process.EventOutput {
			continue
		}
		got = append(got, string(ev.Data))
		if ev.Time.IsZero() {
			times = append(times, 0)
		} else {
			times = append(times, ev.Time.UnixNano())
		}
	}
}

func TestAChunkFreedWhileItIsReadIsAGapAndTheRestStaysInOrder(t *testing.T) {
	w := testWriter(t)
	big := bytes.Repeat([]byte("x"), BlockSize)
	w.data(process.Stdout, big, whole)
	w.data(process.Stdout, []byte("rest"), whole)
	w.data(process.Stderr, []byte("later"), whole)
	g := &growing{writer: w}
	r := proctest.Value(NewReader(w.dir, "p", outputs, g, process.ReadOptions{}))(t)
	defer r.Close()
	if ev, _, _ := r.Next(); ev.Kind != process.EventStarted {
		t.Fatal(ev.Kind)
	}
	g.grow = func() { w.trim(process.Stdout, BlockSize) } // after the look, before the read
	wantNotes(t, tell(t, r), "gap", "stdout rest", "stderr later")
}

// What cannot be read because it is freed is a gap, not an error.
func TestAChunkThatIsFreedAndCannotBeReadIsAGap(t *testing.T) {
	w := testWriter(t)
	w.data(process.Stdout, bytes.Repeat([]byte("x"), BlockSize), whole)
	g := &growing{writer: w}
	r := proctest.Value(NewReader(w.dir, "p", outputs, g, process.ReadOptions{}))(t)
	defer r.Close()
	if ev, _, _ := r.Next(); ev.Kind != process.EventStarted {
		t.Fatal(ev.Kind)
	}
	g.grow = func() {
		w.trim(process.Stdout, BlockSize)
		w.check(syscall.Ftruncate(w.fds[process.Stdout], 0))
	}
	wantNotes(t, tell(t, r), "gap")
}

func TestAReaderThatDoesNotFollowEndsThoughADescendantGoesOn(t *testing.T) {
	w := testWriter(t)
	w.data(process.Stdout, []byte("a"), whole)
	w.exit(0)
	r := w.open(t, process.ReadOptions{NoFollow: true})
	w.data(process.Stdout, []byte("late"), whole)
	wantNotes(t, tell(t, r), "started", "stdout a", "exited", "end")
	w.eof(process.Stdout)
	wantNotes(t, tell(t, r), "end")
}

func TestAHoleInTheIndexIsReadNoFurtherThanTheReaderGoes(t *testing.T) {
	w := testWriter(t)
	w.data(process.Stdout, []byte("old"), hole)
	r := w.open(t, process.ReadOptions{NoFollow: true})
	w.data(process.Stdout, []byte("new"), hole)
	w.data(process.Stdout, []byte("newer"), whole)
	wantNotes(t, tell(t, r), "started", "stdout old", "end")
}

func TestARemovedProcessIsTold(t *testing.T) {
	for name, noFollow := range map[string]bool{"to a follower": false, "to a reader that does not follow": true} {
		t.Run(name, func(t *testing.T) {
			w := testWriter(t)
			w.data(process.Stdout, []byte("a"), whole)
			r := w.open(t, process.ReadOptions{NoFollow: noFollow})
			// Removed after the reader looked.
			g := &growing{writer: w}
			r.src = g
			if ev, _, _ := r.Next(); ev.Kind != process.EventStarted {
				t.Fatal(ev.Kind)
			}
			g.grow = func() {
				w.announce(func(p *Progress) { p.Removed = true })
				proctest.Must(t, os.RemoveAll(w.dir))
			}
			wantNotes(t, tell(t, r), "removed", "end")
		})
	}
}

func TestOutputShorterThanAnnouncedIsAnErrorAndNoEnd(t *testing.T) {
	w := testWriter(t)
	w.data(process.Stdout, []byte("abcdef"), whole)
	r := w.open(t, process.ReadOptions{MaxChunk: maxChunk})
	proctest.Must(t, os.Truncate(filepath.Join(w.dir, "stdout"), 0))
	if _, ok, err := r.Next(); !ok || err != nil {
		t.Fatal(ok, err)
	}
	for range 2 { // nothing is skipped
		if _, ok, err := r.Next(); ok || err == nil || errors.Is(err, io.EOF) {
			t.Fatalf("got %v, %v; want an error that is not the end", ok, err)
		}
	}
}

func TestADrainTimeEndsAReaderWhoseStreamIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := testWriter(t)
		r := w.open(t, process.ReadOptions{Drain: time.Hour})
		w.data(process.Stdout, []byte("a"), whole)
		w.exit(0)
		wantNotes(t, tell(t, r), "started", "stdout a", "exited")
		w.data(process.Stderr, []byte("late"), whole)
		w.eof(process.Stderr)
		<-r.Ready()
		wantNotes(t, tell(t, r), "stderr late", "eof stderr")
		<-r.Ready() // by the drain time alone
		w.data(process.Stdout, []byte("too late"), whole)
		wantNotes(t, tell(t, r), "end")
	})
}

func TestReadOptionsAreChecked(t *testing.T) {
	w := testWriter(t)
	w.data(process.Stdout, []byte("abc"), whole)
	for name, tc := range map[string]struct {
		opts    process.ReadOptions
		invalid bool
	}{
		"an offset past the end":  {process.ReadOptions{From: [4]int64{1: 4}}, false},
		"a negative offset":       {process.ReadOptions{From: [4]int64{1: -2}}, true},
		"a chunk of less than 1":  {process.ReadOptions{MaxChunk: -1}, true},
		"a chunk that is too big": {process.ReadOptions{MaxChunk: maxChunk + 1}, true},
		"the input stream":        {process.ReadOptions{Streams: []process.Stream{process.Stdin}}, true},
		"a stream that is none":   {process.ReadOptions{Streams: []process.Stream{4}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewReader(w.dir, "p", outputs, w, tc.opts)
			var invalid *process.InvalidError
			if errors.As(err, &invalid) != tc.invalid || !tc.invalid && !errors.Is(err, process.ErrOffset) {
				t.Errorf("got %v", err)
			}
		})
	}
	if w.open(t, process.ReadOptions{}).Valid(200, 0) {
		t.Error("a stream that is none has kept bytes")
	}
}

func TestReadersFollowAWriterThatFreesBehindItself(t *testing.T) {
	const total, keep = 4 << 20, 256 << 10
	w := testWriter(t)
	var wg sync.WaitGroup
	for i := range 8 {
		r := w.open(t, process.ReadOptions{Drain: -1, Unordered: i%4 == 3, MaxChunk: []int{0, 4096, 100_000}[i%3]})
		wg.Go(func() {
			var at [4]int64
			for {
				ev, ok, err := r.Next()
				switch {
				case err == io.EOF:
					if at[process.Stdout]+at[process.Stderr] != total {
						t.Errorf("the reader ends at %v", at)
					}
					return
				case err != nil:
					t.Error(err)
					return
				case !ok:
					<-r.Ready()
				case ev.Kind == process.EventGap && ev.Gap.From == at[ev.Stream]:
					at[ev.Stream] = ev.Gap.To
				case ev.Kind == process.EventOutput:
					for j, b := range ev.Data {
						if want := pattern(ev.Stream, at[ev.Stream]+int64(j)); b != want || ev.Offset != at[ev.Stream] {
							t.Errorf("%s: byte %d is %d; want %d at %d", ev.Stream, ev.Offset+int64(j), b, want, at[ev.Stream])
							return
						}
					}
					at[ev.Stream] += int64(len(ev.Data))
				}
			}
		})
	}
	b := make([]byte, 8000)
	for n := 0; n < total; {
		s := outputs[n/3000%2]
		b = b[:min(cap(b), total-n)]
		for i := range b {
			b[i] = pattern(s, w.p.End[s]+int64(i))
		}
		w.data(s, b, whole)
		n += len(b)
		w.trim(s, w.p.End[s]-keep)
	}
	w.exit(0)
	w.eof(process.Stdout)
	w.eof(process.Stderr)
	wg.Wait()
}

// pattern is never zero, as freed blocks are.
func pattern(s process.Stream, at int64) byte { return byte(1 + (at*7+at>>10+int64(s)*101)%251) }

func TestAWaitingReaderIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(reader{}); size > 600 {
		t.Errorf("a reader takes %d bytes; thousands may wait, 600 are allowed", size)
	}
}

func TestNextAllocatesNothing(t *testing.T) {
	for name, size := range map[string]int{"lines": 100, "large chunks": 600_000} {
		t.Run(name, func(t *testing.T) {
			const runs, tries = 50, 3
			w := testWriter(t)
			r := w.open(t, process.ReadOptions{MaxChunk: maxChunk})
			b := make([]byte, size)
			for range tries * (runs + 2) {
				w.data(process.Stdout, b, whole)
				w.data(process.Stderr, b, whole)
			}
			for range 3 { // opens the files
				if _, ok, err := r.Next(); !ok || err != nil {
					t.Fatal(ok, err)
				}
			}
			allocs := math.Inf(1) // what else allocates in this process is counted, too
			for range tries {
				allocs = min(allocs, testing.AllocsPerRun(runs, func() {
					if ev, ok, err := r.Next(); !ok || err != nil || len(ev.Data) != size {
						t.Fatal(ok, err)
					}
				}))
			}
			if allocs > 0 {
				t.Errorf("%v allocations for an event", allocs)
			}
		})
	}
}
