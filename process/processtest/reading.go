//go:build unix

package processtest

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/tend-run/tend/process"
)

// toTheEnd are the options of a reader of everything until EOF of each stream.
var toTheEnd = process.ReadOptions{Drain: -1}

// transcript is what a reader delivered.
type transcript struct {
	events []process.Event // without the data
	out    [4][]byte
	exit   *process.Exit
}

// kinds returns the kinds of the events, runs of output as one.
func (tr *transcript) kinds() []process.EventKind {
	var out []process.EventKind
	for _, ev := range tr.events {
		if n := len(out); n == 0 || out[n-1] != ev.Kind || ev.Kind != process.EventOutput {
			out = append(out, ev.Kind)
		}
	}
	return out
}

func (tr *transcript) stdout() string { return string(tr.out[process.Stdout]) }
func (tr *transcript) stderr() string { return string(tr.out[process.Stderr]) }
func (tr *transcript) pty() string    { return string(tr.out[process.PTY]) }

// tail is a reader and what it has delivered so far.
type tail struct {
	t *T
	r process.Reader
	transcript
	pos   [4]int64
	known [4]bool // pos is known
}

// read opens a reader that is closed when the subtest ends.
func (t *T) read(p process.Process, opts process.ReadOptions) *tail {
	t.Helper()
	r, err := p.Read(t.ctx, opts)
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	t.Cleanup(func() { r.Close() })
	return &tail{t: t, r: r}
}

// advance waits for the next event; more is false after the last.
func (l *tail) advance() (ev process.Event, more bool, err error) {
	l.t.Helper()
	for {
		ev, ok, err := l.r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return process.Event{}, false, nil
		case err != nil:
			return process.Event{}, false, fmt.Errorf("next: %w", err)
		case ok:
			l.add(ev)
			return ev, true, nil
		}
		select {
		case <-l.r.Ready():
		case <-l.t.ctx.Done():
			return process.Event{}, false, fmt.Errorf("the reader delivered %v, stdout %s, stderr %s, pty %s, and then nothing before the deadline",
				l.kinds(), abbreviate(l.out[process.Stdout]), abbreviate(l.out[process.Stderr]), abbreviate(l.out[process.PTY]))
		}
	}
}

// next waits for the next event; false after the last.
func (l *tail) next() (process.Event, bool) {
	l.t.Helper()
	ev, more, err := l.advance()
	if err != nil {
		l.t.Fatal(err)
	}
	return ev, more
}

// step is next for another goroutine than the subtest's.
func (l *tail) step() bool {
	l.t.Helper()
	_, more, err := l.advance()
	if err != nil {
		l.t.Error(err)
	}
	return more
}

// add keeps an event and checks what holds for all of them.
func (l *tail) add(ev process.Event) {
	t := l.t
	t.Helper()
	if len(l.events) == 0 && ev.Kind != process.EventStarted {
		t.Errorf("the first event is %s; want started", ev.Kind)
	}
	switch ev.Kind {
	case process.EventOutput:
		if len(ev.Data) == 0 {
			t.Errorf("an output event of %s at %d has no data", ev.Stream, ev.Offset)
		}
		if l.known[ev.Stream] && ev.Offset != l.pos[ev.Stream] {
			t.Errorf("%s goes on at %d after %d", ev.Stream, ev.Offset, l.pos[ev.Stream])
		}
		l.out[ev.Stream] = append(l.out[ev.Stream], ev.Data...)
		l.pos[ev.Stream], l.known[ev.Stream] = ev.Offset+int64(len(ev.Data)), true
	case process.EventGap:
		g := ev.Gap
		if g.From >= g.To || l.known[g.Stream] && g.From != l.pos[g.Stream] {
			t.Errorf("the gap of %s is %d to %d after %d", g.Stream, g.From, g.To, l.pos[g.Stream])
		}
		l.pos[g.Stream], l.known[g.Stream] = g.To, true
	case process.EventExited:
		if ev.Exit == nil || l.exit != nil {
			t.Errorf("exited is told with %v after %v", ev.Exit, l.exit)
		}
		l.exit = ev.Exit
	case process.EventEOF:
		if l.known[ev.Stream] && ev.Offset != l.pos[ev.Stream] {
			t.Errorf("%s ends at %d, but %d bytes came", ev.Stream, ev.Offset, l.pos[ev.Stream])
		}
		l.pos[ev.Stream], l.known[ev.Stream] = ev.Offset, true
	}
	ev.Data = nil
	l.events = append(l.events, ev)
}

// until reads on until ok holds; the reader must not end before.
func (l *tail) until(what string, ok func() bool) {
	l.t.Helper()
	for !ok() {
		if _, more := l.next(); !more {
			l.t.Fatalf("the reader ended before %s; events %v, stdout %s, stderr %s, pty %s", what, l.kinds(),
				abbreviate(l.out[process.Stdout]), abbreviate(l.out[process.Stderr]), abbreviate(l.out[process.PTY]))
		}
	}
}

// exits reads on until the exit is told.
func (l *tail) exits() {
	l.t.Helper()
	l.until("the exit", func() bool { return l.exit != nil })
}

// wantStdout fails unless stdout is exactly this.
func (t *T) wantStdout(tr *transcript, want string) {
	t.Helper()
	if tr.stdout() != want {
		t.Errorf("stdout is %s, stderr %s; want %s", abbreviate(tr.out[process.Stdout]), abbreviate(tr.out[process.Stderr]),
			abbreviate([]byte(want)))
	}
}

// wantPTY is wantStdout of a terminal.
func (t *T) wantPTY(tr *transcript, want string) {
	t.Helper()
	if tr.pty() != want {
		t.Errorf("the terminal has %q; want %q", tr.pty(), want)
	}
}

// stdoutOf waits until stdout has n bytes, and returns them.
func (t *T) stdoutOf(p process.Process, n int) string {
	t.Helper()
	l := t.read(p, process.ReadOptions{})
	l.until(fmt.Sprintf("byte %d of stdout", n), func() bool { return len(l.out[process.Stdout]) >= n })
	return l.stdout()
}

// rest reads to the end of the reader.
func (l *tail) rest() *transcript {
	l.t.Helper()
	for {
		if _, more := l.next(); !more {
			return &l.transcript
		}
	}
}

// all reads everything to the end of each stream.
func (t *T) all(p process.Process) *transcript {
	t.Helper()
	return t.read(p, toTheEnd).rest()
}

// index returns where the first event that matches is, or -1.
func (tr *transcript) index(match func(ev *process.Event) bool) int {
	return slices.IndexFunc(tr.events, func(ev process.Event) bool { return match(&ev) })
}

func isKind(k process.EventKind) func(*process.Event) bool {
	return func(ev *process.Event) bool { return ev.Kind == k }
}
