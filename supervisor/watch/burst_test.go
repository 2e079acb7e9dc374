package watch

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/tend-run/tend/files"
)

// heard is a directory of a sandbox whose changes a test makes known.
type heard struct {
	Files
	ready chan struct{}
	names []string // that have changed and were not taken
}

func (h *heard) Root() string           { return "/x" }
func (h *heard) Ready() <-chan struct{} { return h.ready }
func (h *heard) Close() error           { return nil }

func (h *heard) Take() (all []files.Event, err error) {
	for _, name := range h.names {
		all = append(all, files.Event{Name: name, Op: files.OpWrite})
	}
	h.names = nil
	return all, nil
}

// A process that stood still finds the end of its delay and the changes of that time at once,
// and hears of some of them only a moment later. All are of one burst.
func TestChangesOfATimeThatStoodStillAreOneBurst(t *testing.T) {
	const delay, stood = time.Second, time.Minute
	match := matcher{paths: []string{"**"}}
	// Each returns what runs, and what makes a change known.
	onMachine := func() (run func(context.Context, *burst, func(string)) error, change func(string)) {
		w := &Watcher{dir: "/x", match: match, fsn: &fsnotify.Watcher{Events: make(chan fsnotify.Event), Errors: make(chan error)}, dirs: map[string]bool{"/x": true}}
		return w.run, func(name string) {
			go func() { w.fsn.Events <- fsnotify.Event{Name: "/x/" + name, Op: fsnotify.Write} }()
		}
	}
	inSandbox := func() (run func(context.Context, *burst, func(string)) error, change func(string)) {
		h := &heard{ready: make(chan struct{}, 1)}
		w := &Inside{dir: "/x", match: match, now: h}
		run = func(ctx context.Context, b *burst, changed func(string)) error { return w.run(ctx, nil, b, changed) }
		return run, func(name string) {
			h.names = append(h.names, name)
			h.ready <- struct{}{}
		}
	}
	for where, open := range map[string]func() (func(context.Context, *burst, func(string)) error, func(string)){"on this machine": onMachine, "in a sandbox": inSandbox} {
		for when, after := range map[string]time.Duration{"at once": 0, "a moment later": delay / 10} {
			t.Run(where+", heard of "+when, func(t *testing.T) {
				// Which of two things that are there is taken is chance.
				for range 20 {
					synctest.Test(t, func(t *testing.T) {
						run, change := open()
						b := newBurst(delay)
						b.note("first")
						if after == 0 {
							change("second")
						}
						time.Sleep(stood)
						var told []string
						ctx, cancel := context.WithCancel(t.Context())
						done := make(chan error)
						go func() { done <- run(ctx, b, func(name string) { told = append(told, name) }) }()
						if after != 0 {
							time.Sleep(after)
							change("second")
						}
						time.Sleep(stood)
						cancel()
						if err := <-done; err != nil || !slices.Equal(told, []string{"first"}) {
							t.Fatalf("told %v, %v; want the first alone", told, err)
						}
					})
				}
			})
		}
	}
}

// What was heard of before the delay was over belongs to the burst, though nobody has looked
// at it yet.
func TestABurstEndsWhenNothingIsPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBurst(time.Second)
		b.note("first")
		<-b.quiet.C
		if name, err := b.settle(func() error { b.note("second"); return nil }); name != "" || err != nil {
			t.Errorf("told %q, %v, though something was pending", name, err)
		}
		<-b.quiet.C
		if name, err := b.settle(func() error { return nil }); name != "first" || err != nil {
			t.Errorf("told %q, %v", name, err)
		}
	})
}

// A machine that never has time for the process is late each time.
func TestABurstIsToldByAProcessThatIsAlwaysLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBurst(time.Second)
		b.note("first")
		for n := 0; ; n++ {
			time.Sleep(b.delay + 2*lateBy)
			<-b.quiet.C
			if name, _ := b.settle(func() error { return nil }); name != "" {
				return
			}
			if n > mostLate {
				t.Fatal("it is never told")
			}
		}
	})
}
