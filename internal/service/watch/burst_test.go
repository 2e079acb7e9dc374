package watch

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tend-run/tend/internal/files"
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

func (h *heard) List(context.Context, string, uint32) ([]files.Entry, error) { return nil, nil }

// A process that stood still finds the end of its delay and the changes of that time at once,
// and hears of some of them only a moment later. All are of one burst.
func TestChangesOfATimeThatStoodStillAreOneBurst(t *testing.T) {
	const delay, stood = time.Second, time.Minute
	// It returns what runs, and what makes a change known.
	open := func() (run func(context.Context, *burst) error, change func(string)) {
		h := &heard{ready: make(chan struct{}, 1)}
		w := &Watcher{dir: "/x", match: matcher{paths: []string{"**"}}, files: h, now: h}
		run = func(ctx context.Context, b *burst) error { return w.run(ctx, nil, b) }
		return run, func(name string) {
			h.names = append(h.names, name)
			h.ready <- struct{}{}
		}
	}
	for when, after := range map[string]time.Duration{"at once": 0, "a moment later": delay / 10} {
		t.Run("heard of "+when, func(t *testing.T) {
			// Which of two things that are there is taken is chance.
			for range 20 {
				synctest.Test(t, func(t *testing.T) {
					run, change := open()
					var told []string
					b := newBurst(delay, Tell{Changed: func(name string) { told = append(told, name) }}, nil)
					b.note("first")
					if after == 0 {
						change("second")
					}
					time.Sleep(stood)
					ctx, cancel := context.WithCancel(t.Context())
					done := make(chan error)
					go func() { done <- run(ctx, b) }()
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

// script is a burst whose notices a test gives, and what it told: names, "known" with the
// number of the sum, "void".
type script struct {
	*burst
	told []string
	sums int // that were made
}

func scripted() *script {
	s := &script{}
	s.burst = newBurst(time.Second, Tell{
		Changed: func(name string) { s.told = append(s.told, name) },
		Known: func(now *Sum) {
			if now == nil {
				s.told = append(s.told, "void")
			} else {
				s.told = append(s.told, fmt.Sprint("known ", now.Files))
			}
		},
	}, func() *Sum { s.sums++; return &Sum{Files: s.sums} })
	return s
}

// quietly lets so many delays end, with these changes pending at the first end.
func (s *script) quietly(n int, pending ...string) {
	for range n {
		<-s.quiet.C
		_ = s.settle(func() error { // it has no other
			for _, name := range pending {
				s.note(name)
			}
			pending = nil
			return nil
		})
	}
}

func (s *script) want(t *testing.T, told ...string) {
	t.Helper()
	if !slices.Equal(s.told, told) {
		t.Errorf("told %q; want %q", s.told, told)
	}
	s.told = nil
}

// What was heard of before the delay was over belongs to the burst, though nobody has looked
// at it yet.
func TestABurstEndsWhenNothingIsPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scripted()
		s.note("first")
		s.quietly(1, "second")
		s.want(t)
		s.quietly(1)
		s.want(t, "first")
	})
}

// A burst is told by a machine that is late each time.
func TestABurstIsToldByAProcessThatIsAlwaysLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scripted()
		s.note("first")
		for range mostLate + 1 {
			time.Sleep(s.delay + 2*lateBy)
			s.quietly(1)
		}
		s.want(t, "first")
	})
}

// What files are is known when all changes of them were told, and not a moment before: else
// a change that is in it would be lost with its process.
func TestWhatIsKnownHasNoChangeThatWasNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scripted()
		s.quietly(2)
		s.want(t, "known 1")
		s.note("a")
		s.quietly(3)
		s.want(t, "a", "known 2")
		s.note("b")
		s.quietly(2)
		s.quietly(1, "c") // it may be in what was looked at
		s.want(t, "b")
		s.quietly(3)
		s.want(t, "c", "known 4")
		s.touch()
		s.touch()
		s.quietly(1)
		s.touch()
		s.quietly(2)
		s.want(t, "void", "known 6")
		s.note("d")
		s.touch() // it is found out anyhow
		s.quietly(3)
		s.want(t, "d", "known 7")
	})
}
