//go:build unix

package processtest

import (
	"bytes"
	"strconv"
	"sync"

	"github.com/tend-run/tend/process"
)

// output is about the bytes, their offsets and those who read them.
var output = []test{
	{"binary output is kept byte for byte on both streams", func(t *T) {
		const size = 8<<20 + 3
		p := t.start(t.play("pattern", "12", strconv.Itoa(size)))
		readers := []*tail{
			t.read(p, toTheEnd),
			t.read(p, process.ReadOptions{Drain: -1, Unordered: true, MaxChunk: 1 << 20}),
			t.read(p, process.ReadOptions{Drain: -1, MaxChunk: 5000, Streams: []process.Stream{process.Stdout}}),
		}
		var wg sync.WaitGroup
		for i, l := range readers {
			wg.Go(func() {
				for l.step() {
				}
				for s := process.Stdout; s <= process.Stderr; s++ {
					want := size
					if i == 2 && s == process.Stderr {
						want = 0
					}
					if bad := checkPattern(l.out[s], 0); bad >= 0 || len(l.out[s]) != want {
						t.Errorf("reader %d got %d bytes of %s, the first wrong one at %d; want %d", i, len(l.out[s]), s, bad, want)
					}
				}
			})
		}
		wg.Wait()
		if again := t.all(p); checkPattern(again.out[process.Stdout], 0) >= 0 || len(again.out[process.Stdout]) != size {
			t.Errorf("a later reader got %d bytes of stdout; want %d", len(again.out[process.Stdout]), size)
		}
		in := t.info(p)
		for _, s := range in.Streams {
			if s.Base != 0 || s.End != size || !s.EOF {
				t.Errorf("%s is told as %+v; want all of %d bytes and the end", s.Stream, s, size)
			}
		}
	}},
	{"every reader is at an offset of its own", func(t *T) {
		p := t.sh("printf 0123456789; printf abc >&2")
		t.all(p)
		for _, tt := range []struct {
			from [4]int64
			want string
		}{
			{[4]int64{}, "0123456789|abc"},
			{[4]int64{process.Stdout: 1}, "123456789|abc"},
			{[4]int64{process.Stdout: 9, process.Stderr: 3}, "9|"},
			{[4]int64{process.Stdout: 10, process.Stderr: 1}, "|bc"},
			{[4]int64{process.Stdout: process.FromNow}, "|abc"},
			{[4]int64{process.Stdout: process.FromNow, process.Stderr: process.FromNow}, "|"},
		} {
			tr := t.read(p, process.ReadOptions{From: tt.from, Drain: -1}).rest()
			if got := tr.stdout() + "|" + tr.stderr(); got != tt.want {
				t.Errorf("from %v came %q; want %q", tt.from, got, tt.want)
			}
			for _, ev := range tr.events {
				if ev.Kind == process.EventOutput && tt.from[ev.Stream] > ev.Offset {
					t.Errorf("from %v came output at %d of %s", tt.from, ev.Offset, ev.Stream)
				}
			}
		}
	}},
	{"an offset past the end is refused", func(t *T) {
		p := t.shIn("printf 0123456789; read x")
		t.stdoutOf(p, 10)
		for _, moment := range []string{"live", "finished"} {
			for _, from := range []int64{11, 1 << 60} {
				_, err := p.Read(t.ctx, process.ReadOptions{From: [4]int64{process.Stdout: from}})
				t.wantError(moment, err, process.ErrOffset)
			}
			_, err := p.Read(t.ctx, process.ReadOptions{From: [4]int64{process.Stdout: -2}})
			t.wantInvalid(err, "from")
			if moment == "live" {
				t.closeInput(p)
				t.all(p)
			}
		}
	}},
	{"from now on skips what was written before", func(t *T) {
		p := t.shIn("echo before; read x; echo after; echo err >&2")
		t.stdoutOf(p, 7)
		l := t.read(p, process.ReadOptions{Drain: -1, From: [4]int64{process.Stdout: process.FromNow, process.Stderr: process.FromNow}})
		t.write(p, "\n")
		tr := l.rest()
		if tr.stdout() != "after\n" || tr.stderr() != "err\n" {
			t.Errorf("got stdout %q, stderr %q", tr.stdout(), tr.stderr())
		}
		if i := tr.index(func(ev *process.Event) bool { return ev.Stream == process.Stdout && ev.Kind == process.EventOutput }); i < 0 ||
			tr.events[i].Offset != 7 {
			t.Errorf("the first output is not at offset 7: %+v", tr.events)
		}
	}},
	{"a reader that does not follow ends with what there was", func(t *T) {
		p := t.shIn("echo before; read x; echo after")
		t.stdoutOf(p, 7)
		l := t.read(p, process.ReadOptions{NoFollow: true})
		t.write(p, "\n")
		t.exit(p)
		if tr := l.rest(); tr.stdout() != "before\n" {
			t.Errorf("on the live process it got %q; want only what there was", tr.stdout())
		}
		tr := t.read(p, process.ReadOptions{NoFollow: true}).rest()
		if tr.stdout() != "before\nafter\n" || tr.exit == nil {
			t.Errorf("on the finished process it got %q and exit %v", tr.stdout(), tr.exit)
		}
	}},
	{"chunks are no larger than was asked for", func(t *T) {
		p := t.start(t.play("pattern", "1", "300000"))
		t.exit(p)
		for _, most := range []int{1000, 65536, 1 << 20, 0} {
			l := t.read(p, process.ReadOptions{MaxChunk: most, Drain: -1})
			bound := most
			if bound == 0 {
				bound = 256 << 10
			}
			for {
				at := len(l.out[process.Stdout])
				if !l.step() {
					break
				}
				if n := len(l.out[process.Stdout]) - at; n > bound {
					t.Errorf("a chunk has %d bytes; at most %d were asked for", n, bound)
				}
			}
			if len(l.out[process.Stdout]) != 300000 || checkPattern(l.out[process.Stdout], 0) >= 0 {
				t.Errorf("with chunks of %d the output is wrong", most)
			}
		}
		for _, bad := range []int{-1, 1<<20 + 1} {
			_, err := p.Read(t.ctx, process.ReadOptions{MaxChunk: bad})
			t.wantInvalid(err, "max_chunk")
		}
	}},
	{"a reader that does not read holds nobody up", func(t *T) {
		p := t.start(t.play("pattern", "1", strconv.Itoa(4<<20)))
		idle := t.read(p, toTheEnd)
		t.wantCode(p, 0)
		if tr := idle.rest(); len(tr.out[process.Stdout]) != 4<<20 || checkPattern(tr.out[process.Stdout], 0) >= 0 {
			t.Errorf("the late reader got %d bytes; want %d good ones", len(tr.out[process.Stdout]), 4<<20)
		}
	}},
	{"a stream can end before the process does", func(t *T) {
		p := t.shIn("echo last; exec >&-; read x; echo more >&2")
		l := t.read(p, toTheEnd)
		l.until("the end of stdout", func() bool { return count(&l.transcript, process.EventEOF) == 1 })
		if in := t.info(p); in.State != process.Running {
			t.Errorf("state is %s; want running", in.State)
		}
		t.write(p, "\n")
		if tr := l.rest(); tr.stdout() != "last\n" || tr.stderr() != "more\n" || count(tr, process.EventEOF) != 2 {
			t.Errorf("got stdout %q, stderr %q, events %v", tr.stdout(), tr.stderr(), tr.kinds())
		}
	}},
	{"output of many small writes is complete", func(t *T) {
		p := t.sh(`i=0; while [ $i -lt 3000 ]; do echo $i; i=$((i+1)); done`)
		var want bytes.Buffer
		for i := range 3000 {
			want.WriteString(strconv.Itoa(i) + "\n")
		}
		if tr := t.all(p); tr.stdout() != want.String() {
			t.Errorf("got %s", abbreviate(tr.out[process.Stdout]))
		}
	}},
}
