//go:build unix

package processtest

import (
	"fmt"
	"slices"

	"github.com/tend-run/tend/process"
)

// facts are about the order in which a reader tells the life of a process.
var facts = []test{
	{"a reader tells the start first, then output, one exit, and one end of each stream", func(t *T) {
		p := t.sh("echo out; echo err >&2; exit 7")
		tr := t.all(p)
		if n := [...]int{count(tr, process.EventStarted), count(tr, process.EventExited), count(tr, process.EventEOF)}; n != [...]int{1, 1, 2} {
			t.Errorf("got %v; want one start, one exit and two ends", tr.kinds())
		}
		if tr.stdout() != "out\n" || tr.stderr() != "err\n" {
			t.Errorf("got stdout %q, stderr %q", tr.stdout(), tr.stderr())
		}
		if tr.exit == nil || tr.exit.Code != 7 {
			t.Errorf("got exit %+v; want code 7", tr.exit)
		}
		started := tr.events[0]
		if in := t.info(p); started.PID != in.PID || started.PID == 0 || started.ID != p.ID() {
			t.Errorf("started tells pid %d of %q; info has %d of %q", started.PID, started.ID, in.PID, p.ID())
		}
	}},
	{"output written before the exit comes before it, however much it is", func(t *T) {
		spec := t.play("pattern", "1", "60000")
		tr := t.all(t.start(spec))
		if i, j := tr.index(isKind(process.EventExited)), lastOutput(tr); i < j {
			t.Errorf("output is event %d, after exited, which is event %d", j, i)
		}
		if len(tr.out[process.Stdout]) != 60000 {
			t.Errorf("%d bytes came; want 60000", len(tr.out[process.Stdout]))
		}
	}},
	{"streams come in the order in which they were written", func(t *T) {
		// Each line waits for an answer, so that there is an order.
		p := t.shIn(`for i in 1 2 3 4 5; do echo o$i; read x; echo e$i >&2; read x; done`)
		l := t.read(p, toTheEnd)
		for i := 1; i <= 5; i++ {
			l.until("a line of stdout", func() bool { return len(l.out[process.Stdout]) == 3*i })
			t.write(p, "\n")
			l.until("a line of stderr", func() bool { return len(l.out[process.Stderr]) == 3*i })
			t.write(p, "\n")
		}
		l.rest()
		again := t.all(p)
		var order []process.Stream
		for _, ev := range again.events {
			if ev.Kind == process.EventOutput {
				order = append(order, ev.Stream)
			}
		}
		want := slices.Repeat([]process.Stream{process.Stdout, process.Stderr}, 5)
		if !slices.Equal(order, want) {
			t.Errorf("a later reader got %v; want %v", order, want)
		}
	}},
	{"the exit is told at once while a descendant holds the pipe", func(t *T) {
		p := t.sh("echo early; sleep 100000 & exit 4")
		l := t.read(p, toTheEnd)
		l.exits()
		if l.exit.Code != 4 || l.stdout() != "early\n" {
			t.Errorf("got exit %+v and stdout %q", l.exit, l.stdout())
		}
		in := t.info(p)
		if s, _ := in.Stream(process.Stdout); in.State != process.Exited || s.EOF || in.TreeGone {
			t.Errorf("state %s, eof %v, tree gone %v; want exited, and neither", in.State, s.EOF, in.TreeGone)
		}
		t.kill(p)
		if n := count(l.rest(), process.EventEOF); n != 2 {
			t.Errorf("%d ends of streams came after the kill; want 2", n)
		}
	}},
	{"a reader without drain ends at the exit while a descendant holds the pipe", func(t *T) {
		p := t.sh("echo early; sleep 100000 & exit 4")
		tr := t.read(p, process.ReadOptions{}).rest()
		if tr.exit == nil || tr.stdout() != "early\n" || count(tr, process.EventEOF) != 0 {
			t.Errorf("got exit %v, stdout %q, events %v", tr.exit, tr.stdout(), tr.kinds())
		}
	}},
	{"output of a descendant after the exit comes to a reader that drains", func(t *T) {
		gate := t.gate()
		p := t.sh(fmt.Sprintf("echo early; { cat %s >/dev/null; echo late; } & exit 0", quote(gate.path)))
		l := t.read(p, toTheEnd)
		l.exits()
		gate.open(t)
		if tr := l.rest(); tr.stdout() != "early\nlate\n" || count(tr, process.EventEOF) != 2 {
			t.Errorf("got stdout %q, events %v", tr.stdout(), tr.kinds())
		}
		if again := t.all(p); again.stdout() != "early\nlate\n" {
			t.Errorf("a later reader got stdout %q", again.stdout())
		}
	}},
	{"a finished process is read again from its first byte", func(t *T) {
		p := t.sh("echo one; echo two")
		first := t.all(p)
		second := t.all(p)
		if first.stdout() != "one\ntwo\n" || second.stdout() != first.stdout() || second.exit == nil || *second.exit != *first.exit {
			t.Errorf("first %q %v, second %q %v", first.stdout(), first.exit, second.stdout(), second.exit)
		}
	}},
	{"a stream that the process does not have delivers nothing", func(t *T) {
		p := t.sh("echo out; echo err >&2")
		tr := t.read(p, process.ReadOptions{Streams: []process.Stream{process.PTY, process.Stderr}}).rest()
		if tr.stdout() != "" || tr.stderr() != "err\n" || tr.pty() != "" || tr.exit == nil {
			t.Errorf("got stdout %q, stderr %q, exit %v", tr.stdout(), tr.stderr(), tr.exit)
		}
	}},
	{"closing a reader twice is safe", func(t *T) {
		p := t.sh("echo x")
		r, err := p.Read(t.ctx, process.ReadOptions{})
		t.check(err)
		for range 2 {
			if err := r.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}
	}},
}

func count(tr *transcript, k process.EventKind) int {
	n := 0
	for _, ev := range tr.events {
		if ev.Kind == k {
			n++
		}
	}
	return n
}

func lastOutput(tr *transcript) int {
	last := -1
	for i, ev := range tr.events {
		if ev.Kind == process.EventOutput {
			last = i
		}
	}
	return last
}
