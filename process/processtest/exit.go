//go:build unix

package processtest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/tend-run/tend/process"
)

// exits are about how processes end, and how that is told.
var exits = []test{
	{"every exit code from 0 to 255 is told as it is", func(t *T) {
		for first := 0; first < 256; first += 16 {
			var batch []process.Process
			for code := first; code < first+16; code++ {
				batch = append(batch, t.sh("exit "+strconv.Itoa(code)))
			}
			for i, p := range batch {
				e := t.exit(p)
				if e.Code != first+i || e.Signal != 0 || e.Cause != process.CauseExited || e.ShellStatus() != first+i {
					t.Errorf("exit %d is told as %+v", first+i, e)
				}
			}
		}
	}},
	{"200 short processes at once end with the right status and output each", func(t *T) {
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() {
				p, err := t.m.Start(t.ctx, process.Spec{Shell: fmt.Sprintf("echo %d; echo e%d >&2; exit %d", i, i, i%256), Dir: "/"})
				if err != nil {
					t.Errorf("start %d: %v", i, err)
					return
				}
				r, err := p.Read(t.ctx, toTheEnd)
				if err != nil {
					t.Errorf("read %d: %v", i, err)
					return
				}
				defer r.Close()
				l := &tail{t: t, r: r}
				for l.step() {
				}
				if l.exit == nil || l.exit.Code != i%256 || l.exit.Cause != process.CauseExited ||
					l.stdout() != fmt.Sprintf("%d\n", i) || l.stderr() != fmt.Sprintf("e%d\n", i) {
					t.Errorf("process %d ended with %+v, stdout %q, stderr %q", i, l.exit, l.stdout(), l.stderr())
				}
			})
		}
		wg.Wait()
	}},
	{"a signal that the process sends to itself is told with the cause signalled", func(t *T) {
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL, syscall.SIGHUP, syscall.SIGUSR1} {
			e := t.exit(t.sh(fmt.Sprintf("kill -%d $$; sleep 100000", sig)))
			if e.Signal != int(sig) || e.Cause != process.CauseSignalled || e.Code != 0 || e.ShellStatus() != 128+int(sig) {
				t.Errorf("signal %d is told as %+v", sig, e)
			}
		}
	}},
	{"a signal that a caller asked for is told with the cause killed", func(t *T) {
		p := t.sh("echo ready; exec sleep 100000")
		t.stdoutOf(p, 6)
		t.signal(p, syscall.SIGTERM, process.ScopeLeader)
		if e := t.exit(p); e.Signal != int(syscall.SIGTERM) || e.Cause != process.CauseKilled {
			t.Errorf("got %+v; want signal 15, cause killed", e)
		}
	}},
	{"a process that handles the signal ends by its own code", func(t *T) {
		p := t.sh("trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 100000 & wait; done")
		t.stdoutOf(p, 6)
		t.signal(p, syscall.SIGTERM, process.ScopeLeader)
		tr := t.read(p, process.ReadOptions{}).rest()
		if tr.exit.Code != 3 || tr.exit.Signal != 0 || tr.exit.Cause != process.CauseExited || tr.stdout() != "ready\nbye\n" {
			t.Errorf("got %+v and %q; want code 3 by itself, and the last words", tr.exit, tr.stdout())
		}
	}},
	{"kill ends a process with SIGKILL and the cause killed", func(t *T) {
		p := t.sh("trap '' TERM INT HUP; sleep 100000")
		t.kill(p)
		if e := t.exit(p); e.Signal != int(syscall.SIGKILL) || e.Cause != process.CauseKilled {
			t.Errorf("got %+v; want signal 9, cause killed", e)
		}
	}},
	{"kill is told as the cause of a process that a signal did not end before", func(t *T) {
		p := t.sh("trap '' TERM; echo ready; while :; do sleep 100000; done")
		t.stdoutOf(p, 6)
		t.signal(p, syscall.SIGTERM, process.ScopeLeader)
		t.kill(p)
		if e := t.exit(p); e.Signal != int(syscall.SIGKILL) || e.Cause != process.CauseKilled {
			t.Errorf("got %+v; want signal 9, cause killed", e)
		}
	}},
	{"a timeout kills the whole tree and is told as the cause", func(t *T) {
		p := t.start(process.Spec{Shell: "sleep 100000 & echo early; wait", Timeout: 50 * time.Millisecond})
		tr := t.all(p) // ends only when the child has let go of the pipe
		if tr.exit.Signal != int(syscall.SIGKILL) || tr.exit.Cause != process.CauseTimeout || tr.exit.ShellStatus() != 124 {
			t.Errorf("got %+v; want signal 9, cause timeout", tr.exit)
		}
	}},
	{"a timeout of the leader spares its descendants", func(t *T) {
		// On a machine that stands still the time may be over before one is there.
		for timeout := 500 * time.Millisecond; ; timeout *= 2 {
			gate := t.gate()
			p := t.start(process.Spec{
				Shell:   fmt.Sprintf("{ cat %s >/dev/null; echo alive; } & echo there; exec sleep 100000", quote(gate.path)),
				Timeout: timeout, TimeoutScope: process.ScopeLeader,
			})
			l := t.read(p, toTheEnd)
			l.exits()
			if l.stdout() == "" {
				continue
			}
			gate.open(t)
			if tr := l.rest(); tr.exit.Cause != process.CauseTimeout || tr.stdout() != "there\nalive\n" {
				t.Errorf("got %+v and %q; want a timeout, and the descendant's word", tr.exit, tr.stdout())
			}
			return
		}
	}},
	{"a timeout that is not reached changes nothing", func(t *T) {
		if e := t.exit(t.start(process.Spec{Shell: "exit 5", Timeout: time.Hour})); e.Code != 5 || e.Cause != process.CauseExited {
			t.Errorf("got %+v", e)
		}
	}},
	{"the exit is the same for everybody who asks", func(t *T) {
		p := t.sh("exit 9")
		want := *t.exit(p)
		in := t.info(p)
		tr := t.all(p)
		if in.Exit == nil || *in.Exit != want || *tr.exit != want {
			t.Errorf("wait told %+v, info %+v, the reader %+v", want, in.Exit, tr.exit)
		}
		if want.Time.Before(in.Started) || want.Time.IsZero() || in.Started.IsZero() {
			t.Errorf("started at %v, exited at %v", in.Started, want.Time)
		}
		if in.State != process.Exited || in.PID == 0 {
			t.Errorf("info has state %s, pid %d; want exited, and the pid kept", in.State, in.PID)
		}
	}},
	{"a context that ends cancels the call and not the process", func(t *T) {
		ctx, cancel := context.WithCancel(t.ctx)
		p, err := t.m.Start(ctx, process.Spec{Shell: "read x; exit 6", Stdin: process.StdinPipe, Dir: "/"})
		t.check(err)
		r, err := p.Read(ctx, process.ReadOptions{})
		t.check(err)
		defer r.Close()
		failed := later(func() error {
			_, err := p.Wait(ctx, process.Until{})
			return err
		})
		cancel()
		select {
		case err := <-failed:
			t.wantError("the wait under way", err, context.Canceled)
		case <-t.ctx.Done():
			t.Fatal("the wait did not end with its context")
		}
		if in := t.info(p); in.State != process.Running {
			t.Errorf("the process is %s", in.State)
		}
		t.write(p, "\n")
		t.wantCode(p, 6)
		short, cancelShort := context.WithTimeout(t.ctx, time.Millisecond)
		defer cancelShort()
		if _, err := t.sh("sleep 100000").Wait(short, process.Until{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a wait past its deadline returned %v", err)
		}
	}},
}
