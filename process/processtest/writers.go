//go:build unix

package processtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tend-run/tend/process"
)

// writers are about several who write to one process.
var writers = []test{
	{"writers who repeat what they wrote interleave whole writes, each once", func(t *T) {
		p := t.cat()
		const each = 100
		names := []string{"ann", "bob", "", "eve"} // "" appends, and repeats nothing
		done := make(chan error, len(names))
		line := func(name string, i int) []byte {
			return fmt.Appendf(nil, "%s %d %s\n", name, i, strings.Repeat(name+".", i*i%3000))
		}
		for _, name := range names {
			go func() {
				at := int64(0)
				for i := range each {
					in := process.Input{Data: line(name, i), Writer: name}
					for try := range 1 + i%3 {
						if name != "" {
							offset := at
							in.Offset, in.Again = &offset, try > 0
						} else if try > 0 {
							break
						}
						got, err := p.Write(t.ctx, in)
						if err != nil || name != "" && got.Written != at+int64(len(in.Data)) {
							done <- fmt.Errorf("%q, write %d, try %d: %+v, %w; want %d written", name, i, try, got, err, at+int64(len(in.Data)))
							return
						}
					}
					at += int64(len(in.Data))
				}
				done <- nil
			}()
		}
		for range names {
			t.check(<-done)
		}
		t.closeInput(p)
		next := map[string]int{}
		for _, got := range bytes.SplitAfter(t.all(p).out[process.Stdout], []byte("\n")) {
			if len(got) == 0 {
				continue
			}
			name, _, _ := strings.Cut(string(got), " ")
			if i := next[name]; !bytes.Equal(got, line(name, i)) {
				t.Fatalf("%q, write %d came as %s", name, i, abbreviate(got))
			}
			next[name]++
		}
		for _, name := range names {
			if next[name] != each {
				t.Errorf("%d writes of %q arrived of %d", next[name], name, each)
			}
		}
	}},
	{"a writer's offset is its own", func(t *T) {
		p := t.cat()
		for i, w := range []struct {
			writer string
			at     int64
			data   string
			want   process.Accepted
			err    error
		}{
			{"a", 0, "one ", process.Accepted{Offset: 4, Written: 4}, nil},
			{"b", 0, "two ", process.Accepted{Offset: 8, Written: 4}, nil},
			{"a", 0, "one ", process.Accepted{Offset: 8, Written: 4}, nil},     // again
			{"b", 2, "o more ", process.Accepted{Offset: 13, Written: 9}, nil}, // again, and more
			{"a", 4, "three ", process.Accepted{Offset: 19, Written: 10}, nil},
			{"a", 11, "x", process.Accepted{}, process.ErrOffset},
			{"c", 1, "x", process.Accepted{}, process.ErrWriterForgotten},
			{"c", 0, "four", process.Accepted{Offset: 23, Written: 4}, nil},
		} {
			at := w.at
			got, err := p.Write(t.ctx, process.Input{Data: []byte(w.data), Writer: w.writer, Offset: &at})
			if !errors.Is(err, w.err) || w.err == nil && got != w.want {
				t.Errorf("write %d: %+v, %v; want %+v, %v", i, got, err, w.want, w.err)
			}
		}
		at := int64(4)
		for range 2 { // the end may be repeated, too
			if _, err := p.Write(t.ctx, process.Input{Data: []byte("."), Writer: "c", Offset: &at, EOF: true}); err != nil &&
				!errors.Is(err, process.ErrExited) {
				t.Errorf("last write: %v", err)
			}
		}
		t.wantStdout(t.all(p), "one two more three four.")
	}},
	{"what a writer repeats after the process has closed its stdin was taken", func(t *T) {
		p := t.shIn("read x; read y; exec <&-; echo closed; exec sleep 100000")
		zero := int64(0)
		in := process.Input{Data: []byte("first\n"), Writer: "w", Offset: &zero}
		t.put(p, in)
		t.write(p, "last\n")
		t.stdoutOf(p, 7)
		t.eventually("stdin is closed", func() bool {
			_, err := p.Write(t.ctx, process.Input{Data: []byte("x")})
			return errors.Is(err, process.ErrStdinClosed) && !t.info(p).Stdin.Open
		})
		in.Again = true
		if got, err := p.Write(t.ctx, in); err != nil || got.Written != 6 {
			t.Errorf("the first write again: %+v, %v", got, err)
		}
		six := int64(6)
		t.wantRefused("a new write", p, process.Input{Data: []byte("y"), Writer: "w", Offset: &six}, process.ErrStdinClosed)
		end := int64(math.MaxInt64 - 1)
		for _, writer := range []string{"w", ""} {
			t.wantRefused("a write at the end of all numbers", p, process.Input{Data: []byte("yyy"), Writer: writer, Offset: &end},
				process.ErrStdinClosed)
		}
	}},
	{"a process remembers the last writers, and says when it has forgotten one", func(t *T) {
		p := t.cat()
		write := func(writer string, at int64, again bool) error {
			_, err := p.Write(t.ctx, process.Input{Data: []byte("x"), Writer: writer, Offset: &at, Again: again})
			return err
		}
		for i := range process.Writers {
			t.check(write(fmt.Sprint("w", i), 0, false))
		}
		if err := write("w0", 0, true); err != nil {
			t.Errorf("the first of as many as are remembered: %v", err)
		}
		for i := range process.Writers - 1 {
			if err := write(fmt.Sprint("v", i), 0, true); err != nil && !errors.Is(err, process.ErrWriterForgotten) {
				t.Fatal(err)
			}
			t.check(write(fmt.Sprint("v", i), 0, false))
		}
		t.wantError("a writer who goes on", write("w1", 1, false), process.ErrWriterForgotten)
		t.wantError("a writer who repeats its first write", write("w1", 0, true), process.ErrWriterForgotten)
		if err := write("w1", 0, false); err != nil {
			t.Errorf("a writer who begins anew: %v", err)
		}
	}},
	{"nobody writes between the parts of a write that goes on", func(t *T) {
		p := t.cat()
		part := func(at int64, data string, more bool) {
			if _, err := p.Write(t.ctx, process.Input{Data: []byte(data), Writer: "w", Offset: &at, More: more}); err != nil {
				t.Errorf("part %q: %v", data, err)
			}
		}
		part(0, "one ", true)
		gone, cancel := context.WithCancel(t.ctx)
		left := writeLater(gone, p, process.Input{Data: []byte("x")})
		wrote := writeLater(t.ctx, p, process.Input{Data: []byte("four")})
		cancel()
		t.wantError("one who does not wait so long", <-left, context.Canceled)
		part(4, "two ", true)
		part(8, "three ", false)
		if err := <-wrote; err != nil {
			t.Errorf("the other: %v", err)
		}
		t.closeInput(p)
		t.wantStdout(t.all(p), "one two three four")
	}},
	{"nobody writes between the parts of a write of which one breaks off and is sent again", func(t *T) {
		p := t.cat()
		t.signal(p, syscall.SIGSTOP, process.ScopeLeader)
		fill := bytes.Repeat([]byte("f"), process.MaxWhole)
		t.put(p, process.Input{Data: fill})
		zero, one := int64(0), int64(process.MaxWhole)
		first, second := bytes.Repeat([]byte("1"), process.MaxWhole), bytes.Repeat([]byte("2"), 1000)
		t.put(p, process.Input{Data: first, Writer: "w", Offset: &zero, More: true})
		// There is no room for the second part, so that it waits until its end here.
		short, cancel := context.WithTimeout(t.ctx, 300*time.Millisecond)
		defer cancel()
		broken := writeLater(short, p, process.Input{Data: second, Writer: "w", Offset: &one})
		other := writeLater(t.ctx, p, process.Input{Data: []byte("other")})
		t.wantError("the second part", <-broken, context.DeadlineExceeded)
		again := writeLater(t.ctx, p, process.Input{Data: second, Writer: "w", Offset: &one, Again: true})
		t.signal(p, syscall.SIGCONT, process.ScopeLeader)
		t.check(<-again)
		t.check(<-other)
		t.closeInput(p)
		t.wantStdout(t.all(p), string(slices.Concat(fill, first, second))+"other")
	}},
	{"a writer who never ends its write holds others up for a while only", func(t *T) {
		p := t.cat()
		zero := int64(0)
		t.put(p, process.Input{Data: []byte("one "), Writer: "w", Offset: &zero, More: true})
		t.write(p, "two")
		rest := int64(len("one "))
		t.wantRefused("the rest that comes then", p, process.Input{Data: []byte("three"), Writer: "w", Offset: &rest}, process.ErrWriterForgotten)
		t.put(p, process.Input{Data: []byte("one "), Writer: "w", Offset: &zero, More: true, Again: true}) // is acknowledged
		t.closeInput(p)
		t.wantStdout(t.all(p), "one two")
	}},
	{"who does not wait is told when the input of one process is full", func(t *T) {
		p := t.start(process.Spec{Argv: []string{"sleep", "100000"}, Stdin: process.StdinPipe})
		piece := make([]byte, 64<<10)
		n := 0
		for ; ; n++ {
			_, err := p.Write(t.ctx, process.Input{Data: piece, NoWait: true})
			if errors.Is(err, process.ErrInputFull) {
				if !errors.Is(err, process.ErrLimit) {
					t.Errorf("%v is no ErrLimit", err)
				}
				break
			}
			if err != nil || n > 1<<12 {
				t.Fatalf("write %d: %v", n, err)
			}
		}
		if n < 40 {
			t.Errorf("%d pieces of 64 KiB were taken; at least 40 should be", n)
		}
		if got := t.info(p).Stdin.Accepted; got != int64(n*len(piece)) {
			t.Errorf("%d bytes were accepted of %d pieces", got, n)
		}
		waiting, cancel := context.WithTimeout(t.ctx, time.Minute)
		defer cancel()
		wrote := writeLater(waiting, p, process.Input{Data: piece})
		_, err := p.Write(t.ctx, process.Input{Data: piece, NoWait: true})
		t.wantError("a write beside one who waits", err, process.ErrInputFull)
		other := t.cat()
		if _, err := other.Write(t.ctx, process.Input{Data: []byte("x"), NoWait: true}); err != nil {
			t.Errorf("another process: %v", err)
		}
		cancel()
		t.wantError("the one who waits", <-wrote, context.Canceled)
	}},
	{"the first write to a process that closed its stdin is a broken pipe", func(t *T) {
		// A child that another start has just cloned holds the reading end, too,
		// until its exec: one of these writes may meet it.
		const processes = 10
		atOnce := 0
		for range processes {
			p := t.shIn("exec <&-; echo closed; exec sleep 100000")
			t.stdoutOf(p, 7)
			_, err := p.Write(t.ctx, process.Input{Data: []byte("x")})
			if err != nil {
				atOnce++
			}
			t.eventually("the pipe is broken", func() bool {
				_, err = p.Write(t.ctx, process.Input{Data: []byte("x")})
				return err != nil
			})
			t.wantError("the write", err, process.ErrBrokenPipe)
			t.wantError("the write", err, process.ErrStdinClosed)
		}
		if atOnce < processes/2 {
			t.Errorf("%d of %d first writes were refused", atOnce, processes)
		}
	}},
	{"the first write to a terminal that all have left is a broken pipe", func(t *T) {
		p := t.start(process.Spec{Argv: []string{"/bin/sh", "-c", "trap '' HUP; exec </dev/null >/dev/null 2>&1; exec sleep 100000"},
			PTY: &process.Size{Cols: 80, Rows: 24}})
		t.eventually("the terminal is left", func() bool { return t.stream(p, process.PTY).EOF })
		for range 2 {
			t.wantRefused("the write", p, process.Input{Data: []byte("x")}, process.ErrBrokenPipe)
		}
	}},
	{"bad input is refused by name", func(t *T) {
		p := t.cat()
		negative, zero := int64(-1), int64(0)
		for field, in := range map[string]process.Input{
			"offset": {Data: []byte("x"), Offset: &negative},
			"writer": {Data: []byte("x"), Offset: &zero, Writer: strings.Repeat("w", process.MaxWriterName+1)},
			"more":   {Data: []byte("x"), Offset: &zero, Writer: "w", More: true, EOF: true},
		} {
			_, err := p.Write(t.ctx, in)
			if bad, ok := errors.AsType[*process.InvalidError](err); !ok || bad.Field != field {
				t.Errorf("%s: %v", field, err)
			}
		}
		_, err := p.Write(t.ctx, process.Input{Data: []byte("x"), Writer: "w"})
		if _, ok := errors.AsType[*process.InvalidError](err); !ok {
			t.Errorf("a writer without an offset: %v", err)
		}
	}},
}
