//go:build unix

package processtest

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/tend-run/tend/process"
)

// watches are about the events of the manager.
var watches = []test{
	{"a watcher is told the start, the exit, the end of the tree and the removal", func(t *T) {
		w := t.watch()
		p := t.shIn("read x; exit 3")
		pid := t.info(p).PID
		t.write(p, "\n")
		t.remove(p)
		events := w.of(p.ID(), process.EventRemoved)
		var kinds []process.EventKind
		for _, ev := range events {
			kinds = append(kinds, ev.Kind)
			if ev.PID != pid && (ev.PID != 0 || ev.Kind == process.EventStarted) {
				t.Errorf("%s is told with pid %d; want %d", ev.Kind, ev.PID, pid)
			}
			if ev.Time.IsZero() {
				t.Errorf("%s is told without a time", ev.Kind)
			}
			if (ev.Kind == process.EventExited) != (ev.Exit != nil) || ev.Exit != nil && ev.Exit.Code != 3 {
				t.Errorf("%s is told with the exit %v", ev.Kind, ev.Exit)
			}
		}
		want := []process.EventKind{process.EventStarted, process.EventExited, process.EventTreeGone, process.EventRemoved}
		if !slices.Equal(kinds, want) {
			t.Errorf("got %v; want %v", kinds, want)
		}
	}},
	{"a watcher is told nothing of what was before, and no output", func(t *T) {
		before := t.sh("echo x")
		t.all(before)
		t.wait(before, process.Until{TreeGone: true})
		w := t.watch()
		p := t.sh("echo x")
		w.of(p.ID(), process.EventTreeGone)
		for _, ev := range w.events {
			switch {
			case ev.ID == before.ID() && ev.Kind == process.EventStarted:
				t.Error("a start of before the call is told")
			case ev.Kind == process.EventOutput, ev.Kind == process.EventEOF, ev.Kind == process.EventGap:
				t.Errorf("%s is told", ev.Kind)
			}
		}
	}},
	{"a process that is told started can be found", func(t *T) {
		w := t.watch()
		p := t.sh("exit 0")
		for _, ev := range w.of(p.ID(), process.EventStarted) {
			if _, err := t.m.Get(t.ctx, process.Selector{ID: ev.ID}); err != nil {
				t.Errorf("get: %v", err)
			}
		}
	}},
	{"every watcher is told everything", func(t *T) {
		ws := []*watching{t.watch(), t.watch(), t.watch()}
		var ps []process.Process
		for range 20 {
			ps = append(ps, t.sh("exit 0"))
		}
		for _, w := range ws {
			for _, p := range ps {
				if got := w.of(p.ID(), process.EventExited); len(got) != 2 {
					t.Errorf("%d events of %s until its exit; want started and exited", len(got), p.ID())
				}
			}
		}
	}},
	{"a failed start is not told", func(t *T) {
		w := t.watch()
		id := process.ID(unique("failed"))
		if _, err := t.m.Start(t.ctx, process.Spec{ID: id, Argv: []string{"/no/such/program"}, Dir: "/"}); err == nil {
			t.Fatal("the start did not fail")
		}
		p := t.sh("exit 0")
		w.of(p.ID(), process.EventExited)
		for _, ev := range w.events {
			if ev.ID == id {
				t.Errorf("%s is told of it", ev.Kind)
			}
		}
	}},
	{"a closed watcher ends, and closing it twice is safe", func(t *T) {
		w := t.watch()
		for range 2 {
			if err := w.w.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}
		if _, ok, err := w.w.Next(); ok || err == nil {
			t.Errorf("after it comes an event: %v, %v; want an error", ok, err)
		}
	}},
	{"the context of the call does not end the watcher", func(t *T) {
		ctx, cancel := context.WithCancel(t.ctx)
		w, err := t.m.Watch(ctx)
		t.check(err)
		t.Cleanup(func() { w.Close() })
		cancel()
		p := t.sh("exit 0")
		(&watching{t: t, w: w}).of(p.ID(), process.EventExited)
	}},
}

// watching is a watcher and what it has delivered so far. The manager may be
// shared, so it may tell of processes of other subtests too.
type watching struct {
	t      *T
	w      process.Watcher
	events []process.Event
}

// watch opens a watcher that is closed when the subtest ends.
func (t *T) watch() *watching {
	t.Helper()
	w, err := t.m.Watch(t.ctx)
	if err != nil {
		t.Fatalf("watch: %v", err)
	}
	t.Cleanup(func() { w.Close() })
	return &watching{t: t, w: w}
}

// of waits for an event of a process and returns all of its events up to it.
func (w *watching) of(id process.ID, last process.EventKind) []process.Event {
	w.t.Helper()
	for at := 0; ; {
		for ; at < len(w.events); at++ {
			if ev := w.events[at]; ev.ID == id && ev.Kind == last {
				var own []process.Event
				for _, ev := range w.events[:at+1] {
					if ev.ID == id {
						own = append(own, ev)
					}
				}
				return own
			}
		}
		ev, ok, err := w.w.Next()
		switch {
		case errors.Is(err, io.EOF):
			w.t.Fatalf("the watcher ended before %s of %s", last, id)
		case err != nil:
			w.t.Fatalf("watcher: %v", err)
		case ok:
			w.events = append(w.events, ev)
			continue
		}
		select {
		case <-w.w.Ready():
		case <-w.t.ctx.Done():
			w.t.Fatalf("%s of %s is not told before the deadline; %d events were", last, id, len(w.events))
		}
	}
}
