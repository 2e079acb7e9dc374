package sandboxrecord

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/process"
)

// End kills the processes of a sandbox with their trees, and removes the finished
// ones with their output if remove is set. No start may be under way.
func End(ctx context.Context, m process.Manager, id driver.ID, remove bool) error {
	infos, err := List(ctx, m, id, !remove)
	if err != nil {
		return err
	}
	var errs []error
	var mu sync.Mutex
	var wg sync.WaitGroup
	gate := make(chan struct{}, 16)
	for _, info := range infos {
		gate <- struct{}{}
		wg.Go(func() {
			defer func() { <-gate }()
			if err := endOne(ctx, m, info.ID, remove); err != nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// List returns the processes of a sandbox.
func List(ctx context.Context, m process.Manager, id driver.ID, live bool) ([]process.Info, error) {
	return m.List(process.Brief(ctx), process.Filter{Labels: map[string]string{process.LabelSandbox: string(id)}, Live: live})
}

// goneWait bounds how long a tree that was killed is waited for. What is left then is an
// error of Remove's.
const goneWait = 10 * time.Second

func endOne(ctx context.Context, m process.Manager, id process.ID, remove bool) error {
	p, err := m.Get(ctx, process.Selector{ID: id})
	if errors.Is(err, process.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	// On a finished process this ends what is left of its tree.
	if _, err := p.Kill(ctx); err != nil && !errors.Is(err, process.ErrExited) && !errors.Is(err, process.ErrNotFound) {
		return err
	}
	if !remove {
		return nil
	}
	// The kernel tells of the end of the whole tree a moment after that of the leader.
	soon, cancel := context.WithTimeout(ctx, goneWait)
	defer cancel()
	if _, err := p.Wait(soon, process.Until{TreeGone: true}); err != nil && !errors.Is(err, process.ErrNotFound) && soon.Err() == nil {
		return err
	}
	if err := p.Remove(ctx); err != nil && !errors.Is(err, process.ErrNotFound) {
		return err
	}
	return nil
}
