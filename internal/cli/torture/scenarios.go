//go:build linux

package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/tend-run/tend/process"
)

// scenario is one round of work that must succeed, whatever role is killed.
type scenario struct {
	name string
	run  func(ctx context.Context, b *bench) error
}

// Scenarios by name.
var scenarios = []scenario{
	{"spawn", spawn}, {"stream", stream}, {"stdin", stdin}, {"exit", exits}, {"pty", terminal},
	{"retention", dropOldest}, {"block", block}, {"writers", writers}, {"sandbox", sandboxes},
}

// spawn: whatever role dies, a process is started once and has its effect once.
func spawn(ctx context.Context, b *bench) error {
	code := b.rnd.IntN(90)
	id := process.NewID()
	file := filepath.Join(b.dir, string(id))
	spec := process.Spec{ID: id, Argv: b.argv("once", file, code)}
	if b.rnd.IntN(2) == 0 { // the child waits at the gate until its limits are set
		spec.Limits.Rlimits = []process.Rlimit{{Resource: syscall.RLIMIT_CORE}}
	}
	if err := b.whole(ctx, spec, process.Exit{Code: code}, nil); err != nil {
		return err
	}
	fi, err := os.Stat(file)
	if err != nil {
		return err
	}
	if fi.Size() != 1 {
		return fmt.Errorf("process %s ran %d times", id, fi.Size())
	}
	return os.Remove(file)
}

// stream: one process, read by the SDK, by raw native HTTP and by raw envd HTTP.
func stream(ctx context.Context, b *bench) error {
	n := int64(1+b.rnd.IntN(4<<20))&^7 + int64(b.rnd.IntN(8))
	code := b.rnd.IntN(90)
	pause := time.Duration(b.rnd.IntN(60)) * time.Millisecond
	spec := process.Spec{Argv: b.argv("write", n, pause, code)}
	aside, cancel := context.WithCancel(ctx)
	defer cancel()
	return b.whole(ctx, spec, process.Exit{Code: code}, func(p process.Process) error {
		info, err := p.Info(ctx)
		if err != nil {
			return fmt.Errorf("info: %w", err)
		}
		if b.cut { // readers that never read must not block others
			for _, f := range []rawFace{nativeFace, envdFace} {
				go f.stall(aside, b, string(p.ID()), info.PID)
			}
		}
		err = together(
			func() error { return b.read(ctx, p, n, nil) },
			func() error { return nativeFace.follow(ctx, b, string(p.ID()), info.PID, n, code) },
			func() error { return envdFace.follow(ctx, b, string(p.ID()), info.PID, n, code) })
		if err == nil {
			b.bytes.Add(2 * n)
		}
		return err
	})
}

// read checks all output of a process by the SDK. A gap is an error, unless the
// function gap is given and accepts it. If the process has the policy block,
// passed is called with the offset up to which the output was read.
func (b *bench) read(ctx context.Context, p process.Process, n int64, each func(ev *process.Event) error) error {
	var at [4]int64
	var exited *process.Exit
	for ev, err := range process.Events(ctx, p, process.ReadOptions{}) {
		if err != nil {
			return fmt.Errorf("read, at bytes %v of %d: %w", at, n, err)
		}
		switch ev.Kind {
		case process.EventOutput:
			if ev.Offset != at[ev.Stream] {
				return fmt.Errorf("%s goes on at %d after %d", ev.Stream, ev.Offset, at[ev.Stream])
			}
			if err := Check(ev.Data, ev.Offset); err != nil {
				return fmt.Errorf("%s: %w", ev.Stream, err)
			}
			at[ev.Stream] += int64(len(ev.Data))
			b.bytes.Add(int64(len(ev.Data)))
		case process.EventGap:
			if each == nil {
				return fmt.Errorf("%s has a gap from %d to %d", ev.Stream, ev.Gap.From, ev.Gap.To)
			}
			if ev.Gap.From != at[ev.Gap.Stream] || ev.Gap.To <= ev.Gap.From {
				return fmt.Errorf("%s: gap from %d to %d at %d", ev.Gap.Stream, ev.Gap.From, ev.Gap.To, at[ev.Gap.Stream])
			}
			at[ev.Gap.Stream] = ev.Gap.To
		case process.EventExited:
			if exited != nil {
				return errors.New("the exit was told twice")
			}
			exited = ev.Exit
		}
		if each != nil {
			if err := each(&ev); err != nil {
				return err
			}
		}
	}
	if exited == nil || at[process.Stdout] != n || at[process.Stderr] != n {
		return fmt.Errorf("ended at bytes %v (exit told: %+v); %d were written to each stream", at, exited, n)
	}
	return nil
}

