//go:build unix

package processtest

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"github.com/tend-run/tend/process"
)

// control is about signals and kills, and whom they reach.
var control = []test{
	{"kill ends the whole tree", func(t *T) {
		p := t.sh(`(trap '' TERM; echo $$; sleep 100000) & sh -c 'sleep 100000 & sleep 100000' & echo ready; wait`)
		l := t.read(p, toTheEnd)
		l.until("both lines", func() bool { return strings.Count(l.stdout(), "\n") == 2 })
		t.kill(p)
		l.rest() // ends when nobody holds a stream any more
	}},
	{"kill reaches descendants in sessions of their own", func(t *T) {
		p := t.start(t.play("session", "role=session", "sh", "-c", "trap '' HUP TERM; echo inner; sleep 100000"))
		l := t.read(p, toTheEnd)
		l.until("the inner process", func() bool { return l.stdout() == "inner\n" })
		t.kill(p)
		l.rest()
	}},
	{"kill reaches what is left of a tree whose leader is gone", func(t *T) {
		p := t.sh("sleep 100000 & echo $!; exit 0")
		l := t.read(p, toTheEnd)
		l.exits()
		t.kill(p)
		if tr := l.rest(); tr.exit.Code != 0 || tr.exit.Cause != process.CauseExited {
			t.Errorf("the exit is told as %+v after the kill", tr.exit)
		}
		_, err := p.Kill(t.ctx)
		t.wantError("a second kill", err, process.ErrExited)
	}},
	{"a descendant that left the session and lost its parent is known", func(t *T) {
		spec := t.play("session", "-", "sh", "-c", "echo orphan $$; exec sleep 100000")
		p := t.start(spec)
		l := t.read(p, toTheEnd)
		l.until("the orphan's word and the exit", func() bool { return strings.HasSuffix(l.stdout(), "\n") && l.exit != nil })
		if t.suite.lacks(Orphans) {
			if t.info(p).TreeGone {
				t.Error("the tree is said to be gone while a stream is held")
			}
			orphan, err := strconv.Atoi(strings.Fields(l.stdout())[1])
			if err != nil || syscall.Kill(orphan, syscall.SIGKILL) != nil {
				t.Errorf("the orphan %q could not be ended", l.stdout())
			}
			l.rest()
			return
		}
		if k, err := p.Kill(t.ctx); err != nil || !k.Verified || len(k.Survivors) != 0 {
			t.Fatalf("kill: %+v, %v; want it verified", k, err)
		}
		l.rest()
	}},
	{"there is nobody to kill or signal when all have exited", func(t *T) {
		p := t.sh("exit 3")
		t.all(p)
		t.eventually("the tree is gone", func() bool { return t.info(p).TreeGone })
		_, err := p.Kill(t.ctx)
		t.wantError("kill", err, process.ErrExited)
		for _, scope := range []process.Scope{process.ScopeTree, process.ScopeLeader, process.ScopeGroup} {
			t.wantError("signal", p.Signal(t.ctx, int(syscall.SIGTERM), scope), process.ErrExited)
		}
		if e := t.info(p).Exit; e.Code != 3 || e.Cause != process.CauseExited {
			t.Errorf("the exit is told as %+v after that", e)
		}
	}},
	{"a signal to the leader reaches nobody else", func(t *T) {
		p, l := t.answerers("")
		t.signal(p, syscall.SIGUSR1, process.ScopeLeader)
		l.until("the leader's answer", func() bool { return strings.Contains(l.stdout(), "leader got it\n") })
		// The child answers the next signal only.
		t.signal(p, syscall.SIGUSR1, process.ScopeGroup)
		l.until("the child's answer and another of the leader", func() bool {
			return strings.Contains(l.stdout(), "child got it\n") && strings.Count(l.stdout(), "leader got it\n") >= 2
		})
		if strings.Count(l.stdout(), "child got it\n") != 1 || strings.Count(l.stdout(), "leader got it\n") != 2 {
			t.Errorf("got %q; want two answers of the leader and one of the child", l.stdout())
		}
	}},
	{"a signal to the group reaches the group", answeredBy("", process.ScopeGroup)},
	{"a signal to the tree reaches sessions within it", answeredBy("session", process.ScopeTree)},
	{"a signal to the group reaches the group that setsid has made in place", func(t *T) {
		p := t.start(process.Spec{Argv: []string{"setsid", "sh", "-c", "sleep 100000 & echo on; wait"}})
		l := t.read(p, toTheEnd)
		l.until("it runs", func() bool { return l.stdout() == "on\n" })
		t.signal(p, syscall.SIGTERM, process.ScopeGroup)
		if tr := l.rest(); tr.exit.Signal != int(syscall.SIGTERM) {
			t.Errorf("the exit is told as %+v", tr.exit)
		}
		t.eventually("the tree is gone", func() bool { return t.info(p).TreeGone })
	}},
	{"a process signals its own group and nobody else", func(t *T) {
		other := t.shIn("read x; exit 4")
		for line, sig := range map[string]int{"sleep 100000 & kill 0; wait": int(syscall.SIGTERM),
			"sleep 100000 & kill -KILL -$(cut -d' ' -f5 /proc/$$/stat); wait": int(syscall.SIGKILL)} {
			p := t.sh(line)
			if e := t.exit(p); e.Signal != sig {
				t.Errorf("%s: %+v", line, e)
			}
			t.eventually("the tree is gone", func() bool { return t.info(p).TreeGone })
		}
		t.write(other, "\n")
		if e := t.exit(other); e.Code != 4 {
			t.Errorf("another process ended with %+v", e)
		}
	}},
	{"a stopped process is told as stopped and goes on", func(t *T) {
		p := t.shIn("read x; echo $x")
		t.signal(p, syscall.SIGSTOP, process.ScopeLeader)
		t.eventually("the state is stopped", func() bool { return t.info(p).State == process.Stopped })
		t.write(p, "hello\n")
		t.signal(p, syscall.SIGCONT, process.ScopeLeader)
		if tr := t.all(p); tr.stdout() != "hello\n" || tr.exit.Code != 0 {
			t.Errorf("got %q, %+v", tr.stdout(), tr.exit)
		}
	}},
	{"a signal that is none is refused", func(t *T) {
		p := t.sh("exec sleep 100000")
		for _, sig := range []int{-1, 65, 1 << 20} {
			t.wantInvalid(p.Signal(t.ctx, sig, process.ScopeLeader), "signal")
		}
		t.wantInvalid(p.Signal(t.ctx, 15, process.Scope(9)), "scope")
		if err := p.Signal(t.ctx, 0, process.ScopeLeader); err != nil {
			t.Errorf("signal 0, which only asks whether somebody is there: %v", err)
		}
	}},
	{"killing twenty trees at once ends all of them", func(t *T) {
		done := make(chan error)
		for range 20 {
			p := t.sh("sleep 100000 & sleep 100000 & wait")
			go func() {
				k, err := p.Kill(t.ctx)
				if err == nil && len(k.Survivors) > 0 {
					err = fmt.Errorf("%v survive", k.Survivors)
				}
				done <- err
			}()
		}
		for range 20 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}},
}

