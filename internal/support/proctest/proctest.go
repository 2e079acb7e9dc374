// Package proctest holds common steps of tests with processes. A step that does not
// succeed ends its test, after two minutes at the latest; an unmet expectation fails
// it.
package proctest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/lib/backoff"
	"github.com/tend-run/tend/process"
)

// patience bounds each step. Only a broken implementation reaches it.
const patience = 2 * time.Minute

// within is the context of one step.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// Must ends the test at an error: for a step of which nothing else is to be known.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Value is Must for a step that has a result, which it returns: Value(os.ReadFile(name))(t).
func Value[V any](v V, err error) func(testing.TB) V {
	return func(t testing.TB) V {
		t.Helper()
		Must(t, err)
		return v
	}
}

// Root fails a test that only root can do, if another user runs it: one that did
// nothing would count as passed. The tests of `make test` run as root.
func Root(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test needs root: it acts as other users, or changes mounts or cgroups")
	}
}

// Eventually waits for what must happen and no event reports.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for start := time.Now(); !ok(); time.Sleep(backoff.Next(start)) {
		if time.Since(start) > patience {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// Until waits by wait, which looks at all again and again, until the one that is picked is
// as ok says, and returns it. The name and what it shall be are for the failure.
func Until[S any](t testing.TB, wait func(context.Context, func(all []S) bool) error, pick func(S) bool, name, what string,
	ok func(S) bool) (found S) {
	t.Helper()
	err := wait(within(t), func(all []S) bool {
		for _, s := range all {
			if pick(s) {
				found = s
				return ok(s)
			}
		}
		return false
	})
	if err != nil {
		t.Fatalf("%s is not %s: %v; it is %+v", name, what, err, found)
	}
	return found
}

// Start starts a process. What ends it is left to the caller, or to the end of
// its manager.
func Start(t testing.TB, m process.Manager, spec process.Spec) process.Process {
	t.Helper()
	p, err := m.Start(t.Context(), spec)
	if err != nil {
		t.Fatalf("start %s: %v", spec.Command(), err)
	}
	return p
}

// Find returns the process with an id.
func Find(t testing.TB, m process.Manager, id process.ID) process.Process {
	t.Helper()
	p, err := m.Get(within(t), process.Selector{ID: id})
	if err != nil {
		t.Fatalf("get %s: %v", id, err)
	}
	return p
}

// Info returns what is known of a process now.
func Info(t testing.TB, p process.Process) process.Info {
	t.Helper()
	in, err := p.Info(within(t))
	if err != nil {
		t.Fatalf("info of %s: %v", p.ID(), err)
	}
	return in
}

// Write writes to stdin, or to the terminal.
func Write(t testing.TB, p process.Process, text string) {
	t.Helper()
	write(t, p, process.Input{Data: []byte(text)})
}

// WriteLast is Write for the last of the input.
func WriteLast(t testing.TB, p process.Process, text string) {
	t.Helper()
	write(t, p, process.Input{Data: []byte(text), EOF: true})
}

func write(t testing.TB, p process.Process, in process.Input) {
	t.Helper()
	if _, err := p.Write(within(t), in); err != nil {
		t.Fatalf("write to %s: %v", p.ID(), err)
	}
}

// Step writes a line to a process each time its output, of all streams together, has come to
// one of the ends. So a program that reads a line before it continues writes in an order that
// nothing else decides.
func Step(t testing.TB, p process.Process, ends ...int64) {
	t.Helper()
	for _, end := range ends {
		Eventually(t, fmt.Sprintf("%d bytes of output have come", end), func() bool {
			var sum int64
			for _, s := range Info(t, p).Streams {
				sum += s.End
			}
			return sum >= end
		})
		Write(t, p, "go on\n")
	}
}

// Wait waits for a condition.
func Wait(t testing.TB, p process.Process, u process.Until) process.WaitResult {
	t.Helper()
	res, err := p.Wait(within(t), u)
	if err != nil {
		t.Fatalf("wait for %+v of %s: %v", u, p.ID(), err)
	}
	return res
}

// WantExit waits for the exit, and fails unless the process exits by itself with
// this code.
func WantExit(t testing.TB, p process.Process, code int) {
	t.Helper()
	if e := Wait(t, p, process.Until{}).Exit; e == nil || e.Code != code || e.Cause != process.CauseExited {
		t.Errorf("%s ended with %+v; want code %d", p.ID(), e, code)
	}
}

// Kill kills the tree.
func Kill(t testing.TB, p process.Process) {
	t.Helper()
	if _, err := p.Kill(within(t)); err != nil {
		t.Fatalf("kill %s: %v", p.ID(), err)
	}
}

// Remove removes a process.
func Remove(t testing.TB, p process.Process) {
	t.Helper()
	if err := p.Remove(within(t)); err != nil {
		t.Fatalf("remove %s: %v", p.ID(), err)
	}
}

// Read opens a reader, which is closed at the end of the test at the latest.
func Read(t testing.TB, p process.Process, opts process.ReadOptions) process.Reader {
	t.Helper()
	r, err := p.Read(t.Context(), opts)
	if err != nil {
		t.Fatalf("read %s: %v", p.ID(), err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// Output reads one stream of a process to its end, however long after the exit.
func Output(t testing.TB, p process.Process, s process.Stream) string {
	t.Helper()
	r, err := p.Read(t.Context(), process.ReadOptions{Streams: []process.Stream{s}, Drain: -1})
	if err != nil {
		t.Fatalf("read %s of %s: %v", s, p.ID(), err)
	}
	defer r.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var b bytes.Buffer
	for {
		ev, ok, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return b.String()
		case err != nil:
			t.Fatalf("read %s of %s: %v", s, p.ID(), err)
		case !ok:
			select {
			case <-r.Ready():
			case <-ctx.Done():
				in, err := p.Info(t.Context())
				t.Fatalf("%s of %s does not end after %d bytes: %+v, %v", s, p.ID(), b.Len(), in, err)
			}
			continue
		}
		if ev.Kind == process.EventGap {
			t.Fatalf("a gap of %s of %s: %+v", s, p.ID(), ev.Gap)
		}
		b.Write(ev.Data)
	}
}

// WantOutput fails unless a stream has this text from its beginning to its end.
func WantOutput(t testing.TB, p process.Process, s process.Stream, want string) {
	t.Helper()
	if got := Output(t, p, s); got != want {
		t.Errorf("%s of %s is %.200q (%d bytes); want %.200q", s, p.ID(), got, len(got), want)
	}
}