// stdin: all input comes back once and in order.
func stdin(ctx context.Context, b *bench) error {
	n := int64(1 + b.rnd.IntN(1<<20))
	return b.whole(ctx, process.Spec{Argv: []string{"cat"}, Stdin: process.StdinPipe}, process.Exit{}, func(p process.Process) error {
		return together(
			func() error { return b.write(ctx, p, n, true) },
			func() error { return b.readOne(ctx, p, process.Stdout, n, "", "") })
	})
}

// write sends n bytes of the pattern at their offsets, each piece again and
// again until it is acknowledged.
func (b *bench) write(ctx context.Context, p process.Process, n int64, eof bool) error {
	buf := make([]byte, 16<<10)
	for at := int64(0); at < n; {
		piece := buf[:min(n-at, 1+rand.Int64N(int64(len(buf))))]
		fill(piece, at)
		end := at + int64(len(piece))
		if err := put(ctx, p, process.Input{Data: piece, Offset: &at, EOF: eof && end == n}); err != nil {
			return fmt.Errorf("write at %d of %d: %w", at, n, err)
		}
		at = end
		if rand.IntN(8) == 0 {
			time.Sleep(5 * time.Millisecond)
		}
	}
	return nil
}

// put repeats a write that may have been applied already. Its offset makes the
// repetition safe.
func put(ctx context.Context, p process.Process, in process.Input) error {
	return insist(ctx, func() error {
		_, err := p.Write(ctx, in)
		return err
	})
}

// readOne checks one stream: head, n bytes of the pattern, tail.
func (b *bench) readOne(ctx context.Context, p process.Process, s process.Stream, n int64, head, tail string) error {
	at := -int64(len(head))
	var rest []byte
	for ev, err := range process.Events(ctx, p, process.ReadOptions{Streams: []process.Stream{s}, Drain: -1}) {
		if err != nil {
			return fmt.Errorf("read, at byte %d of %d: %w", at, n, err)
		}
		if ev.Kind == process.EventGap {
			return fmt.Errorf("gap from %d to %d", ev.Gap.From, ev.Gap.To)
		}
		data := ev.Data
		for len(data) > 0 && at < 0 {
			if data[0] != head[int64(len(head))+at] {
				return fmt.Errorf("it begins with %q instead of %q", data, head)
			}
			data, at = data[1:], at+1
		}
		mid := data[:min(int64(len(data)), max(n-at, 0))]
		if err := Check(mid, at); err != nil {
			return err
		}
		at += int64(len(mid))
		b.bytes.Add(int64(len(mid)))
		rest = append(rest, data[len(mid):]...)
	}
	if at != n || string(rest) != tail {
		return fmt.Errorf("%d of %d bytes and then %q; want %q", at, n, rest, tail)
	}
	return nil
}

// exits: every kind of end is reported as it happened.
func exits(ctx context.Context, b *bench) error {
	type end struct {
		spec process.Spec
		do   func(p process.Process) error
		want process.Exit
		or   []process.Exit
	}
	timedOut := process.Exit{Signal: 9, Cause: process.CauseTimeout}
	code := b.rnd.IntN(90)
	ends := []end{
		{spec: process.Spec{Argv: b.argv("write", 8, "0s", code), Retention: process.Retention{Sync: process.SyncExit}},
			want: process.Exit{Code: code}},
		{spec: process.Spec{Argv: b.argv("signal", 9)}, want: process.Exit{Signal: 9, Cause: process.CauseSignalled}},
		{spec: process.Spec{Argv: b.argv("signal", 15)}, want: process.Exit{Signal: 15, Cause: process.CauseSignalled}},
		{spec: process.Spec{Argv: b.argv("sleep"), Timeout: time.Duration(20+b.rnd.IntN(100)) * time.Millisecond},
			want: timedOut},
		// Most of them end before their timeout, even if the keeper finds both at once.
		{spec: process.Spec{Argv: b.argv("signal", 15), Timeout: time.Duration(50+b.rnd.IntN(450)) * time.Millisecond},
			want: process.Exit{Signal: 15, Cause: process.CauseSignalled}, or: []process.Exit{timedOut}},
		{spec: process.Spec{Argv: b.argv("sleep")}, want: process.Exit{Signal: 9, Cause: process.CauseKilled},
			do: func(p process.Process) error {
				err := insist(ctx, func() error {
					_, err := p.Kill(ctx)
					return err
				})
				if err != nil && !errors.Is(err, process.ErrExited) { // an earlier try did it
					return fmt.Errorf("kill: %w", err)
				}
				return nil
			}},
	}
	var all []func() error
	for i, e := range ends {
		all = append(all, func() error {
			if err := b.whole(ctx, e.spec, e.want, e.do, e.or...); err != nil {
				return fmt.Errorf("end %d: %w", i, err)
			}
			return nil
		})
	}
	return together(all...)
}

