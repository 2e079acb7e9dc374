package observe

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tend-run/tend/process"
)

// written is a process with output of a certain age, all of it there at once.
type written struct {
	pieces []string
	age    time.Duration // 0: the time is unknown
	at     int64
}

func (w *written) Info(context.Context) (process.Info, error) { return process.Info{}, nil }

func (w *written) Read(context.Context, process.ReadOptions) (process.Reader, error) { return w, nil }

func (w *written) Next() (process.Event, bool, error) {
	if len(w.pieces) == 0 {
		return process.Event{}, false, nil
	}
	ev := process.Event{Kind: process.EventOutput, Stream: process.Stdout, Offset: w.at, Data: []byte(w.pieces[0])}
	if w.age != 0 {
		ev.Time = time.Now().Add(-w.age)
	}
	w.at += int64(len(w.pieces[0]))
	w.pieces = w.pieces[1:]
	return ev, true, nil
}

func (w *written) Ready() <-chan struct{} { return nil }

func (w *written) Close() error { return nil }

// A prompt that has stood for long is found at once: a wait that starts again with each of
// many servers, which all die young, comes to its end.
func TestAPromptIsFoundByItsAge(t *testing.T) {
	for name, tt := range map[string]struct {
		age, takes time.Duration
	}{
		"old":           {time.Hour, 0},
		"just old":      {late + settle, 0},
		"half old":      {late + settle/2, settle / 2},
		"new":           {time.Millisecond, settle},
		"of the future": {-time.Hour, settle},
		"unknown":       {0, settle},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				res, err := Wait(t.Context(), &written{pieces: []string{"na", "me? "}, age: tt.age}, process.Until{Match: `^name\? $`})
				if took := time.Since(began); err != nil || !res.Met || took != tt.takes {
					t.Errorf("it took %v, %+v, %v; want %v", took, res, err, tt.takes)
				}
			})
		})
	}
}

// What is there of a line is judged as a whole, however old its beginning is.
func TestAnOldLineInPiecesIsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if res, err := Wait(ctx, &written{pieces: []string{"na", "me? "}, age: time.Hour}, process.Until{Match: `na$`}); err != context.DeadlineExceeded {
			t.Errorf("half of the line is found: %+v, %v", res, err)
		}
	})
}
