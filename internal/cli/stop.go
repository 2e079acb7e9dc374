package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tend-run/tend/process"
)

// grace says how a process is asked to end, and how long it may take.
type grace struct {
	Time   time.Duration `short:"t" aliases:"timeout" default:"10s" placeholder:"10s" help:"Time before the remaining processes are killed. Default: 10s."`
	Signal string        `short:"s" default:"TERM" placeholder:"SIG" complete:"signal" help:"The signal that asks it and its descendants to end. Default: TERM."`
}

// usualGrace is the default of grace.
const usualGrace = 10 * time.Second

// read checks both.
func (g *grace) read() (sig int, err error) {
	if g.Time < 0 || g.Time > process.MaxTimeout {
		return 0, usageError(fmt.Sprintf("--time is %v; 0 to %v are allowed", g.Time, process.MaxTimeout))
	}
	return parseSignal(g.Signal)
}

// stopFacts are killFacts, and whether it had to be killed.
type stopFacts struct {
	killFacts
	Forced bool `json:"forced"` // it, or a descendant, outlived the grace
}

// stop asks a process and its descendants to end, waits, and kills what is left.
func (inv *invocation) stop(ctx context.Context, p process.Process, id string, g *grace, sig int) (*stopFacts, error) {
	forced := false
	switch err := p.Signal(ctx, sig, process.ScopeTree); {
	case errors.Is(err, process.ErrExited):
	case err != nil:
		return nil, about(id, err)
	default:
		waiting, cancel := context.WithTimeout(ctx, g.Time)
		res, err := p.Wait(waiting, process.Until{TreeGone: true})
		late := waiting.Err() != nil
		cancel()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil && !late {
			return nil, about(id, err)
		}
		forced = late || !res.Met
	}
	killed, err := inv.killTree(ctx, p, id)
	if killed == nil {
		return nil, err
	}
	return &stopFacts{killFacts: *killed, Forced: forced && !killed.Exited}, err
}

type stopCmd struct {
	inSandbox
	grace
	allFlag

	IDs []string `arg:"" name:"id" optional:"" complete:"live" help:"The processes."`
}

func (c *stopCmd) Run(ctx context.Context, inv *invocation) error {
	sig, err := c.grace.read()
	if err == nil {
		err = c.check(c.IDs)
	}
	if err != nil {
		return err
	}
	d, err := inv.connect(ctx)
	if err != nil {
		return err
	}
	if c.IDs, err = c.choose(ctx, inv, d, c.IDs, false); err != nil {
		return err
	}
	done := inv.progress("stopping")
	defer done()
	// At once: the grace of one is that of all.
	facts, services := make([]*stopFacts, len(c.IDs)), make([]string, len(c.IDs))
	failed := atOnce(c.IDs, func(i int, id string) error {
		p, err := d.find(ctx, id)
		if err == nil {
			services[i] = inv.serviceOf(ctx, d, p)
			facts[i], err = inv.stop(ctx, p, id, &c.grace, sig)
		}
		return err
	})
	done()
	for i, f := range facts {
		switch {
		case f == nil:
		case inv.flags.JSON:
			if err := printJSONLine(inv.out, f); err != nil {
				return err
			}
		case f.Forced:
			inv.note("%s did not end within %v, and was killed", c.IDs[i], c.Time)
		}
		if f != nil {
			inv.noteService(services[i], c.IDs[i])
		}
	}
	return errors.Join(failed...)
}

type restartCmd struct {
	inSandbox
	grace
	allFlag

	IDs []string `arg:"" name:"id" optional:"" complete:"process" help:"The processes, running or finished. If a process belongs to a service, the service is restarted by its own rules."`
}

// Run ends each process and starts it again from its spec, with a new id. The
// former process is kept as any that has finished; the name finds the new one.
func (c *restartCmd) Run(ctx context.Context, inv *invocation) error {
	sig, err := c.grace.read()
	if err == nil {
		err = c.check(c.IDs)
	}
	if err != nil {
		return err
	}
	d, err := inv.connect(ctx)
	if err != nil {
		return err
	}
	ids, err := c.choose(ctx, inv, d, c.IDs, true)
	if err != nil {
		return err
	}
	return each(ids, func(id string) error {
		p, err := d.find(ctx, id)
		if inv.sandbox == "" && (err == nil || errors.Is(err, process.ErrNotFound)) {
			switch of, err := d.restartService(ctx, id, p); {
			case err != nil:
				return about(id, err)
			case of:
				return inv.actedOnServices([]string{id})
			}
		}
		if err != nil {
			return err
		}
		info, err := p.Info(ctx)
		if err != nil {
			return about(id, err)
		}
		starts := d
		if box := info.Spec.Labels[process.LabelSandbox]; box != "" && inv.sandbox == "" {
			own := *inv
			own.sandbox = box
			if starts, err = own.within(ctx, d, true); err != nil {
				return about(id, err)
			}
		}
		if info.Exit == nil || !info.TreeGone {
			// What may be another's never ends for us: the new one starts beside it.
			switch _, err := inv.stop(ctx, p, id, &c.grace, sig); {
			case errors.Is(err, errStrays) && !errors.Is(err, errSurvivors):
				inv.note("%v", err)
			case err != nil:
				return err
			}
		}
		spec := info.Spec
		spec.ID = ""
		next, err := starts.Start(process.EnvOf(ctx, info.ID), spec)
		if err != nil {
			return about(id, fmt.Errorf("it has ended and could not be started again: %w", err))
		}
		return inv.announce(ctx, next)
	})
}
