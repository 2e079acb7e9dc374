//go:build unix

package processtest

import (
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/tend-run/tend/process"
)

// block is the unit in which an implementation may free output: it keeps at
// most this many bytes more than it was told to free.
const block = 4096

// retentions are about output and processes that are kept, and for how long.
var retentions = []test{
	{"the oldest output is dropped at the limit, and readers behind it are told the gap", func(t *T) {
		const size, limit = 8<<20 + 1, 1 << 20
		spec := t.play("pattern", "12", strconv.Itoa(size))
		spec.Retention.Limit = limit
		p := t.start(spec)
		tr := t.all(p) // may meet gaps: the suite checks that offsets join
		late := t.read(p, toTheEnd)
		rest := late.rest()
		in := t.info(p)
		for _, s := range in.Streams {
			if s.End != size || s.End-s.Base > limit || s.Base == 0 {
				t.Errorf("%s is told as %+v; want %d bytes, of which at most %d are kept", s.Stream, s, size, limit)
			}
			gap := process.Gap{Stream: s.Stream, From: 0, To: s.Base}
			if gaps := rest.gaps(s.Stream); len(gaps) == 0 || gaps[0] != gap {
				t.Errorf("a late reader of %s was not told the gap %+v: %+v", s.Stream, gap, rest.events)
			}
			if got := rest.out[s.Stream]; int64(len(got)) != s.End-s.Base || checkPattern(got, s.Base) >= 0 {
				t.Errorf("a late reader got %d bytes of %s; want the %d from %d on, unchanged", len(got), s.Stream, s.End-s.Base, s.Base)
			}
		}
		for _, s := range []process.Stream{process.Stdout, process.Stderr} {
			told := int64(len(tr.out[s]))
			for _, g := range tr.gaps(s) {
				told += g.To - g.From
			}
			if told != size {
				t.Errorf("the bytes and gaps of %s make %d; want %d", s, told, size)
			}
		}
	}},
	{"a reader that starts in freed output is told the gap from there", func(t *T) {
		p := t.start(t.play("pattern", "1", "100000"))
		t.all(p)
		t.check(p.Trim(t.ctx, process.Stdout, 50000))
		si := t.stream(p, process.Stdout)
		if si.Base > 50000 || si.Base <= 50000-block || si.End != 100000 {
			t.Fatalf("after a trim before 50000 stdout is %+v", si)
		}
		for _, from := range []int64{0, 1, si.Base - 1, si.Base, si.Base + 1, 100000} {
			tr := t.read(p, process.ReadOptions{Drain: -1, From: [4]int64{process.Stdout: from}}).rest()
			gaps := tr.gaps(process.Stdout)
			var want []process.Gap
			if from < si.Base {
				want = []process.Gap{{Stream: process.Stdout, From: from, To: si.Base}}
			}
			start := max(from, si.Base)
			if got := tr.out[process.Stdout]; !slices.Equal(gaps, want) || int64(len(got)) != 100000-start || checkPattern(got, start) >= 0 {
				t.Errorf("from %d came %d bytes and the gaps %v; want %d and %v", from, len(got), gaps, 100000-start, want)
			}
		}
	}},
	{"a trim past the end is refused", func(t *T) {
		p := t.shIn("printf 0123456789; read x")
		t.stdoutOf(p, 10)
		for _, moment := range []string{"live", "finished"} {
			t.wantError(moment, p.Trim(t.ctx, process.Stdout, 11), process.ErrOffset)
			t.wantInvalid(p.Trim(t.ctx, process.Stdin, 0), "stream")
			if moment == "live" {
				t.closeInput(p)
				t.all(p)
			}
		}
	}},
	{"policy block holds the process at the limit until output is trimmed", func(t *T) {
		const size, limit = 1<<20 + 5, 64 << 10
		spec := t.play("pattern", "1", strconv.Itoa(size))
		spec.Retention = process.Retention{Limit: limit, Policy: process.Block}
		p := t.start(spec)
		t.eventually("the stream is full", func() bool {
			in := t.info(p)
			si, _ := in.Stream(process.Stdout)
			if si.End > limit || in.State != process.Running {
				t.Fatalf("the process is %s with %+v; want it held at %d", in.State, si, limit)
			}
			return si.End == limit
		})
		l := t.read(p, toTheEnd)
		for {
			ev, more := l.next()
			if !more {
				break
			}
			if ev.Kind == process.EventOutput {
				t.check(p.Trim(t.ctx, process.Stdout, l.pos[process.Stdout]))
			}
		}
		if got := l.out[process.Stdout]; len(got) != size || checkPattern(got, 0) >= 0 || count(&l.transcript, process.EventGap) != 0 {
			t.Errorf("got %d bytes and %d gaps; want %d and none", len(got), count(&l.transcript, process.EventGap), size)
		}
		if l.exit == nil || l.exit.Code != 0 {
			t.Errorf("the process ended with %v", l.exit)
		}
	}},
	{"a process held at its limit can be killed", func(t *T) {
		spec := t.play("pattern", "1", strconv.Itoa(1<<20))
		spec.Retention = process.Retention{Limit: 64 << 10, Policy: process.Block}
		p := t.start(spec)
		t.eventually("the stream is full", func() bool { return t.stream(p, process.Stdout).End == 64<<10 })
		t.kill(p)
		if e := t.exit(p); e.Cause != process.CauseKilled {
			t.Errorf("the process ended with %+v", e)
		}
		tr := t.all(p) // what the pipe held comes without a trim: nobody is left to be held back
		if got := tr.out[process.Stdout]; len(got) < 64<<10 || checkPattern(got, 0) >= 0 {
			t.Errorf("%d bytes can be read; want all that it wrote", len(got))
		}
		t.remove(p)
	}},
	{"a running process is not removed", func(t *T) {
		p := t.shIn("read x")
		t.wantError("remove", p.Remove(t.ctx), process.ErrRunning)
		if in := t.info(p); in.State != process.Running {
			t.Errorf("the process is %s after it", in.State)
		}
	}},
	{"a removed process is not found any more and its id is free", func(t *T) {
		spec := process.Spec{ID: process.ID(unique("removed")), Name: unique("name"), Tag: unique("tag"), Shell: "echo x; exit 1", Dir: "/"}
		p := t.start(spec)
		pid := t.info(p).PID
		open := t.read(p, toTheEnd)
		open.next()
		t.remove(p)
		_, err := p.Info(t.ctx)
		t.wantError("info", err, process.ErrNotFound)
		_, err = p.Read(t.ctx, process.ReadOptions{})
		t.wantError("read", err, process.ErrNotFound)
		t.wantError("a second remove", p.Remove(t.ctx), process.ErrNotFound)
		for _, sel := range []process.Selector{{ID: spec.ID}, {Name: spec.Name}, {Tag: spec.Tag}, {Any: string(spec.ID)}} {
			_, err := t.m.Get(t.ctx, sel)
			t.wantError("get", err, process.ErrNotFound)
		}
		all, err := t.m.List(t.ctx, process.Filter{Tag: spec.Tag})
		if err != nil || len(all) != 0 {
			t.Errorf("list: %v, %v; want none", all, err)
		}
		open.rest() // a reader that was open ends
		again := t.start(spec)
		if now := t.info(again); now.PID == pid || now.PID == 0 {
			t.Errorf("the id was started again with pid %d; the first was %d", now.PID, pid)
		}
		t.wantStdout(t.all(again), "x\n")
	}},
	{"a process is pinned and unpinned, from the start, while it runs and afterwards", func(t *T) {
		p := t.start(process.Spec{Shell: "read x", Stdin: process.StdinPipe, Retention: process.Retention{Pin: true}, Dir: "/"})
		pin := func(moment string, pinned bool) {
			if err := p.Pin(t.ctx, pinned); err != nil {
				t.Errorf("%s: %v", moment, err)
			}
			if in := t.info(p); in.Pinned != pinned {
				t.Errorf("%s: pinned is %v", moment, in.Pinned)
			}
		}
		if !t.info(p).Pinned {
			t.Error("it does not start pinned")
		}
		pin("unpin", false)
		pin("unpin again", false)
		pin("pin", true)
		if in := t.info(p); !in.Spec.Retention.Pin {
			t.Error("the spec has changed")
		}
		t.write(p, "\n")
		t.exit(p)
		pin("unpin after the exit", false)
		pin("pin after the exit", true)
		t.remove(p) // is asked for, and done
		t.wantError("pin of a removed one", p.Pin(t.ctx, true), process.ErrNotFound)
	}},
	{"the time of a finished process is over at the next access, whatever that is", func(t *T) {
		const ttl = 200 * time.Millisecond
		for name, access := range map[string]func(p process.Process, spec *process.Spec) error{
			"get by id":   func(_ process.Process, s *process.Spec) error { return t.get(process.Selector{ID: s.ID}) },
			"get by name": func(_ process.Process, s *process.Spec) error { return t.get(process.Selector{Name: s.Name}) },
			"get by tag":  func(_ process.Process, s *process.Spec) error { return t.get(process.Selector{Tag: s.Tag}) },
			"get by any":  func(_ process.Process, s *process.Spec) error { return t.get(process.Selector{Any: s.Name}) },
			"get by prefix": func(_ process.Process, s *process.Spec) error {
				return t.get(process.Selector{Any: string(s.ID[:len(s.ID)-1])})
			},
			"list": func(_ process.Process, s *process.Spec) error {
				all, err := t.m.List(t.ctx, process.Filter{Tag: s.Tag})
				if err == nil && len(all) == 0 {
					err = process.ErrNotFound
				}
				return err
			},
			"info": func(p process.Process, _ *process.Spec) error {
				_, err := p.Info(t.ctx)
				return err
			},
			"read": func(p process.Process, _ *process.Spec) error {
				r, err := p.Read(t.ctx, process.ReadOptions{NoFollow: true})
				if err == nil {
					_, _, err = r.Next() // a reader over the network learns it here
					r.Close()
				}
				return err
			},
			"wait": func(p process.Process, _ *process.Spec) error {
				_, err := p.Wait(t.ctx, process.Until{EOF: true})
				return err
			},
			"pin":  func(p process.Process, _ *process.Spec) error { return p.Pin(t.ctx, false) },
			"trim": func(p process.Process, _ *process.Spec) error { return p.Trim(t.ctx, process.Stdout, 0) },
			"start of the same id": func(p process.Process, s *process.Spec) error {
				other := *s
				other.Shell = "echo another"
				_, err := t.m.Start(t.ctx, other)
				if err == nil {
					err = process.ErrNotFound
				} else if errors.Is(err, process.ErrExists) {
					err = nil
				}
				return err
			},
		} {
			spec := process.Spec{ID: process.ID(unique("ttl")), Name: unique("name"), Tag: unique("tag"), Shell: "echo x", Dir: "/",
				Retention: process.Retention{TTL: ttl}}
			begun := time.Now() // before its end, from which its time counts
			p := t.start(spec)
			t.eventually(name+" is told that there is no such process", func() bool {
				err := access(p, &spec)
				if err != nil && !errors.Is(err, process.ErrNotFound) {
					t.Fatalf("%s: %v", name, err)
				}
				if err != nil && time.Since(begun) < ttl {
					t.Fatalf("%s: gone after %v, its time was %v", name, time.Since(begun), ttl)
				}
				return err != nil
			})
		}
		pinned := t.start(process.Spec{Shell: "echo x", Dir: "/", Retention: process.Retention{TTL: time.Millisecond, Pin: true}})
		t.wait(pinned, process.Until{TreeGone: true})
		time.Sleep(10 * time.Millisecond) // it would be over
		t.info(pinned)
		if err := pinned.Pin(t.ctx, false); err != nil && !errors.Is(err, process.ErrNotFound) {
			t.Errorf("unpin: %v", err)
		}
		t.eventually("what is pinned no more is gone", func() bool {
			_, err := pinned.Info(t.ctx)
			return errors.Is(err, process.ErrNotFound)
		})
	}},
	{"a process without readers is killed when its time is over", func(t *T) {
		p := t.start(process.Spec{Shell: "exec sleep 100000", KillWithoutReaders: 20 * time.Millisecond})
		t.eventually("the exit", func() bool { return t.info(p).Exit != nil })
		if e := t.info(p).Exit; e.Cause != process.CauseNoReaders || e.Signal != 9 {
			t.Errorf("it ended with %+v; want SIGKILL for want of readers", e)
		}
	}},
	{"a reader that follows keeps the process, and its end does not", func(t *T) {
		// That the time is over is told by a process that was started later and has no
		// reader. On a machine that stands still the reader may come too late: then all
		// have more time.
		for limit := time.Second; ; limit *= 2 {
			spec := process.Spec{Shell: "exec sleep 100000", KillWithoutReaders: limit}
			p := t.start(spec)
			l := t.read(p, process.ReadOptions{})
			clock := t.start(spec)
			t.eventually("the exit of a process without a reader", func() bool { return t.info(clock).Exit != nil })
			in := t.info(p)
			l.r.Close()
			if in.State != process.Running && limit < 16*time.Second {
				continue
			}
			if in.State != process.Running {
				t.Errorf("with a reader it is %s, %v", in.State, in.Exit)
			}
			t.eventually("the exit", func() bool { return t.info(p).Exit != nil })
			if e := t.info(p).Exit; e.Cause != process.CauseNoReaders {
				t.Errorf("it ended with %+v; want SIGKILL for want of readers", e)
			}
			return
		}
	}},
}

// get finds a process.
func (t *T) get(sel process.Selector) error {
	_, err := t.m.Get(t.ctx, sel)
	return err
}

// remove removes a process once nothing is left of it.
func (t *T) remove(p process.Process) {
	t.Helper()
	t.wait(p, process.Until{EOF: true})
	t.wait(p, process.Until{TreeGone: true})
	t.eventually("the removal", func() bool {
		err := p.Remove(t.ctx)
		if err != nil && !errors.Is(err, process.ErrRunning) {
			t.Fatalf("remove: %v", err)
		}
		return err == nil
	})
}

// stream returns what is known of a stream now.
func (t *T) stream(p process.Process, s process.Stream) process.StreamInfo {
	t.Helper()
	in := t.info(p)
	si, _ := in.Stream(s)
	return si
}

// gaps returns the gaps of a stream that were told.
func (tr *transcript) gaps(s process.Stream) (all []process.Gap) {
	for _, ev := range tr.events {
		if ev.Kind == process.EventGap && ev.Stream == s && ev.Gap.Stream == s {
			all = append(all, ev.Gap)
		}
	}
	return all
}
