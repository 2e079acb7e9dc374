package run_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tend-run/tend/internal/service/supervisor"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// notes is a file that services and hooks append lines to.
type notes struct {
	t    *testing.T
	path string
}

func newNotes(t *testing.T) *notes { return &notes{t, filepath.Join(t.TempDir(), "notes")} }

func (n *notes) lines() []string {
	b, err := os.ReadFile(n.path)
	if err != nil && !os.IsNotExist(err) {
		n.t.Fatal(err)
	}
	return strings.Fields(string(b))
}

func (n *notes) want(want string) {
	n.t.Helper()
	var got string
	proctest.Eventually(n.t, want, func() bool {
		got = strings.Join(n.lines(), " ")
		return len(strings.Fields(got)) >= len(strings.Fields(want))
	})
	if got != want {
		n.t.Errorf("got %s; want %s", got, want)
	}
}

func TestHooksRunAroundAServiceWhereAndAsItDoes(t *testing.T) {
	m, n := testkeeper.New(t), newNotes(t)
	l := live(t, m, t.TempDir())
	l.declare(fmt.Sprintf(`
  x:
    command: 'echo run >> $NOTES; echo up; exec sleep 1000'
    env: {NOTES: %s}
    health: {log: up}
    hooks:
      pre_start: 'echo pre_start:$PWD >> $NOTES'
      post_start: [sh, -c, 'echo post_start >> $NOTES; echo said']
      pre_stop: {command: 'echo pre_stop >> $NOTES', timeout: 20s}
      post_stop: 'echo post_stop >> $NOTES; sleep 1000 &'
`, n.path))
	l.up()
	first := l.ready("x")
	n.want("pre_start:/ run post_start")
	var hooks []process.Info
	proctest.Eventually(t, "the hook is listed", func() bool { // it may write before its start is answered
		hooks = proctest.Value(m.List(t.Context(), process.Filter{Labels: map[string]string{process.LabelHook: "post_start"}}))(t)
		return len(hooks) > 0
	})
	if want := first.ID + "-post-start"; len(hooks) != 1 || hooks[0].Spec.Name != "x.post_start" || hooks[0].ID != want {
		t.Errorf("the hooks are %+v; want one with the ID %s", hooks, want)
	}
	proctest.Must(t, l.Restart(t.Context(), "x"))
	l.until("x", "ready again", func(s supervisor.State) bool { return s.Run == 2 && s.Ready })
	n.want("pre_start:/ run post_start pre_stop post_stop pre_start:/ run post_start")
	l.down()
	l.phase("x", supervisor.Idle)
	n.want("pre_start:/ run post_start pre_stop post_stop pre_start:/ run post_start pre_stop post_stop")
	nothingLives(t, m) // also not what a hook has left behind
}

func TestAHookThatFailsBeforeAStartCountsAsOne(t *testing.T) {
	m := testkeeper.New(t)
	l := live(t, m, t.TempDir())
	restarts := int64(0)
	for hook, why := range map[string]string{
		"'echo no database >&2; exit 3'":             "its hook pre_start has failed: exit status 3: no database",
		"[/no/such/program]":                         "is not found",
		"{command: exec sleep 1000, timeout: 300ms}": "it took longer than 300ms",
		"'kill -9 $$'":                               "signal: killed",
	} {
		l.declare("  x: {command: echo never, restart: {max: 1, delay: 1ms, retry: 0}, hooks: {pre_start: " + hook + "}}\n")
		l.up()
		s := l.phase("x", supervisor.Failed)
		if restarts++; !strings.Contains(s.State.Why, why) || !strings.Contains(s.State.Why, "pre_start") || s.State.Total != restarts {
			t.Errorf("%s: it says %q after %d restarts; want %d", hook, s.State.Why, s.State.Total, restarts)
		}
		l.down()
		l.phase("x", supervisor.Idle)
	}
	for _, in := range proctest.Value(m.List(t.Context(), process.Filter{}))(t) {
		if in.Spec.Name == "x" {
			t.Errorf("the service was started: %+v", in)
		}
	}
	nothingLives(t, m)
}

func TestAStopEndsAHookAndNoHookPreventsIt(t *testing.T) {
	m := testkeeper.New(t)
	l := live(t, m, t.TempDir())
	for what, hooks := range map[string]string{
		"before the start": "pre_start: {command: exec sleep 1000, timeout: 1h}",
		"after the start":  "post_start: {command: exec sleep 1000, timeout: 1h}",
		"before the stop":  "pre_stop: {command: \"trap '' TERM INT; sleep 1000\", timeout: 200ms}",
		"after the stop":   "post_stop: {command: exec sleep 1000, timeout: 200ms}",
		"all of them fail": "pre_stop: [/no/such], post_stop: 'exit 1', post_start: 'exit 2'",
	} {
		l.declare("  x: {command: exec sleep 1000, hooks: {" + hooks + "}}\n")
		l.up()
		l.until("x", "under way", func(s supervisor.State) bool {
			return s.Ready || s.Phase == supervisor.Starting && s.Hook == supervisor.PreStart
		})
		l.down()
		l.phase("x", supervisor.Idle)
		proctest.Eventually(t, "nothing lives of what hangs "+what, func() bool {
			return len(proctest.Value(m.List(t.Context(), process.Filter{Live: true}))(t)) == 0
		})
	}
	l.declare("  x: {command: exec sleep 1000}\n")
}

