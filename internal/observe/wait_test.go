package observe_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/observe"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// start starts a shell line with a stdin pipe.
func start(t *testing.T, line string) process.Process {
	t.Helper()
	return startSpec(t, process.Spec{Shell: line, Stdin: process.StdinPipe})
}

func startSpec(t *testing.T, spec process.Spec) process.Process {
	t.Helper()
	spec.Dir = "/"
	p := proctest.Value(testkeeper.New(t).Start(t.Context(), spec))(t)
	return p
}

func write(t *testing.T, p process.Process, s string) {
	t.Helper()
	proctest.Value(p.Write(t.Context(), process.Input{Data: []byte(s)}))(t)
}

func wait(t *testing.T, p process.Process, u process.Until) process.WaitResult {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	res, err := observe.Wait(ctx, p, u)
	if err != nil {
		t.Fatalf("wait for %+v: %v", u, err)
	}
	return res
}

func TestWaitForExitReturnsTheExit(t *testing.T) {
	t.Parallel()
	p := start(t, "read x; exit 3")
	write(t, p, "\n")
	for range 2 { // while it runs, and after
		if res := wait(t, p, process.Until{}); !res.Met || res.Exit == nil || res.Exit.Code != 3 {
			t.Fatalf("got %+v, exit %v; want it met with code 3", res, res.Exit)
		}
	}
}

func TestConditionsThatCannotHoldAnyMoreEndWithTheExit(t *testing.T) {
	t.Parallel()
	for _, u := range []process.Until{{Quiet: time.Hour}, {Match: "never"}, {Port: 1}} {
		p := start(t, "read x; exit 4")
		got := make(chan process.WaitResult, 1)
		go func() {
			res, err := observe.Wait(t.Context(), p, u)
			if err != nil {
				t.Errorf("%+v: %v", u, err)
			}
			got <- res
		}()
		write(t, p, "\n")
		if res := <-got; res.Met || res.Exit == nil || res.Exit.Code != 4 {
			t.Errorf("%+v: got %+v; want it not met, with exit 4", u, res)
		}
	}
}

func TestWaitForQuietIsMetWhenNothingComes(t *testing.T) {
	t.Parallel()
	p := start(t, "echo once; read x")
	if res := wait(t, p, process.Until{Quiet: 10 * time.Millisecond}); !res.Met || res.Exit != nil {
		t.Errorf("got %+v; want it met while the process runs", res)
	}
}

func TestWaitForMatch(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, line string
		until      process.Until
		want       process.WaitResult
	}{
		{"finds what is there", "echo one; echo two >&2; read x", process.Until{Match: "^t.o"},
			process.WaitResult{Met: true, Match: "two", Stream: process.Stderr}},
		{"finds a prompt without a line end", "printf 'name? '; read x", process.Until{Match: `\? $`},
			process.WaitResult{Met: true, Match: "? ", Stream: process.Stdout, Offset: 4}},
		{"finds the last line of a process that has ended", "printf tail", process.Until{Match: "il$"},
			process.WaitResult{Met: true, Match: "il", Stream: process.Stdout, Offset: 2}},
		{"looks from an offset on", "printf 'go\\ngo\\n'; read x", process.Until{Match: "go", From: [4]int64{process.Stdout: 0}},
			process.WaitResult{Met: true, Match: "go", Stream: process.Stdout}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			res := wait(t, start(t, tt.line), tt.until)
			if res.Met != tt.want.Met || res.Match != tt.want.Match || res.Stream != tt.want.Stream || res.Offset != tt.want.Offset {
				t.Errorf("got %+v; want %+v", res, tt.want)
			}
		})
	}
}

func TestWaitForMatchLooksFromAnOffsetOn(t *testing.T) {
	t.Parallel()
	p := start(t, "echo go; read x; echo go; read x")
	first := wait(t, p, process.Until{Match: "go"})
	write(t, p, "\n")
	from := [4]int64{}
	from[process.Stdout] = first.Offset + 3
	if res := wait(t, p, process.Until{Match: "go", From: from}); !res.Met || res.Offset != 3 {
		t.Errorf("got %+v; want the second at 3", res)
	}
}

func TestWaitForTheTreeAndTheEndGoesOnAfterTheExit(t *testing.T) {
	t.Parallel()
	for _, u := range []process.Until{{TreeGone: true}, {EOF: true}} {
		p := start(t, "sleep 1000 & exit 5") // the descendant holds the streams and the session
		wait(t, p, process.Until{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := observe.Wait(ctx, p, u); !errors.Is(err, context.Canceled) {
			t.Errorf("%+v was met, or failed with %v, while a descendant lives", u, err)
		}
		proctest.Value(p.Kill(t.Context()))(t)
		if res := wait(t, p, u); !res.Met || res.Exit == nil || res.Exit.Code != 5 {
			t.Errorf("%+v: got %+v; want it met, with exit 5", u, res)
		}
	}
}

func TestWaitRefusesWhatItCannotWaitFor(t *testing.T) {
	t.Parallel()
	p := start(t, "read x")
	for field, u := range map[string]process.Until{
		"quiet": {Quiet: -1},
		"match": {Match: "("},
		"port":  {Port: 65536},
	} {
		var invalid *process.InvalidError
		if _, err := observe.Wait(t.Context(), p, u); !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%+v: got %v; want an InvalidError of %s", u, err, field)
		}
	}
	past := process.Until{Match: "x"}
	past.From[process.Stdout] = 1 << 40
	if _, err := observe.Wait(t.Context(), p, past); !errors.Is(err, process.ErrOffset) {
		t.Errorf("an offset past the end: got %v; want ErrOffset", err)
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	p := start(t, "read x")
	for _, u := range []process.Until{{}, {Quiet: time.Hour}, {Match: "x"}, {Port: 1}, {TreeGone: true}, {EOF: true}} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		if _, err := observe.Wait(ctx, p, u); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%+v: got %v; want DeadlineExceeded", u, err)
		}
		cancel()
	}
	if in, err := p.Info(t.Context()); err != nil || in.State != process.Running {
		t.Errorf("the process is %v, %v; a wait must not end it", in.State, err)
	}
}
