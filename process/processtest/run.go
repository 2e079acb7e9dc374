//go:build unix

package processtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/process"
)

// deadline of one subtest. Only a broken implementation reaches it.
const deadline = time.Minute

// Ability is something that an implementation may lack by its nature.
type Ability uint8

const (
	// Orphans: a descendant that left the session and lost its parent is
	// still known to belong to the tree, as a cgroup tells.
	Orphans Ability = iota + 1
)

// Option changes what Run asks for.
type Option func(*suite)

// Without tells that the implementation lacks abilities. What it must do in
// their place is tested instead.
func Without(abilities ...Ability) Option {
	return func(s *suite) { s.without = append(s.without, abilities...) }
}

type suite struct {
	open    func(t *testing.T) process.Manager
	without []Ability
}

func (s *suite) lacks(a Ability) bool { return slices.Contains(s.without, a) }

// Run tests the manager that open returns. open is called once for each
// subtest and may return the same manager each time; what it opens it closes
// with t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) process.Manager, opts ...Option) {
	s := &suite{open: open}
	for _, o := range opts {
		o(s)
	}
	for _, group := range []struct {
		name  string
		tests []test
	}{
		{"facts", facts},
		{"output", output},
		{"exit", exits},
		{"start", starts},
		{"environment", environment},
		{"input", inputs},
		{"writers", writers},
		{"control", control},
		{"terminal", terminals},
		{"identity", identities},
		{"watch", watches},
		{"retention", retentions},
		{"waiting", waiting},
	} {
		t.Run(group.name, func(t *testing.T) {
			t.Parallel()
			for _, tt := range group.tests {
				t.Run(tt.name, func(t *testing.T) {
					t.Parallel()
					ctx, cancel := context.WithTimeout(t.Context(), deadline)
					t.Cleanup(cancel)
					tt.run(&T{T: t, suite: s, m: open(t), ctx: ctx})
				})
			}
		})
	}
}

// test is one subtest; its name is a sentence about any manager.
type test struct {
	name string
	run  func(t *T)
}

// T is one running subtest.
type T struct {
	*testing.T
	suite *suite
	m     process.Manager
	ctx   context.Context // ends at the deadline
}

// start starts a process that is killed and removed when the subtest ends.
func (t *T) start(spec process.Spec) process.Process {
	t.Helper()
	if spec.Dir == "" {
		spec.Dir = "/"
	}
	p, err := t.m.Start(t.ctx, spec)
	if err != nil {
		t.Fatalf("start %s: %v", spec.Command(), err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), deadline)
		defer cancel()
		if _, err := p.Kill(ctx); err != nil && !errors.Is(err, process.ErrExited) && !errors.Is(err, process.ErrNotFound) {
			t.Errorf("kill %s at the end: %v", p.ID(), err)
		}
	})
	return p
}

// sh starts a shell line.
func (t *T) sh(line string) process.Process {
	t.Helper()
	return t.start(process.Spec{Shell: line})
}

// cat starts cat with a stdin pipe.
func (t *T) cat() process.Process {
	t.Helper()
	return t.start(process.Spec{Argv: []string{"cat"}, Stdin: process.StdinPipe})
}

// shIn starts a shell line with a stdin pipe.
func (t *T) shIn(line string) process.Process {
	t.Helper()
	return t.start(process.Spec{Shell: line, Stdin: process.StdinPipe})
}

// play is the test binary in a role. With the race detector in it, a program would
// sleep for a second before its end, unless GORACE says otherwise.
func (t *T) play(role string, args ...string) process.Spec {
	t.Helper()
	self, err := os.Executable()
	t.check(err)
	return process.Spec{Argv: append([]string{self}, args...), Env: map[string]string{roleVariable: role, "GORACE": "atexit_sleep_ms=0"}}
}

// info returns what is known now.
func (t *T) info(p process.Process) process.Info {
	t.Helper()
	in, err := p.Info(t.ctx)
	if err != nil {
		t.Fatalf("info: %v", err)
	}
	return in
}

// exit waits for the exit.
func (t *T) exit(p process.Process) *process.Exit {
	t.Helper()
	res, err := p.Wait(t.ctx, process.Until{})
	if err != nil {
		t.Fatalf("wait for the exit: %v", err)
	}
	if res.Exit == nil || !res.Met {
		t.Fatalf("wait for the exit returned %+v; want an exit and Met", res)
	}
	return res.Exit
}

// wantCode waits for the exit, and fails unless it is by this code.
func (t *T) wantCode(p process.Process, code int) {
	t.Helper()
	if e := t.exit(p); e.Code != code || e.Signal != 0 {
		t.Errorf("the process ended with %+v; want code %d", e, code)
	}
}

// kill kills the tree, of which nobody may be left.
func (t *T) kill(p process.Process) {
	t.Helper()
	if k, err := p.Kill(t.ctx); err != nil || len(k.Survivors) != 0 {
		t.Fatalf("kill: %+v, %v", k, err)
	}
}

// check ends the subtest at an error of what must succeed.
func (t *T) check(err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// later calls f in the background.
func later(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

// eventually asks until ok, for things that no event tells.
func (t *T) eventually(what string, ok func() bool) {
	t.Helper()
	for !ok() {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-t.ctx.Done():
			t.Fatalf("%s: not before the deadline", what)
		}
	}
}

// unique returns a word that no other subtest uses.
func unique(prefix string) string { return prefix + "-" + string(process.NewID()) }

// wantInvalid fails unless the error is an *InvalidError about field.
func (t *T) wantInvalid(err error, field string) {
	t.Helper()
	var invalid *process.InvalidError
	if !errors.As(err, &invalid) {
		t.Errorf("got error %v; want an *InvalidError about %s", err, field)
	} else if invalid.Field != field {
		t.Errorf("got an *InvalidError about %q (%v); want it about %q", invalid.Field, err, field)
	}
}

// wantError fails unless the error is target.
func (t *T) wantError(what string, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("%s: got error %v; want %q", what, err, target)
	}
}

// quote puts a word into a shell line.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// abbreviate makes much data fit for a message.
func abbreviate(b []byte) string {
	if len(b) > 200 {
		return fmt.Sprintf("%q… (%d bytes)", b[:200], len(b))
	}
	return fmt.Sprintf("%q", b)
}
