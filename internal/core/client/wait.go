//go:build linux

package client

import (
	"context"

	"github.com/tend-run/tend/internal/core/spool"
	"github.com/tend-run/tend/internal/observe"
	"github.com/tend-run/tend/process"
)

// Wait implements process.Process.
func (p *proc) Wait(ctx context.Context, until process.Until) (process.WaitResult, error) {
	return observe.Wait(ctx, observer{p}, until)
}

var _ process.PortLister = (*proc)(nil)

// Listening implements process.PortLister.
func (p *proc) Listening(ctx context.Context) ([]process.Listener, error) {
	in, err := p.Info(ctx)
	if err != nil || in.Exit != nil {
		return nil, err
	}
	return observe.Listening(in.PID, in.Session)
}

// observer reads without counting as a reader: a wait for a condition does not
// keep a process alive that lives only while it has readers.
type observer struct{ *proc }

func (o observer) Read(_ context.Context, opts process.ReadOptions) (process.Reader, error) {
	return o.read(o, opts)
}

// Progress implements spool.Source. An exit ends a wait at once, even if there
// is no room for the output before it.
func (o observer) Progress() spool.Progress {
	p := o.proc.Progress()
	p.Held = false
	return p
}

// Subscribe implements spool.Source.
func (o observer) Subscribe(ready chan<- struct{}) (cancel func()) { return o.listen(ready) }
