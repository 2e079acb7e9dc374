package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/tend-run/tend/process"
)

type signalCmd struct {
	ID     string `arg:"" help:"The process."`
	Signal string `arg:"" help:"A name, with or without SIG, or a number."`
	Leader bool   `xor:"scope" help:"Only the process itself, not its descendants."`
	Group  bool   `xor:"scope" help:"Only its process group."`
}

func (c *signalCmd) Run(ctx context.Context, inv *invocation) error {
	sig, err := parseSignal(c.Signal)
	if err != nil {
		return err
	}
	scope := process.ScopeTree
	switch {
	case c.Leader:
		scope = process.ScopeLeader
	case c.Group:
		scope = process.ScopeGroup
	}
	d, err := inv.connect(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	p, err := d.find(ctx, c.ID)
	if err != nil {
		return err
	}
	if err := about(c.ID, p.Signal(ctx, sig, scope)); err != nil {
		return err
	}
	if inv.flags.JSON {
		return printJSON(inv.out, map[string]any{"id": p.ID(), "signal": signalName(sig)})
	}
	return nil
}

// parseSignal reads "TERM", "SIGTERM", "term" or "15".
func parseSignal(text string) (int, error) {
	if n, err := strconv.Atoi(text); err == nil {
		if n < 1 || n > 64 {
			return 0, usageError(fmt.Sprintf("signal %d does not exist; 1 to 64 do", n))
		}
		return n, nil
	}
	if sig := process.SignalNumber(text); sig != 0 {
		return sig, nil
	}
	return 0, usageError(fmt.Sprintf("signal %q is not known; give a name like TERM or a number (kill -l lists them)", text))
}

type killCmd struct {
	IDs []string `arg:"" name:"id" help:"The processes."`
}

func (c *killCmd) Run(ctx context.Context, inv *invocation) error {
	d, err := inv.connect(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	return each(c.IDs, func(id string) error { return inv.kill(ctx, d, id) })
}

// kill ends one process. That it has ended before is no failure: what was
// asked for is so.
func (inv *invocation) kill(ctx context.Context, d *daemon, id string) error {
	p, err := d.find(ctx, id)
	if err != nil {
		return err
	}
	res, err := p.Kill(ctx)
	gone := errors.Is(err, process.ErrExited)
	if err != nil && !gone {
		return about(id, err)
	}
	if inv.flags.JSON {
		facts := killFacts{ID: p.ID(), Verified: res.Verified || gone, Survivors: []int{}, Exited: gone}
		facts.Survivors = append(facts.Survivors, res.Survivors...)
		if err := printJSONLine(inv.out, facts); err != nil {
			return err
		}
	} else if gone {
		fmt.Fprintf(inv.errs, "tend: %s had ended before\n", id)
	}
	if len(res.Survivors) > 0 {
		return fmt.Errorf("%s: %d processes did not die (pids %s); they are in an uninterruptible system call and end when it returns",
			id, len(res.Survivors), strings.Trim(fmt.Sprint(res.Survivors), "[]"))
	}
	return nil
}

type rmCmd struct {
	IDs   []string `arg:"" name:"id" help:"The processes."`
	Force bool     `short:"f" help:"Kill those that still run."`
}

func (c *rmCmd) Run(ctx context.Context, inv *invocation) error {
	d, err := inv.connect(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	return each(c.IDs, func(id string) error {
		p, err := d.find(ctx, id)
		if err != nil {
			return err
		}
		if c.Force {
			if _, err := p.Kill(ctx); err != nil && !errors.Is(err, process.ErrExited) {
				return about(id, err)
			}
		}
		if err := about(id, p.Remove(ctx)); err != nil {
			return err
		}
		if inv.flags.JSON {
			return printJSONLine(inv.out, map[string]any{"id": p.ID(), "removed": true})
		}
		return nil
	})
}

type pinCmd struct {
	IDs []string `arg:"" name:"id" help:"The processes."`
}

func (c *pinCmd) Run(ctx context.Context, inv *invocation) error { return inv.pin(ctx, c.IDs, true) }

type unpinCmd struct {
	IDs []string `arg:"" name:"id" help:"The processes."`
}

func (c *unpinCmd) Run(ctx context.Context, inv *invocation) error {
	return inv.pin(ctx, c.IDs, false)
}

func (inv *invocation) pin(ctx context.Context, ids []string, pinned bool) error {
	d, err := inv.connect(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	return each(ids, func(id string) error {
		p, err := d.find(ctx, id)
		if err != nil {
			return err
		}
		if err := about(id, p.Pin(ctx, pinned)); err != nil {
			return err
		}
		if inv.flags.JSON {
			return printJSONLine(inv.out, map[string]any{"id": p.ID(), "pinned": pinned})
		}
		return nil
	})
}

// each calls act for every id and goes on after failures.
func each(ids []string, act func(id string) error) error {
	var failed []error
	for _, id := range ids {
		if err := act(id); err != nil {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}
