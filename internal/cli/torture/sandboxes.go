//go:build linux

package torture

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// sandboxes: the processes of a sandbox write, read and end like any others, also while it
// is paused and resumed; it is found again after each death, and removed at the end. Where
// the machine isolates nothing there is nothing to do.
func sandboxes(ctx context.Context, b *bench) error {
	sandbox := tend.NewSandbox(b.c, tend.SandboxSpec{Isolation: tend.IsolationFull, Name: "t" + string(process.NewID())})
	inner := *b
	err := insist(ctx, func() (err error) {
		inner.c, err = sandbox.Client(ctx)
		return err
	})
	switch {
	case errors.Is(err, process.ErrUnsupported):
		time.Sleep(100 * time.Millisecond)
		return nil
	case err != nil:
		return fmt.Errorf("sandbox: %w", err)
	}
	n, code := int64(1+b.rnd.IntN(256<<10)), b.rnd.IntN(90)
	err = together(
		func() error {
			return inner.whole(ctx, process.Spec{Argv: []string{"cat"}, Stdin: process.StdinPipe}, process.Exit{}, func(p process.Process) error {
				return together(
					func() error { return inner.write(ctx, p, n, true) },
					func() error { return inner.readOne(ctx, p, process.Stdout, n, "", "") },
					func() error { return pauses(ctx, sandbox, 3) })
			})
		},
		func() error { return inner.ends(ctx, process.Spec{Shell: fmt.Sprintf("exit %d", code)}, code) })
	if err != nil {
		return err
	}
	return insist(ctx, func() error {
		err := sandbox.Destroy(ctx)
		if errors.Is(err, process.ErrNotFound) { // an earlier try did it
			return nil
		}
		return err
	})
}

// ends starts a process and checks its end. A sandbox that is paused at that moment is
// asked again.
func (b *bench) ends(ctx context.Context, spec process.Spec, code int) error {
	spec.ID = process.NewID()
	for {
		err := b.whole(ctx, spec, process.Exit{Code: code}, nil)
		if !errors.Is(err, tend.ErrSandboxPaused) || ctx.Err() != nil {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// pauses has all in a sandbox stand still for a moment, over and over.
func pauses(ctx context.Context, sandbox *tend.Sandbox, times int) error {
	for range times {
		err := insist(ctx, func() error { return sandbox.Pause(ctx) })
		if errors.Is(err, process.ErrUnsupported) { // it takes cgroup v2
			return nil
		}
		if err != nil {
			return fmt.Errorf("pause: %w", err)
		}
		time.Sleep(5 * time.Millisecond)
		if err := insist(ctx, func() error { return sandbox.Resume(ctx) }); err != nil {
			return fmt.Errorf("resume: %w", err)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return nil
}