// answerers starts a leader and a child that are ready to answer SIGUSR1; with
// "session" the child is in a session of its own, below a program that ignores the
// signal.
func (t *T) answerers(session string) (process.Process, *tail) {
	t.Helper()
	spec := t.play("")
	self := quote(spec.Argv[0])
	child := fmt.Sprintf("%s=answer %s child", roleVariable, self)
	if session != "" {
		child = fmt.Sprintf("%s=session %s role=answer child", roleVariable, self)
	}
	p := t.sh(fmt.Sprintf("%s & %s=answer exec %s leader", child, roleVariable, self))
	l := t.read(p, toTheEnd)
	l.until("both are ready", func() bool { return strings.Count(l.stdout(), "ready") == 2 })
	return p, l
}

// answeredBy is the subtest in which a signal to the scope reaches both.
func answeredBy(session string, scope process.Scope) func(t *T) {
	return func(t *T) {
		p, l := t.answerers(session)
		t.signal(p, syscall.SIGUSR1, scope)
		l.until("both answers", func() bool {
			return strings.Contains(l.stdout(), "leader got it\n") && strings.Contains(l.stdout(), "child got it\n")
		})
	}
}

func (t *T) signal(p process.Process, sig syscall.Signal, scope process.Scope) {
	t.Helper()
	if err := p.Signal(t.ctx, int(sig), scope); err != nil {
		t.Fatalf("signal %d to the %v: %v", sig, scope, err)
	}
}
