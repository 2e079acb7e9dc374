//go:build linux

package crashtest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/lib/backoff"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// A change by a model that may only hide what is wrong waits for a person, and what he has looked at is
// applied: as a whole or not at all, whoever dies meanwhile, and not if one of its files has changed.
func TestAChangeThatWaitsIsApplied(t *testing.T) {
	t.Parallel()
	tool := func(name string, input any) any { return map[string]any{"tool": name, "input": input} }
	type m = map[string]any
	const lib, less = "function f(x) {\n  if (!x) { throw new Error('no x') }\n  return x\n}\n", "function f(x) {\n  return x\n}\n"
	url := model(t,
		m{"name": "mend", "expect": []string{"attempt 1 of 1"}, "reply": []any{
			tool("edit", m{"path": "part.txt", "content": "good\n"}), tool("edit", m{"path": "lib.js", "content": less}), tool("restart", m{}),
		}},
		m{"name": "finish", "repeat": true, "reply": []any{tool("finish", m{"summary": "The part is good again."})}},
	)
	d := serve(t)
	c := d.Connect(t)
	p := newProject(t, "true\n")
	p.write("lib.js", lib)
	p.write(".tend/playbooks/part.yaml", "disabled: true\n")
	p.git("add", "lib.js", ".tend")
	p.git("commit", "-q", "--amend", "-m", "base", "lib.js", ".tend")
	p.spoil()
	stood := proctest.Value(os.Stat(p.dir + "/lib.js"))(t)
	p.up(c,
		", attempts: 1, per_day: 1000, show: ["+filepath.Dir(proctest.Value(os.Executable())(t))+"], llm: {provider: anthropic, model: scripted, base_url: '"+url+"'}")
	e := repaired(t, c)
	whole := func() bool { return p.read("part.txt") == "good\n" && p.read("lib.js") == less }
	seen := proctest.Value(os.Stat(p.dir + "/lib.js"))(t)
	if !seen.ModTime().Equal(stood.ModTime()) {
		t.Error("it was in the project before anybody has looked at it")
	}
	none := func() bool { return p.read("part.txt") == "bad\n" && p.read("lib.js") == lib }
	if e.Status != tend.HealBroken || e.Held == "" || !strings.Contains(e.HeldWhy, "lib.js") || !strings.Contains(string(e.Diff),
		"-  if (!x) { throw") || e.Dirty || !none() {
		t.Fatalf("it is %+v, with %s\n%s", e.Episode, e.Diff, e.Transcript)
	}
	if _, err := c.ApplyHeld(t.Context(), "00000000000000000000"); !errors.Is(err, process.ErrNotFound) {
		t.Errorf("one that nobody has looked at: %v", err)
	}
	p.write("lib.js", lib+"// mine\n")
	_, err := c.ApplyHeld(t.Context(), e.Held)
	if changed, ok := errors.AsType[*tend.ChangedError](err); !ok || !slices.Equal(changed.Paths, []string{"lib.js"}) {
		t.Errorf("one whose file has changed: %v", err)
	}
	p.write("lib.js", lib)
	rounds := deathsOf(d)
	for _, round := range append(rounds[1:], rounds[0]) {
		meanwhile, end := context.WithCancel(t.Context())
		died := make(chan struct{})
		go func() {
			defer close(died)
			for round.die != nil && backoff.Wait(meanwhile, 10*time.Millisecond) {
				if pid := workerOf(meanwhile, c); pid > 0 {
					round.die(pid)
					return
				}
			}
		}()
		id, err := c.ApplyHeld(t.Context(), e.Held)
		if err == nil {
			over(t, c, id)
		}
		end()
		<-died
		if !d.Settle(t.Context()) {
			t.Fatalf("not all roles came back: %v", d.Roles())
		}
		c = d.Connect(t)
		done := repaired(t, c) // the newest is over
		p.untouched()
		if done.Status == tend.HealReady && done.ID != e.ID {
			if got := p.git("log", "-1", "--format=%an|%s"); !whole() || done.Commit == "" || got != "tend healer|The part is good again.\n" {
				t.Fatalf("after the death of %s it is %+v, and the commit %q", round.name, done.Episode, got)
			}
			break
		}
		if round.die == nil || !none() || done.Dirty {
			t.Fatalf("after the death of %s it is %+v", round.name, done.Episode)
		}
	}
	if now := over(t, c, e.ID); now.Held != "" {
		t.Errorf("it is held still: %+v", now.Episode)
	}
	if err := c.DiscardHeld(t.Context(), e.Held); !errors.Is(err, process.ErrNotFound) {
		t.Errorf("what was applied is discarded: %v", err)
	}
}
