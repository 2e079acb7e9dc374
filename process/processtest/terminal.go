//go:build unix

package processtest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/tend-run/tend/process"
)

// small is the size of a terminal that is no default of anything.
var small = process.Size{Cols: 83, Rows: 27}

// terminals are about processes with a terminal.
var terminals = []test{
	{"a terminal is stdin, stdout and stderr, and the controlling one", func(t *T) {
		p := t.start(process.Spec{Shell: "tty <&1; tty <&2; for fd in 0 1 2; do test -t $fd && echo $fd; done; echo out; echo err >&2; echo self >/dev/tty", PTY: &small})
		tr := t.all(p)
		lines := strings.Fields(tr.pty())
		if len(lines) != 8 || !strings.HasPrefix(lines[0], "/dev/") || lines[0] != lines[1] ||
			strings.Join(lines[2:], " ") != "0 1 2 out err self" {
			t.Errorf("got %q", tr.pty())
		}
		if tr.stdout() != "" || tr.stderr() != "" || tr.exit.Code != 0 {
			t.Errorf("got stdout %q, stderr %q, exit %+v; want the terminal alone", tr.stdout(), tr.stderr(), tr.exit)
		}
		in := t.info(p)
		if len(in.Streams) != 1 || in.Streams[0].Stream != process.PTY || in.Streams[0].End != int64(len(tr.pty())) || !in.Streams[0].EOF {
			t.Errorf("info has %+v; want the terminal alone, with %d bytes and at its end", in.Streams, len(tr.pty()))
		}
	}},
	{"a shell with a terminal leads its session and controls jobs", func(t *T) {
		// A job in the background has a group of its own; one in the foreground gets the terminal.
		p, l := t.onTerminal("stty -echo; echo ready; read x; set -m; echo $$ $(cut -d' ' -f5,6,8 /proc/$$/stat); " +
			"sleep 100000 & kill %1; wait %1; sh -c 'cut -d\" \" -f5,8 /proc/$$/stat'; echo $?; exit 5")
		pid := strconv.Itoa(t.info(p).PID)
		t.write(p, "\n")
		tr := l.rest()
		f := strings.Fields(strings.TrimPrefix(tr.pty(), "ready\r\n"))
		if len(f) < 4 || f[0] != pid || f[1] != pid || f[2] != pid || f[3] != pid || tr.exit.Code != 5 {
			t.Errorf("pid %s: got %q, %+v", pid, tr.pty(), tr.exit)
		}
		if n := len(f); n < 7 || f[n-3] != f[n-2] || f[n-3] == pid || f[n-1] != "0" {
			t.Errorf("a job in the foreground: %q", tr.pty())
		}
	}},
	{"a terminal ends lines with a carriage return and a newline", func(t *T) {
		t.wantPTY(t.all(t.start(process.Spec{Shell: "echo one; echo two", PTY: &small})), "one\r\ntwo\r\n")
	}},
	{"a terminal has the size asked for", func(t *T) {
		t.wantPTY(t.all(t.start(process.Spec{Argv: []string{"stty", "size"}, PTY: &small})), "27 83\r\n")
	}},
	{"a new size is told by SIGWINCH and kept", func(t *T) {
		p, l := t.onTerminal("stty -echo; trap 'stty size; exit 4' WINCH; echo ready; read x; read x; read x")
		now := process.Size{Cols: 101, Rows: 52}
		if before, err := p.Resize(t.ctx, process.Resize{To: now}); err != nil || before != small {
			t.Fatalf("the size before is %v (%v), want %v", before, err, small)
		}
		// A shell may run the trap only when the read returns.
		p.Write(t.ctx, process.Input{Data: []byte("\n\n\n")})
		if tr := l.rest(); tr.pty() != "ready\r\n52 101\r\n" || tr.exit.Code != 4 {
			t.Errorf("got %q, %+v", tr.pty(), tr.exit)
		}
	}},
	{"a process without a terminal has no size", func(t *T) {
		_, err := t.sh("exec sleep 100000").Resize(t.ctx, process.Resize{To: small})
		t.wantError("resize", err, process.ErrNoPTY)
	}},
	{"a size is given back only to a terminal that nobody has changed since", func(t *T) {
		p, l := t.onTerminal("stty -echo; echo ready; while read x; do stty size; done")
		mine, others := process.Size{Cols: 61, Rows: 22}, process.Size{Cols: 101, Rows: 52}
		want := "ready\r\n"
		for _, step := range []struct {
			r      process.Resize
			before process.Size
			now    string
		}{
			{process.Resize{To: mine}, small, "22 61"},
			{process.Resize{To: small, Only: &mine}, mine, "27 83"},
			{process.Resize{To: others}, small, "52 101"},
			{process.Resize{To: small, Only: &mine}, others, "52 101"},
		} {
			if before, err := p.Resize(t.ctx, step.r); err != nil || before != step.before {
				t.Fatalf("%+v: the size before is %v (%v), want %v", step.r, before, err, step.before)
			}
			t.write(p, "\n")
			want += step.now + "\r\n"
			l.until("it says its size", func() bool { return len(l.pty()) >= len(want) })
			if l.pty() != want {
				t.Fatalf("after %+v the terminal says %q, want %q", step.r, l.pty(), want)
			}
		}
	}},
	{"changes of size are kept with the bytes between which they came, and told to those who ask", func(t *T) {
		p, l := t.onTerminal("stty -echo; echo ready; while read x; do stty size; done")
		live := t.read(p, sizesToo)
		said := func(size process.Size) func() bool {
			return func() bool { s := live.sizes(); return len(s) > 0 && s[len(s)-1].Size == size }
		}
		resize := func(size process.Size) {
			t.Helper()
			if _, err := p.Resize(t.ctx, process.Resize{To: size}); err != nil {
				t.Fatalf("resize: %v", err)
			}
			live.until("a change of size is told", said(size))
		}
		one, two, three := process.Size{Cols: 61, Rows: 22}, process.Size{Cols: 101, Rows: 52}, process.Size{Cols: 9, Rows: 9}
		resize(one)
		resize(one) // no change
		t.write(p, "\n")
		l.until("it says its size", func() bool { return l.pty() == "ready\r\n22 61\r\n" })
		resize(two)
		resize(three)
		t.kill(p)
		want := []string{"0 83x27", "7 61x22", "14 101x52", "14 9x9"}
		if got := live.rest().sizesAt(); !slices.Equal(got, want) {
			t.Errorf("a reader from the beginning is told of %q, want %q", got, want)
		}
		for _, ev := range live.sizes() {
			if ev.Time.IsZero() || ev.Stream != process.PTY {
				t.Errorf("a change of size has the time %v and the stream %v", ev.Time, ev.Stream)
			}
		}
		if got := l.rest().sizesAt(); got != nil {
			t.Errorf("a reader that did not ask is told of %q", got)
		}
		for from, want := range map[int64][]string{
			3:  {"3 83x27", "7 61x22", "14 101x52", "14 9x9"},
			7:  {"7 83x27", "7 61x22", "14 101x52", "14 9x9"},
			8:  {"8 61x22", "14 101x52", "14 9x9"},
			14: {"14 61x22", "14 101x52", "14 9x9"},
		} {
			opts := sizesToo
			opts.From[process.PTY] = from
			late := t.read(p, opts)
			if got := late.rest().sizesAt(); !slices.Equal(got, want) || !late.sizes()[0].Time.IsZero() {
				t.Errorf("a reader from %d on is told of %q, want %q, and the first without a time", from, got, want)
			}
		}
	}},
	{"of very many changes of size while nothing is written some are left out, but not the last", func(t *T) {
		p, l := t.onTerminal("stty -echo; echo ready; read x; stty size; exec sleep 100000")
		const many = 400
		for i := range many {
			if _, err := p.Resize(t.ctx, process.Resize{To: process.Size{Cols: uint16(100 + i), Rows: 30}}); err != nil {
				t.Fatalf("resize: %v", err)
			}
		}
		t.write(p, "\n")
		l.until("it says its size", func() bool { return l.pty() == "ready\r\n30 499\r\n" })
		if _, err := p.Resize(t.ctx, process.Resize{To: small}); err != nil {
			t.Fatalf("resize: %v", err)
		}
		t.kill(p)
		got := t.read(p, sizesToo).rest().sizesAt()
		if len(got) < 200 || len(got) > 300 || !slices.Equal(got[len(got)-2:], []string{"7 499x30", "15 83x27"}) {
			t.Errorf("told of %d changes, the last %q; want about 256, and those that held for what was written", len(got), got[max(0, len(got)-3):])
		}
	}},
	{"a terminal echoes what is typed until it is told not to", func(t *T) {
		p, l := t.onTerminal("echo ready; read x; echo got $x; stty -echo; echo ready; read x; echo got $x")
		t.write(p, "one\n")
		l.until("it is ready again", func() bool { return strings.Count(l.pty(), "ready") == 2 })
		t.write(p, "two\n")
		t.wantPTY(l.rest(), "ready\r\none\r\ngot one\r\nready\r\ngot two\r\n")
	}},
	{"the end-of-file key ends the input of a terminal", func(t *T) {
		p, l := t.onTerminal("stty -echo; echo ready; cat; echo over")
		t.write(p, "line\n")
		t.write(p, "\x04")
		if tr := l.rest(); tr.pty() != "ready\r\nline\r\nover\r\n" || tr.exit.Code != 0 {
			t.Errorf("got %q, %+v", tr.pty(), tr.exit)
		}
	}},
	{"the interrupt key sends SIGINT to the program in the foreground", func(t *T) {
		p, l := t.onTerminal("echo ready; exec sleep 100000")
		t.write(p, "\x03")
		if tr := l.rest(); tr.exit.Signal != int(syscall.SIGINT) || tr.exit.Cause != process.CauseSignalled {
			t.Errorf("got %+v; want signal 2", tr.exit)
		}
	}},
	{"the input of a terminal has no end of its own", func(t *T) {
		p := t.start(process.Spec{Shell: "read x", PTY: &small})
		t.wantRefused("an end", p, process.Input{EOF: true}, process.ErrPTY)
		if !t.info(p).Stdin.Open {
			t.Error("info says that the input is closed")
		}
	}},
	{"input to a terminal is repeated safely too", func(t *T) {
		p, l := t.onTerminal("stty -echo; echo ready; read x; echo got $x; read x; echo got $x")
		first, zero := int64(4), int64(0)
		for range 3 {
			got, err := p.Write(t.ctx, process.Input{Data: []byte("one\n"), Offset: &zero})
			if err != nil || got.Offset != first {
				t.Fatalf("write: %+v, %v; want offset %d", got, err, first)
			}
		}
		t.put(p, process.Input{Data: []byte("two\n"), Offset: &first})
		t.wantPTY(l.rest(), "ready\r\ngot one\r\ngot two\r\n")
	}},
	{"the last words of a terminal are not lost", func(t *T) {
		line := strings.Repeat("x", 70)
		for range 10 {
			p := t.start(process.Spec{Shell: "i=0; while [ $i -lt 50 ]; do echo " + line + "; i=$((i+1)); done", PTY: &small})
			if got := t.read(p, process.ReadOptions{}).rest().pty(); got != strings.Repeat(line+"\r\n", 50) {
				t.Fatalf("got %d bytes; want %d", len(got), 50*72)
			}
		}
	}},
	{"much input to a terminal arrives line by line", func(t *T) {
		p, l := t.onTerminal("stty -echo; echo ready; i=0; while read x; do i=$((i+1)); [ \"$x\" = end ] && break; done; echo $i")
		t.write(p, strings.Repeat("a line of some length for the terminal\n", 2000)+"end\n")
		t.wantPTY(l.rest(), "ready\r\n2001\r\n")
	}},
	{"kill ends a terminal and all on it", func(t *T) {
		p, l := t.onTerminal("trap '' HUP INT TERM; sleep 100000 & echo ready; wait")
		t.kill(p)
		if tr := l.rest(); tr.exit.Signal != 9 || tr.exit.Cause != process.CauseKilled {
			t.Errorf("got %+v", tr.exit)
		}
	}},
}

// sizesToo reads to the end of each stream, with the changes of size.
var sizesToo = process.ReadOptions{Drain: -1, Sizes: true}

func (tr *transcript) sizes() (all []process.Event) {
	for _, ev := range tr.events {
		if ev.Kind == process.EventResized {
			all = append(all, ev)
		}
	}
	return all
}

// sizesAt are the changes of size as offset, columns and rows.
func (tr *transcript) sizesAt() (all []string) {
	for _, ev := range tr.sizes() {
		all = append(all, fmt.Sprintf("%d %dx%d", ev.Offset, ev.Size.Cols, ev.Size.Rows))
	}
	return all
}

// onTerminal starts a shell line on a small terminal, and reads until it is ready.
func (t *T) onTerminal(line string) (process.Process, *tail) {
	t.Helper()
	p := t.start(process.Spec{Shell: line, PTY: &small})
	l := t.read(p, toTheEnd)
	l.until("the process is ready", func() bool { return l.pty() == "ready\r\n" })
	return p, l
}
