//go:build unix

package processtest

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/tend-run/tend/process"
)

// identities are about starting once, and finding again.
var identities = []test{
	{"starting an id again with the same spec is the same process", func(t *T) {
		spec := process.Spec{ID: process.NewID(), Shell: "echo once; read x; exit 2", Stdin: process.StdinPipe, Dir: "/",
			Env: map[string]string{"A": "1", "B": "2"}, Labels: map[string]string{"c": "3"}}
		p := t.start(spec)
		again := t.start(spec)
		if p.ID() != spec.ID || again.ID() != spec.ID || t.info(p).PID != t.info(again).PID {
			t.Errorf("got %s with pid %d and %s with pid %d", p.ID(), t.info(p).PID, again.ID(), t.info(again).PID)
		}
		t.write(again, "\n")
		t.wantCode(p, 2)
		// After the exit too.
		late := t.start(spec)
		if tr := t.all(late); tr.stdout() != "once\n" || tr.exit.Code != 2 {
			t.Errorf("started after the exit it has %q and %+v", tr.stdout(), tr.exit)
		}
	}},
	{"starting an id again with another spec is an error", func(t *T) {
		spec := process.Spec{ID: process.NewID(), Shell: "read x", Stdin: process.StdinPipe, Dir: "/"}
		p := t.start(spec)
		for _, moment := range []string{"live", "finished"} {
			if moment == "finished" {
				t.write(p, "\n")
				t.exit(p)
			}
			for _, change := range []func(*process.Spec){
				func(s *process.Spec) { s.Shell = "read y" },
				func(s *process.Spec) { s.Tag = "other" },
				func(s *process.Spec) { s.Env = map[string]string{"A": "1"} },
				func(s *process.Spec) { s.PTY = &process.Size{} },
			} {
				other := spec
				change(&other)
				_, err := t.m.Start(t.ctx, other)
				t.wantError(moment, err, process.ErrExists)
			}
		}
	}},
	{"twenty starts of one id at once start one process", func(t *T) {
		spec := process.Spec{ID: process.NewID(), Shell: "echo once; exec sleep 100000", Dir: "/"}
		var mu sync.Mutex
		pids := map[int]int{}
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				p, err := t.m.Start(t.ctx, spec)
				if err != nil {
					t.Errorf("start: %v", err)
					return
				}
				in, err := p.Info(t.ctx)
				if err != nil {
					t.Errorf("info: %v", err)
				}
				mu.Lock()
				pids[in.PID]++
				mu.Unlock()
			})
		}
		wg.Wait()
		t.start(spec) // for its end
		if len(pids) != 1 {
			t.Errorf("got the pids %v; want one", pids)
		}
	}},
	{"each start without an id is a process of its own", func(t *T) {
		a, b := t.sh("exec sleep 100000"), t.sh("exec sleep 100000")
		if a.ID() == b.ID() || a.ID() == "" || a.ID().Validate() != nil || t.info(a).PID == t.info(b).PID {
			t.Errorf("got %q and %q", a.ID(), b.ID())
		}
	}},
	{"info tells the spec as it was given", func(t *T) {
		spec := process.Spec{ID: process.NewID(), Name: unique("name"), Tag: unique("tag"), Argv: []string{"/bin/sh", "-c",
			"exit 1", "\xff"}, Dir: "/",
			Env: map[string]string{"K": "v\n"}, Stdin: process.StdinPipe, Timeout: 3600e9, TimeoutScope: process.ScopeLeader,
			Retention: process.Retention{Limit: 1 << 20, TTL: 7200e9}, Labels: map[string]string{"a": "", "b": "é"}}
		p := t.start(spec)
		t.exit(p)
		if in := t.info(p); in.ID != spec.ID || !in.Spec.Equal(&spec) {
			t.Errorf("got %+v; want %+v", in.Spec, spec)
		}
	}},
	{"a process is found by id, pid, tag and name", func(t *T) {
		spec := process.Spec{Shell: "exec sleep 100000", Tag: unique("tag"), Name: unique("name")}
		p := t.start(spec)
		pid := t.info(p).PID
		for _, sel := range []process.Selector{
			{ID: p.ID()}, {PID: pid}, {Tag: spec.Tag}, {Name: spec.Name},
			{Any: string(p.ID())}, {Any: string(p.ID())[:len(p.ID())-1]}, {Any: spec.Name}, {Any: spec.Tag}, {Any: strconv.Itoa(pid)},
		} {
			t.wantFound(sel, p)
		}
		t.kill(p)
		t.exit(p)
		t.wantFound(process.Selector{Tag: spec.Tag}, p)
	}},
	{"the newest that runs with a tag wins, and two that run with a name are told", func(t *T) {
		tag, name := unique("tag"), unique("name")
		var last process.Process
		for range 3 {
			t.start(process.Spec{Shell: "exec sleep 100000", Tag: unique("other"), Name: unique("other")})
			last = t.start(process.Spec{Shell: "exec sleep 100000", Tag: tag, Name: name})
			t.start(process.Spec{Shell: "exec sleep 100000", Tag: tag + "x", Name: name + "x"})
		}
		t.wantFound(process.Selector{Tag: tag}, last)
		for _, sel := range []process.Selector{{Name: name}, {Any: name}, {Any: tag}} {
			_, err := t.m.Get(t.ctx, sel)
			t.wantError("two of one name", err, process.ErrAmbiguous)
			var several *process.AmbiguousError
			if !errors.As(err, &several) || len(several.IDs) != 3 || several.IDs[2] != last.ID() {
				t.Errorf("%+v: %v; want the three ids, %s last", sel, err, last.ID())
			}
		}
	}},
	{"the run of a service goes before other processes with its name, and before its hooks", func(t *T) {
		name := unique("name")
		start := func(labels map[string]string) process.Process {
			return t.start(process.Spec{Shell: "exec sleep 100000", Name: name, Labels: labels})
		}
		run := start(map[string]string{process.LabelService: name})
		start(map[string]string{process.LabelService: name, process.LabelHook: "pre_start"})
		start(nil)
		start(map[string]string{process.LabelService: "other"})
		for _, sel := range []process.Selector{{Name: name}, {Any: name}} {
			t.wantFound(sel, run)
		}
	}},
	{"a process that runs goes before those with its name that have ended", func(t *T) {
		tag, name := unique("tag"), unique("name")
		start := func(shell string) process.Process {
			return t.start(process.Spec{Shell: shell, Tag: tag, Name: name})
		}
		t.exit(start("exit 0"))
		runs := start("exec sleep 100000")
		ended := start("exit 0")
		t.exit(ended)
		sels := []process.Selector{{Name: name}, {Any: name}, {Tag: tag}, {Any: tag}}
		for _, sel := range sels {
			t.wantFound(sel, runs)
		}
		t.kill(runs)
		t.exit(runs)
		for _, sel := range sels {
			t.wantFound(sel, ended)
		}
	}},
	{"what matches nothing is not found, and what matches more than one is told", func(t *T) {
		for _, sel := range []process.Selector{{ID: process.NewID()}, {PID: 1 << 29}, {Tag: unique("tag")}, {Name: unique("name")},
			{Any: unique("any")}} {
			_, err := t.m.Get(t.ctx, sel)
			t.wantError("get", err, process.ErrNotFound)
		}
		prefix := unique("prefix")
		a := t.start(process.Spec{ID: process.ID(prefix + "-a"), Shell: "exec sleep 100000"})
		t.start(process.Spec{ID: process.ID(prefix + "-b"), Shell: "exec sleep 100000"})
		_, err := t.m.Get(t.ctx, process.Selector{Any: prefix})
		t.wantError("a prefix of two", err, process.ErrAmbiguous)
		t.wantFound(process.Selector{Any: prefix + "-a"}, a)
		_, err = t.m.Get(t.ctx, process.Selector{})
		t.wantInvalid(err, "selector")
	}},
	{"a list is in the order of the starts and holds what the filter lets through", func(t *T) {
		tag := unique("tag")
		var ids []string
		for i := range 6 {
			p := t.start(process.Spec{Shell: "read x", Stdin: process.StdinPipe, Tag: tag,
				Labels: map[string]string{"parity": strconv.Itoa(i % 2), "third": strconv.Itoa(i / 3)}})
			ids = append(ids, string(p.ID()))
			if i == 0 {
				t.closeInput(p)
				t.exit(p)
			}
		}
		for _, tt := range []struct {
			filter process.Filter
			want   string
		}{
			{process.Filter{Tag: tag}, "012345"},
			{process.Filter{Tag: tag, Live: true}, "12345"},
			{process.Filter{Tag: tag, Labels: map[string]string{"parity": "0"}}, "024"},
			{process.Filter{Tag: tag, Labels: map[string]string{"parity": "1", "third": "1"}}, "35"},
			{process.Filter{Tag: tag, Labels: map[string]string{"parity": "0"}, Live: true}, "24"},
			{process.Filter{Tag: tag, Labels: map[string]string{"parity": "2"}}, ""},
			{process.Filter{Tag: tag, Labels: map[string]string{"none": ""}}, ""},
			{process.Filter{Tag: unique("none")}, ""},
		} {
			infos, err := t.m.List(t.ctx, tt.filter)
			t.check(err)
			var got strings.Builder
			for _, in := range infos {
				got.WriteString(strconv.Itoa(slices.Index(ids, string(in.ID))))
			}
			if got.String() != tt.want {
				t.Errorf("%+v lets %s through; want %s", tt.filter, got.String(), tt.want)
			}
		}
		all, err := t.m.List(t.ctx, process.Filter{})
		if err != nil || len(all) < 6 {
			t.Errorf("all are %d, %v; want these at least", len(all), err)
		}
	}},
	{"handles to one process are equal in what they tell", func(t *T) {
		p := t.shIn("echo hi; read x; exit 7")
		other, err := t.m.Get(t.ctx, process.Selector{ID: p.ID()})
		t.check(err)
		t.write(other, "\n")
		if a, b := t.exit(p), t.exit(other); *a != *b || a.Code != 7 {
			t.Errorf("got %+v and %+v", a, b)
		}
		if err := other.Signal(t.ctx, 15, process.ScopeLeader); !errors.Is(err, process.ErrExited) {
			t.Errorf("a signal to it: %v", err)
		}
	}},
}

// wantFound fails unless the selector finds the process.
func (t *T) wantFound(sel process.Selector, want process.Process) {
	t.Helper()
	if got, err := t.m.Get(t.ctx, sel); err != nil || got.ID() != want.ID() {
		t.Errorf("%+v: got %v, %v; want %s", sel, got, err, want.ID())
	}
}
