package process

import (
	"io"
	"sync"
)

// maxLag is how many events may wait for a watcher.
const maxLag = 4096

// Watchers passes events to any number of watchers; a [Manager] uses it to implement
// Watch. The zero value is ready to use. All methods may be called concurrently, and
// none blocks.
type Watchers struct {
	mu   sync.Mutex
	open map[*watcher]struct{} // guarded by mu
}

// watcher implements Watcher.
type watcher struct {
	of    *Watchers
	ready chan struct{}

	mu     sync.Mutex
	events []Event // guarded by mu
	err    error   // guarded by mu
}

// Open returns a watcher of the events from now on.
func (ws *Watchers) Open() Watcher {
	w := &watcher{of: ws, ready: make(chan struct{}, 1)}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.open == nil {
		ws.open = map[*watcher]struct{}{}
	}
	ws.open[w] = struct{}{}
	return w
}

// Publish delivers ev to all watchers. A watcher that has fallen too far behind gets
// [ErrLagged] instead.
func (ws *Watchers) Publish(ev Event) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for w := range ws.open {
		w.add(ev)
	}
}

// End ends all watchers with err, after the events that they still have.
func (ws *Watchers) End(err error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for w := range ws.open {
		w.end(err)
	}
}

func (w *watcher) add(ev Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.events) >= maxLag {
		w.events, w.err = nil, ErrLagged
	}
	if w.err == nil {
		w.events = append(w.events, ev)
	}
	w.wake()
}

func (w *watcher) end(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
	w.wake()
}

func (w *watcher) wake() {
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

// Next implements Watcher.
func (w *watcher) Next() (Event, bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.events) > 0 {
		ev := w.events[0]
		w.events = w.events[1:]
		return ev, true, nil
	}
	return Event{}, false, w.err
}

// Ready implements Watcher.
func (w *watcher) Ready() <-chan struct{} { return w.ready }

// Close implements Watcher.
func (w *watcher) Close() error {
	w.of.mu.Lock()
	delete(w.of.open, w)
	w.of.mu.Unlock()
	w.end(io.EOF)
	return nil
}
