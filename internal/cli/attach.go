package cli

import (
	"context"
	"errors"
	"io"
	"syscall"

	"github.com/tend-run/tend/process"
)

type attachCmd struct {
	inSandbox
	NoInput bool  `name:"no-input" help:"Watch only: keys do not reach the process."`
	Replay  int64 `default:"1048576" placeholder:"BYTES" help:"How much earlier output the screen is built from. Default: 1048576."`

	ID string `arg:"" complete:"live" help:"The process."`
}

func (c *attachCmd) Run(ctx context.Context, inv *invocation) error {
	if c.Replay < 0 {
		return usageError("--replay is negative; give a number of bytes")
	}
	signals := catchSignals()
	_, p, err := inv.open(ctx, c.ID)
	if err != nil {
		return err
	}
	info, err := p.Info(ctx)
	if err != nil {
		return about(c.ID, err)
	}
	_, tty := info.Stream(process.PTY)
	f := &foreground{
		inv: inv, proc: p, tty: tty, signals: signals, detachable: info.Exit == nil,
		input: !c.NoInput && info.Exit == nil && (tty || info.Stdin.Open),
	}
	if tty {
		f.left = new(leftModes)
		if err = c.showScreen(ctx, inv, &info, f); err != nil {
			if f.hungUp() {
				return statusError(128 + int(syscall.SIGHUP))
			}
			return about(c.ID, err)
		}
		defer f.giveBack(ctx)
	} else {
		for _, s := range info.Streams {
			f.from[s.Stream] = max(s.Base, s.End-c.Replay)
		}
	}
	exit, err := f.run(ctx)
	if errors.Is(err, errDetached) {
		if errors.Is(err, errHungUp) {
			return statusError(128 + int(syscall.SIGHUP))
		}
		inv.note("detached; the process goes on, tend attach %s comes back", c.ID)
		return nil
	}
	if err != nil {
		return about(c.ID, err)
	}
	return inv.exitAs(exit)
}

// showScreen draws what a terminal that had been there from the start would
// show, and gives the process the size of ours; f continues from there. The
// earlier output itself is not sent to the terminal: it may hold questions
// (cursor position, device attributes) whose answers would arrive as typing.
func (c *attachCmd) showScreen(ctx context.Context, inv *invocation, info *process.Info, f *foreground) error {
	stream, _ := info.Stream(process.PTY)
	f.from[process.PTY] = max(stream.Base, stream.End-c.Replay)
	size, ok := terminalSize(inv.out)
	if !ok {
		return nil // no screen: the output itself, for scripts
	}
	screen, next, err := replay(ctx, f.proc, f.from, size)
	if err != nil {
		return err
	}
	if err := screen.draw(io.MultiWriter(f.left, inv.out)); err != nil {
		return err
	}
	f.from[process.PTY] = next
	if info.Exit != nil {
		return nil
	}
	f.before, err = nudge(ctx, f.proc, size)
	f.size = size
	return err
}

// nudge makes a full-screen program draw itself again. The kernel signals a
// change of size only if it is one, so the size is changed twice. It returns the
// size before.
func nudge(ctx context.Context, p process.Process, size process.Size) (before process.Size, err error) {
	other := size
	if other.Rows--; size.Rows <= 1 {
		other.Rows = size.Rows + 1
	}
	for i, to := range []process.Size{other, size} {
		was, err := p.Resize(ctx, process.Resize{To: to})
		if err != nil && !errors.Is(err, process.ErrExited) {
			return before, err
		}
		if i == 0 {
			before = was
		}
	}
	return before, nil
}
