package protocol

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// prompted is a reader of numbers, eight bytes each, that prompts.
type prompted struct {
	ready chan struct{}

	mu     sync.Mutex
	end    int64 // bytes there are; guarded by mu
	at     int64 // guarded by mu
	closed bool  // io.EOF comes at the end; guarded by mu
	prompt func() bool
}

func newPrompted() *prompted { return &prompted{ready: make(chan struct{}, 1)} }

func (r *prompted) Ready() <-chan struct{}             { return r.ready }
func (r *prompted) Close() error                       { return nil }
func (r *prompted) Next() (process.Event, bool, error) { panic("not with spans") }
func (r *prompted) Valid(process.Stream, int64) bool   { return true }
func (r *prompted) AtHand() bool                       { return rand.IntN(50) > 0 }

func (r *prompted) Prompt(f func() bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.prompt = f
}

func (r *prompted) NextSpan(most int) (ev process.Event, span process.Span, ok bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := min(r.end-r.at, int64(most)&^7)
	if n == 0 {
		if r.closed {
			err = io.EOF
		}
		return ev, span, false, err
	}
	ev = process.Event{Kind: process.EventOutput, Stream: process.PTY, Offset: r.at}
	span = process.Span{Offset: r.at, Len: int(n)}
	r.at += n
	return ev, span, true, nil
}

// grow adds numbers and does what a dispatcher does.
func (r *prompted) grow(numbers int, last bool) {
	r.mu.Lock()
	r.end += 8 * int64(numbers)
	r.closed = last
	f := r.prompt
	r.mu.Unlock()
	if f == nil || !f() {
		select {
		case r.ready <- struct{}{}:
		default:
		}
	}
}

// recorder is a sink that remembers what was sent, and can keep something back.
type recorder struct {
	event func() // is called at Event

	sent, kept []byte
	alive      chan time.Time
	inside     sync.Mutex // only one goroutine may be in the sink
}

func (s *recorder) enter() func() {
	if !s.inside.TryLock() {
		panic("two goroutines are in one sink")
	}
	return s.inside.Unlock
}

func (s *recorder) put(b []byte, ev process.Event, out Output) []byte {
	for at := range out.Span.Len / 8 {
		b = binary.BigEndian.AppendUint64(b, uint64(ev.Offset)/8+uint64(at))
	}
	return b
}

func (s *recorder) Event(ev process.Event, out Output) error {
	defer s.enter()()
	if s.event != nil {
		s.event()
	}
	s.sent = s.put(append(s.sent, s.kept...), ev, out)
	s.kept = nil
	return nil
}

func (s *recorder) Flush() error {
	defer s.enter()()
	s.sent, s.kept = append(s.sent, s.kept...), nil
	return nil
}

func (s *recorder) Keepalive() error {
	defer s.enter()()
	s.alive <- time.Now()
	return nil
}

func (s *recorder) WantsSpans() (int, bool)  { return 1 << 10, true }
func (s *recorder) WantsPrompt() (int, bool) { return 64, true }

func (s *recorder) Clear() bool {
	defer s.enter()()
	return s.kept == nil
}

func (s *recorder) Prompt(ev process.Event, out Output) bool {
	defer s.enter()()
	switch rand.IntN(4) {
	case 0:
		return false
	case 1: // the reader takes a part of it
		all := s.put(nil, ev, out)
		n := rand.IntN(len(all))
		s.sent, s.kept = append(s.sent, all[:n]...), all[n:]
	default:
		s.sent = s.put(s.sent, ev, out)
	}
	return true
}

// Whoever sends, events come in order, each once, and the last one too: though
// two dispatchers prompt at a time, events are refused and taken in part, and the
// stream's own goroutine is slow.
func TestAStreamIsWholeWhoeverSendsIt(t *testing.T) {
	for range 20 {
		r := newPrompted()
		s := &recorder{event: runtime.Gosched}
		ended := make(chan error)
		go func() { ended <- Stream(t.Context(), r, s, 0) }()
		const numbers = 3000
		var dispatchers sync.WaitGroup
		for range 2 {
			dispatchers.Go(func() {
				for range numbers / 4 {
					r.grow(1, false)
					if rand.IntN(3) == 0 {
						runtime.Gosched()
					}
					if rand.IntN(100) == 0 {
						time.Sleep(50 * time.Microsecond) // the stream's goroutine waits
					}
				}
			})
		}
		dispatchers.Wait()
		r.grow(numbers/2-20, false) // a burst
		r.grow(20, true)
		proctest.Must(t, <-ended)
		if len(s.sent) != 8*numbers {
			t.Fatalf("%d bytes were sent; want %d", len(s.sent), 8*numbers)
		}
		for i := range numbers {
			if got := binary.BigEndian.Uint64(s.sent[8*i:]); got != uint64(i) {
				t.Fatalf("number %d is %d", i, got)
			}
		}
	}
}

// While the stream's goroutine waits for a client, who prompts does not.
func TestAPromptDoesNotWaitForTheClient(t *testing.T) {
	r := newPrompted()
	entered, release := make(chan struct{}), make(chan struct{})
	s := &recorder{event: sync.OnceFunc(func() {
		close(entered)
		<-release
	})}
	r.end = 8
	ended := make(chan error)
	go func() { ended <- Stream(t.Context(), r, s, 0) }()
	<-entered
	for range 100 {
		r.grow(1, false) // a deadlock if it waits
	}
	close(release)
	r.grow(1, true)
	proctest.Must(t, <-ended)
	if len(s.sent) != 8*102 {
		t.Errorf("%d bytes were sent; want %d", len(s.sent), 8*102)
	}
}

// When the stream has ended nothing more is sent, though it is prompted.
func TestNothingIsSentAfterTheEnd(t *testing.T) {
	r := newPrompted()
	s := &recorder{}
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error)
	go func() { ended <- Stream(ctx, r, s, 0) }()
	var f func() bool
	for f == nil {
		runtime.Gosched()
		r.mu.Lock()
		f = r.prompt
		r.mu.Unlock()
	}
	why := errors.New("the server is stopping")
	cancel(why)
	if err := <-ended; err != why {
		t.Fatalf("the stream ended with %v", err)
	}
	r.end = 80
	if !f() {
		t.Error("somebody is to go on")
	}
	if len(s.sent)+len(s.kept) != 0 || r.at != 0 {
		t.Errorf("%d bytes were sent after the end, %d taken", len(s.sent), r.at)
	}
	if r.prompt != nil {
		t.Error("the reader goes on prompting")
	}
}

// What is sent at a prompt puts the keepalive off, too.
func TestKeepalivesKnowOfPrompts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPrompted()
		s := &recorder{alive: make(chan time.Time, 1)}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- Stream(ctx, r, s, 10*time.Second) }()
		began := time.Now()
		time.Sleep(8 * time.Second)
		for done := false; !done; {
			r.mu.Lock()
			r.end += 8
			r.mu.Unlock()
			done = r.prompt() // false: refused, and the stream's goroutine is not told
			if !done {
				r.ready <- struct{}{}
				synctest.Wait()
			}
		}
		if at := (<-s.alive).Sub(began); at != 18*time.Second {
			t.Errorf("a keepalive came after %v; want 18s", at)
		}
		if at := (<-s.alive).Sub(began); at != 28*time.Second {
			t.Errorf("the next came after %v; want 28s", at)
		}
		cancel()
		<-ended
	})
}
