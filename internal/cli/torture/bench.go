//go:build linux

package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// bench is what one scenario works with.
type bench struct {
	c        *tend.Client
	url      string
	cut      bool     // connections are broken
	workload []string // command line of Work
	dir      string   // for the workload's own files
	rnd      *rand.Rand
	bytes    *atomic.Int64 // checked
	statuses *atomic.Int64 // checked
}

func (b *bench) argv(args ...any) []string {
	argv := append([]string(nil), b.workload...)
	for _, a := range args {
		argv = append(argv, fmt.Sprint(a))
	}
	return argv
}

// together runs functions at once and joins their errors.
func together(all ...func() error) error {
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, f := range all {
		wg.Go(func() { errs[i] = f() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// whole starts a process, does something with it unless do is nil, and checks its
// end.
func (b *bench) whole(ctx context.Context, spec process.Spec, want process.Exit, do func(p process.Process) error,
	or ...process.Exit) error {
	p, err := b.c.Start(ctx, spec)
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	if do != nil {
		if err := do(p); err != nil {
			return fmt.Errorf("process %s: %w", p.ID(), err)
		}
	}
	return b.end(ctx, p, want, or...)
}

// end waits for the end, checks the status, which is want or one of the others,
// and forgets the process.
func (b *bench) end(ctx context.Context, p process.Process, want process.Exit, or ...process.Exit) error {
	var r process.WaitResult
	err := insist(ctx, func() (err error) {
		r, err = p.Wait(ctx, process.Until{EOF: true})
		return err
	})
	if err != nil {
		return fmt.Errorf("process %s: wait: %w", p.ID(), err)
	}
	same := func(want process.Exit) bool {
		return r.Exit != nil && r.Exit.Code == want.Code && r.Exit.Signal == want.Signal && r.Exit.Cause == want.Cause
	}
	if !same(want) && !slices.ContainsFunc(or, same) {
		return fmt.Errorf("process %s ended with %+v; want %+v", p.ID(), r.Exit, append(or, want))
	}
	b.statuses.Add(1)
	err = insist(ctx, func() error {
		err := p.Remove(ctx)
		switch {
		case errors.Is(err, process.ErrNotFound): // an earlier try did it
			return nil
		case errors.Is(err, process.ErrRunning): // a moment before the tree is gone
			return fmt.Errorf("%w: %w", process.ErrUnavailable, err)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("process %s: remove: %w", p.ID(), err)
	}
	return nil
}

// insist tries again while a role is dead. The SDK does most of that by itself,
// but not for what a caller asked to kill, nor for what it cannot know to be
// safe to repeat. When the time is up, the error says why it was not done before.
func insist(ctx context.Context, f func() error) error {
	for last := error(nil); ; {
		err := f()
		switch {
		case err != nil && ctx.Err() != nil && last != nil:
			return fmt.Errorf("%w; before that: %w", err, last)
		case err == nil, !errors.Is(err, process.ErrUnavailable), ctx.Err() != nil:
			return err
		}
		last = err
		time.Sleep(5 * time.Millisecond)
	}
}
