package process

import (
	"errors"
	"io"
	"testing"
)

func TestAWatcherHearsWhatIsToldAfterItsOpening(t *testing.T) {
	var ws Watchers
	ws.Publish(Event{PID: 1})
	w, other := ws.Open(), ws.Open()
	ws.Publish(Event{PID: 2})
	ws.Publish(Event{PID: 3})
	other.Close()
	ws.Publish(Event{PID: 4})
	for _, want := range []int{2, 3, 4} {
		<-w.Ready()
		w.(*watcher).wake() // there is more
		ev, ok, err := w.Next()
		if !ok || err != nil || ev.PID != want {
			t.Fatalf("%+v %v %v; want pid %d", ev, ok, err, want)
		}
	}
	if ev, ok, err := w.Next(); ok || err != nil {
		t.Errorf("after the last event: %+v %v", ev, err)
	}
	for range 2 {
		if _, ok, _ := other.Next(); !ok {
			t.Error("what was told before Close is gone")
		}
	}
	if _, ok, err := other.Next(); ok || err != io.EOF {
		t.Errorf("a closed watcher: %v %v", ok, err)
	}
}

func TestAWatcherThatLagsIsToldSoAndTheOthersGoOn(t *testing.T) {
	var ws Watchers
	slow, fast := ws.Open(), ws.Open()
	for n := range maxLag + 1 {
		ws.Publish(Event{PID: n})
		if ev, ok, err := fast.Next(); !ok || err != nil || ev.PID != n {
			t.Fatalf("%+v %v %v; want pid %d", ev, ok, err, n)
		}
	}
	if _, ok, err := slow.Next(); ok || !errors.Is(err, ErrLagged) {
		t.Errorf("%v %v; want ErrLagged", ok, err)
	}
}

func TestTheEndComesAfterTheEvents(t *testing.T) {
	var ws Watchers
	w := ws.Open()
	ws.Publish(Event{PID: 1})
	ws.End(ErrUnavailable)
	<-w.Ready()
	if ev, ok, err := w.Next(); !ok || err != nil || ev.PID != 1 {
		t.Errorf("%+v %v %v", ev, ok, err)
	}
	if _, ok, err := w.Next(); ok || !errors.Is(err, ErrUnavailable) {
		t.Errorf("%v %v; want ErrUnavailable", ok, err)
	}
}
