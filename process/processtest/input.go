//go:build unix

package processtest

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/tend-run/tend/process"
)

// inputs are about stdin.
var inputs = []test{
	{"stdin that was not asked for is at its end", func(t *T) {
		p := t.sh("cat; echo done")
		t.wantStdout(t.all(p), "done\n")
		live := t.sh("exec sleep 100000")
		if in := t.info(live); in.Stdin.Open {
			t.Error("info says that stdin is open")
		}
		for _, in := range []process.Input{{Data: []byte("x")}, {EOF: true}} {
			_, err := live.Write(t.ctx, in)
			t.wantError("write", err, process.ErrStdinClosed)
		}
	}},
	{"what is written arrives in order, and the end after it", func(t *T) {
		p := t.cat()
		want := ""
		for i := range 100 {
			line := fmt.Sprintf("line %d\x00\xff\n", i)
			got, err := p.Write(t.ctx, process.Input{Data: []byte(line)})
			if want += line; err != nil || got.Offset != int64(len(want)) {
				t.Fatalf("write %d: %+v, %v; want offset %d", i, got, err, len(want))
			}
		}
		if in := t.info(p).Stdin; !in.Open || in.Accepted != int64(len(want)) {
			t.Errorf("info has %+v; want open, and %d accepted", in, len(want))
		}
		got, err := p.Write(t.ctx, process.Input{Data: []byte("last"), EOF: true})
		if want += "last"; err != nil || got.Offset != int64(len(want)) {
			t.Fatalf("last write: %+v, %v; want offset %d", got, err, len(want))
		}
		if tr := t.all(p); tr.stdout() != want {
			t.Errorf("got %s", abbreviate(tr.out[process.Stdout]))
		}
	}},
	{"an end of input without data closes stdin", func(t *T) {
		p := t.shIn("cat >/dev/null; echo closed; sleep 100000")
		t.closeInput(p)
		t.stdoutOf(p, 7)
		if t.info(p).Stdin.Open {
			t.Error("info says that stdin is open")
		}
		t.wantRefused("write after the end", p, process.Input{Data: []byte("x")}, process.ErrStdinClosed)
	}},
	{"a write that is repeated at its offset is applied once", func(t *T) {
		p := t.cat()
		at := func(n int64) *int64 { return &n }
		for _, w := range []struct {
			offset *int64
			data   string
			want   int64
		}{
			{at(0), "abc", 3},
			{at(0), "abc", 3},   // again
			{at(0), "abcde", 5}, // again, and more
			{at(2), "cd", 5},    // a part of it
			{nil, "f", 6},
			{at(6), "g", 7},
			{at(7), "", 7},
			{at(5), "fg", 7},
		} {
			got, err := p.Write(t.ctx, process.Input{Data: []byte(w.data), Offset: w.offset})
			if err != nil || got.Offset != w.want {
				t.Errorf("write %q: offset %d, %v; want %d", w.data, got.Offset, err, w.want)
			}
		}
		t.wantRefused("a write past what was accepted", p, process.Input{Data: []byte("x"), Offset: at(8)}, process.ErrOffset)
		for range 2 { // the end may be repeated too
			if got, err := p.Write(t.ctx, process.Input{Data: []byte("h"), Offset: at(7), EOF: true}); err != nil || got.Offset != 8 {
				if !errors.Is(err, process.ErrExited) { // cat is quick
					t.Errorf("last write: offset %d, %v; want 8", got.Offset, err)
				}
			}
		}
		t.wantStdout(t.all(p), "abcdefgh")
	}},
	{"much input to a process that reads late arrives whole and holds nobody up", func(t *T) {
		const size = 5 << 20
		gate := t.gate()
		spec := t.play("checksum")
		spec.Argv = append([]string{"/bin/sh", "-c", "cat " + quote(gate.path) + `; exec "$@"`, "sh"}, spec.Argv...)
		spec.Stdin = process.StdinPipe
		p := t.start(spec)
		data := make([]byte, size)
		patternAt(data, 0)
		wrote := writeLater(t.ctx, p, process.Input{Data: data, EOF: true})
		// Others go on meanwhile: also with this very process.
		other := t.cat()
		t.write(other, "other")
		t.closeInput(other)
		t.wantStdout(t.all(other), "other")
		if in := t.info(p); in.State != process.Running {
			t.Errorf("state is %s", in.State)
		}
		gate.open(t)
		if tr := t.all(p); tr.stdout() != strconv.Itoa(size)+"\n" || tr.exit.Code != 0 {
			t.Errorf("it read %q, %q", tr.stdout(), tr.stderr())
		}
		if err := <-wrote; err != nil {
			t.Errorf("write: %v", err)
		}
	}},
	{"a write that waits for room ends with its context, and the process can be killed", func(t *T) {
		p := t.start(process.Spec{Argv: []string{"sleep", "100000"}, Stdin: process.StdinPipe})
		ctx, cancel := context.WithCancel(t.ctx)
		wrote := make(chan error, 1)
		var got process.Accepted
		go func() {
			var err error
			got, err = p.Write(ctx, process.Input{Data: make([]byte, 16<<20)})
			wrote <- err
		}()
		t.eventually("some input is accepted", func() bool { return t.info(p).Stdin.Accepted > 0 })
		cancel()
		t.wantError("the write", <-wrote, context.Canceled)
		if n := t.info(p).Stdin.Accepted; got.Offset != n && got.Offset != 0 || n >= 16<<20 {
			t.Errorf("the write told offset %d; info has %d accepted", got.Offset, n)
		}
		t.kill(p)
	}},
	{"closing stdin does not wait behind a write that waits for room", func(t *T) {
		p := t.start(process.Spec{Argv: []string{"sleep", "100000"}, Stdin: process.StdinPipe})
		wrote := writeLater(t.ctx, p, process.Input{Data: make([]byte, 16<<20)})
		t.eventually("some input is accepted", func() bool { return t.info(p).Stdin.Accepted > 0 })
		t.closeInput(p)
		t.wantError("the write under way", <-wrote, process.ErrStdinClosed)
	}},
	{"a write to a process that ends meanwhile is an error", func(t *T) {
		p := t.shIn("read x; exit 0")
		wrote := writeLater(t.ctx, p, process.Input{Data: []byte("\n" + string(make([]byte, 16<<20)))})
		t.exit(p)
		if err := <-wrote; !errors.Is(err, process.ErrExited) && !errors.Is(err, process.ErrStdinClosed) {
			t.Errorf("the write under way: got error %v; want %q", err, process.ErrExited)
		}
		t.wantRefused("a write after the exit", p, process.Input{Data: []byte("x")}, process.ErrExited)
	}},
	{"stdin that the process itself closed is told to who writes", func(t *T) {
		p := t.shIn("exec <&-; echo closed; exec sleep 100000")
		t.stdoutOf(p, 7)
		t.eventually("an error", func() bool {
			_, err := p.Write(t.ctx, process.Input{Data: []byte("x")})
			if err != nil && !errors.Is(err, process.ErrStdinClosed) {
				t.Fatalf("write: %v", err)
			}
			return err != nil
		})
	}},
	{"the bytes of one write stay together among many writers", func(t *T) {
		p := t.cat()
		const writers, size = 8, 100_000
		done := make(chan error, writers)
		for i := range writers {
			go func() {
				data := make([]byte, size)
				for j := range data {
					data[j] = byte('a' + i)
				}
				_, err := p.Write(t.ctx, process.Input{Data: data})
				done <- err
			}()
		}
		for range writers {
			t.check(<-done)
		}
		t.closeInput(p)
		out := t.all(p).out[process.Stdout]
		changes := 0
		for i := 1; i < len(out); i++ {
			if out[i] != out[i-1] {
				changes++
			}
		}
		if len(out) != writers*size || changes != writers-1 {
			t.Errorf("got %d bytes that change %d times; want %d and %d", len(out), changes, writers*size, writers-1)
		}
	}},
}

// put writes to stdin or the terminal.
func (t *T) put(p process.Process, in process.Input) {
	t.Helper()
	if _, err := p.Write(t.ctx, in); err != nil {
		t.Fatalf("write of %s: %v", abbreviate(in.Data), err)
	}
}

// write is put for some text.
func (t *T) write(p process.Process, data string) {
	t.Helper()
	t.put(p, process.Input{Data: []byte(data)})
}

// closeInput ends stdin.
func (t *T) closeInput(p process.Process) {
	t.Helper()
	t.put(p, process.Input{EOF: true})
}

// writeLater writes in the background.
func writeLater(ctx context.Context, p process.Process, in process.Input) <-chan error {
	return later(func() error {
		_, err := p.Write(ctx, in)
		return err
	})
}

// wantRefused fails unless a write fails as it must.
func (t *T) wantRefused(what string, p process.Process, in process.Input, target error) {
	t.Helper()
	_, err := p.Write(t.ctx, in)
	t.wantError(what, err, target)
}