// terminal: mode, size, input and output of a terminal outlive the roles.
func terminal(ctx context.Context, b *bench) error {
	n := int64(1 + b.rnd.IntN(64<<10))
	size := process.Size{Cols: uint16(20 + b.rnd.IntN(200)), Rows: uint16(10 + b.rnd.IntN(50))}
	typed := func(p process.Process) error {
		if _, err := p.Wait(ctx, process.Until{Match: "R"}); err != nil { // raw mode is on
			return fmt.Errorf("wait for raw mode: %w", err)
		}
		if err := b.write(ctx, p, n-1, false); err != nil {
			return err
		}
		if err := insist(ctx, func() error {
			_, err := p.Resize(ctx, process.Resize{To: size})
			return err
		}); err != nil {
			return fmt.Errorf("resize: %w", err)
		}
		last := make([]byte, 1)
		fill(last, n-1)
		at := n - 1
		return put(ctx, p, process.Input{Data: last, Offset: &at})
	}
	spec := process.Spec{Argv: b.argv("terminal", n), PTY: &process.Size{Cols: 80, Rows: 24}}
	return b.whole(ctx, spec, process.Exit{}, func(p process.Process) error {
		return together(
			func() error { return typed(p) },
			func() error {
				return b.readOne(ctx, p, process.PTY, n, "R", fmt.Sprintf("%dx%d", size.Cols, size.Rows))
			},
			func() error { return readSizes(ctx, p, *spec.PTY, size) })
	})
}

// readSizes checks that a terminal had these sizes, the first from its first byte on.
func readSizes(ctx context.Context, p process.Process, want ...process.Size) error {
	var got []process.Size
	for ev, err := range process.Events(ctx, p, process.ReadOptions{Drain: -1, Sizes: true}) {
		switch {
		case err != nil:
			return fmt.Errorf("read the sizes: %w", err)
		case ev.Kind != process.EventResized:
		case (ev.Offset == 0) != (len(got) == 0):
			return fmt.Errorf("size %v at byte %d after %v", ev.Size, ev.Offset, got)
		default:
			got = append(got, ev.Size)
		}
	}
	if want = slices.Compact(want); !slices.Equal(got, want) {
		return fmt.Errorf("sizes %v; want %v", got, want)
	}
	return nil
}

// dropOldest: a reader that is too slow receives each gap as an event, and all
// other bytes.
func dropOldest(ctx context.Context, b *bench) error {
	n := int64(2<<20 + b.rnd.IntN(2<<20))
	code := b.rnd.IntN(90)
	spec := process.Spec{Argv: b.argv("write", n, "10ms", code), Retention: process.Retention{Limit: 256 << 10}}
	return b.whole(ctx, spec, process.Exit{Code: code}, func(p process.Process) error {
		err := b.read(ctx, p, n, func(*process.Event) error {
			time.Sleep(2 * time.Millisecond)
			return nil
		})
		if err != nil {
			return err
		}
		return b.trimFinished(ctx, p, n)
	})
}

// trimFinished frees the head of a finished process's output. The rest must be
// unchanged.
func (b *bench) trimFinished(ctx context.Context, p process.Process, n int64) error {
	if err := insist(ctx, func() error { return p.Trim(ctx, process.Stdout, n-8<<10) }); err != nil {
		return fmt.Errorf("trim: %w", err)
	}
	return b.read(ctx, p, n, func(*process.Event) error { return nil })
}

// block: a process at its limit waits for its consumer, and loses nothing.
func block(ctx context.Context, b *bench) error {
	n := int64(1<<20 + b.rnd.IntN(1<<20))
	code := b.rnd.IntN(90)
	spec := process.Spec{Argv: b.argv("write", n, "0s", code), Retention: process.Retention{Limit: 128 << 10, Policy: process.Block}}
	return b.whole(ctx, spec, process.Exit{Code: code}, func(p process.Process) error {
		return b.read(ctx, p, n, func(ev *process.Event) error {
			if ev.Kind == process.EventGap {
				return fmt.Errorf("gap from %d to %d, with policy block", ev.Gap.From, ev.Gap.To)
			}
			if ev.Kind != process.EventOutput {
				return nil
			}
			err := insist(ctx, func() error { return p.Trim(ctx, ev.Stream, ev.Offset+int64(len(ev.Data))) })
			if err != nil && !errors.Is(err, process.ErrExited) {
				return fmt.Errorf("trim: %w", err)
			}
			return nil
		})
	})
}