// A hook is not declared any more while it runs. The service continues, and its stop ends both.
func TestAStopEndsAHookOfADeclarationBefore(t *testing.T) {
	m := testkeeper.New(t)
	l := live(t, m, t.TempDir())
	l.declare("  x: {command: exec sleep 1000, hooks: {post_start: {command: exec sleep 1000, timeout: 1h}}}\n")
	l.up()
	s := l.ready("x")
	alive := func() int { return len(proctest.Value(m.List(t.Context(), process.Filter{Live: true}))(t)) }
	proctest.Eventually(t, "the hook runs", func() bool { return alive() == 2 })
	l.declare("  x: {command: exec sleep 1000}\n")
	if now := l.ready("x"); now.State.Run != s.State.Run {
		t.Errorf("it was restarted: %+v", now.State)
	}
	l.down()
	l.phase("x", supervisor.Idle)
	proctest.Eventually(t, "nothing lives", func() bool { return alive() == 0 })
	nothingLives(t, m)
}

// The supervisor dies again and again while hooks run. Each of them is started once for a
// run, and the run that was asked for comes once.
func TestEachHookStartsOnceHoweverOftenTheSupervisorDies(t *testing.T) {
	m, dir, n := testkeeper.New(t), t.TempDir(), newNotes(t)
	file := fmt.Sprintf(`
  x:
    command: 'exec sleep 1000'
    env: {NOTES: %s}
    hooks:
      pre_start: 'echo pre_start >> $NOTES; sleep 0.2'
      post_start: 'echo post_start >> $NOTES; sleep 0.2'
      pre_stop: 'echo pre_stop >> $NOTES; sleep 0.2'
      post_stop: 'echo post_stop >> $NOTES; sleep 0.2'
`, n.path)
	l := live(t, m, dir)
	l.declare(file)
	// After each line, whoever follows its end dies.
	die := func(line string, count int) {
		t.Helper()
		proctest.Eventually(t, line, func() bool { return strings.Count(strings.Join(n.lines(), " "), line) >= count })
		l.stop()
		l = live(t, m, dir)
	}
	for run := range 3 {
		if run == 0 {
			l.up()
		} else {
			proctest.Must(t, l.Restart(t.Context(), "x"))
			die("pre_stop", run)
			die("post_stop", run)
		}
		die("pre_start", run+1)
		die("post_start", run+1)
		l.until("x", "ready", func(s supervisor.State) bool { return s.Ready && s.Run == int64(run+1) && s.Greeted })
	}
	n.want("pre_start post_start" + strings.Repeat(" pre_stop post_stop pre_start post_start", 2))
	if s := l.ready("x"); s.State.Total != 0 {
		t.Errorf("it was restarted: %+v", s.State)
	}
	l.end(m, "x")
}

// replaced is a manager whose keeper is just being replaced when what is left of a hook is to
// be killed, and when a hook is looked for: so many times each.
type replaced struct {
	process.Manager
	kills, gets atomic.Int64
}

func (m *replaced) Get(ctx context.Context, s process.Selector) (process.Process, error) {
	if strings.HasSuffix(string(s.ID), "-post-start") && m.gets.Add(-1) >= 0 {
		return nil, process.ErrUnavailable
	}
	p, err := m.Manager.Get(ctx, s)
	return replacedProcess{p, m}, err
}

type replacedProcess struct {
	process.Process
	m *replaced
}

func (p replacedProcess) Kill(ctx context.Context) (process.KillResult, error) {
	if in, err := p.Info(ctx); err == nil && in.Spec.Labels[process.LabelHook] != "" && p.m.kills.Add(-1) >= 0 {
		return process.KillResult{}, process.ErrUnavailable
	}
	return p.Process.Kill(ctx)
}

func TestHooksAreKilledThoughAKeeperDiesMeanwhile(t *testing.T) {
	for what, c := range map[string]struct {
		hook        string
		kills, gets int64
	}{
		"what a hook has left":            {"sleep 1000 &", 1, 0},
		"a hook, with its service":        {"exec sleep 1000", 1, 0},
		"a hook that cannot be found yet": {"exec sleep 1000", 0, 1},
	} {
		t.Run(what, func(t *testing.T) {
			m := &replaced{Manager: testkeeper.New(t)}
			m.kills.Store(c.kills)
			l := live(t, m, t.TempDir())
			l.declare("  x: {command: exec sleep 1000, hooks: {post_start: {command: '" + c.hook + "', timeout: 1h}}}\n")
			l.up()
			st := l.ready("x")
			hook := process.Selector{ID: st.ID + "-post-start"}
			proctest.Eventually(t, "the hook is there", func() bool { _, err := m.Manager.Get(t.Context(), hook); return err == nil })
			if c.hook == "exec sleep 1000" {
				m.gets.Store(c.gets)
				l.down()
			}
			proctest.Eventually(t, "nothing is left of the hook", func() bool {
				in, err := proctest.Value(m.Manager.Get(t.Context(), hook))(t).Info(t.Context())
				return err == nil && in.TreeGone
			})
			if m.kills.Load() > 0 || m.gets.Load() > 0 {
				t.Error("the keeper was not asked while it was away")
			}
		})
	}
}
