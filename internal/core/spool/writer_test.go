//go:build linux

package spool

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// writer is a keeper in small: it writes real files in the order the package
// comment demands, and is the Source of the readers.
type writer struct {
	t    interface{ Fatal(...any) }
	dir  string
	fds  [4]int
	idx  int
	wall int64
	mono uint32

	mu   sync.Mutex
	p    Progress                     // guarded by mu
	subs map[chan<- struct{}]struct{} // guarded by mu
}

var started = time.Unix(1700000000, 0)

func newWriter(t interface{ Fatal(...any) }, dir string) *writer {
	w := &writer{t: t, dir: dir, fds: [4]int{-1, -1, -1, -1}, wall: 1, subs: map[chan<- struct{}]struct{}{}}
	w.p.PID, w.p.Started = 42, started
	j := AppendSpec(nil, started, &process.Spec{Argv: []string{"true"}})
	j = AppendStarted(j, started, Started{PID: 42})
	w.check(os.WriteFile(filepath.Join(dir, JournalName), j, 0o600))
	var err error
	w.idx, err = unix.Open(filepath.Join(dir, IndexName), unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	w.check(err)
	return w
}

func (w *writer) check(err error) {
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *writer) close() {
	unix.Close(w.idx)
	for _, fd := range w.fds {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// Progress implements Source.
func (w *writer) Progress() Progress {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.p
}

// Subscribe implements Source.
func (w *writer) Subscribe(ready chan<- struct{}) func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.subs[ready] = struct{}{}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.subs, ready)
	}
}

func (w *writer) announce(change func(*Progress)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.p)
	for ch := range w.subs {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

// record appends to the index; announced at once, ahead of the ends.
func (w *writer) record(r IndexRecord, damaged bool) {
	w.wall++
	r.Wall, r.Mono = w.wall, w.mono
	var b [IndexSize]byte
	r.Put(&b)
	if damaged {
		b[9] ^= 0x40
	}
	_, err := unix.Pwrite(w.idx, b[:], w.p.IndexEnd)
	w.check(err)
	w.announce(func(p *Progress) { p.IndexEnd += IndexSize })
}

const (
	whole   = iota // a good record
	damaged        // a record with a wrong checksum
	hole           // none
)

// data writes bytes at the end of a stream.
func (w *writer) data(s process.Stream, b []byte, index int) {
	if w.fds[s] < 0 {
		var err error
		w.fds[s], err = OpenStream(w.dir, s)
		w.check(err)
	}
	from := w.p.End[s]
	_, err := unix.Pwrite(w.fds[s], b, from)
	w.check(err)
	if index != hole {
		w.record(IndexRecord{Kind: IndexData, Stream: s, Offset: from, Len: uint32(len(b))}, index == damaged)
	}
	w.announce(func(p *Progress) { p.End[s] += int64(len(b)) })
}

// trim frees the head of a stream.
func (w *writer) trim(s process.Stream, before int64) {
	old, base := w.p.Base[s], before&^(BlockSize-1)
	if base <= old {
		return
	}
	w.announce(func(p *Progress) { p.Base[s] = base })
	w.record(IndexRecord{Kind: IndexTrim, Stream: s, Offset: base}, false)
	w.check(Punch(w.fds[s], old, base))
}

func (w *writer) eof(s process.Stream) { w.announce(func(p *Progress) { p.EOF[s] = true }) }

func (w *writer) exit(code int) {
	w.announce(func(p *Progress) { p.Exit = &process.Exit{Cause: process.CauseExited, Code: code, Time: started} })
}

// open opens a reader that is closed with the test.
func (w *writer) open(t *testing.T, opts process.ReadOptions) *reader {
	t.Helper()
	r := proctest.Value(NewReader(w.dir, "p", []process.Stream{process.Stdout, process.Stderr}, w, opts))(t)
	t.Cleanup(func() { r.Close() })
	return r.(*reader)
}

func testWriter(t *testing.T) *writer {
	w := newWriter(t, t.TempDir())
	t.Cleanup(w.close)
	return w
}
