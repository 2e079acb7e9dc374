package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"slices"
	"syscall"

	"github.com/tend-run/tend/process"
)

type eventsCmd struct {
	Follow bool   `short:"f" help:"Go on with what happens from now on."`
	ID     string `arg:"" optional:"" help:"Only of this process."`
}

func (c *eventsCmd) Run(ctx context.Context, inv *invocation) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	d, err := inv.connect(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	only := process.ID("")
	if c.ID != "" {
		p, err := d.find(ctx, c.ID)
		if err != nil {
			return err
		}
		only = p.ID()
	}
	v := &eventView{inv: inv, d: d, only: only, told: map[process.ID]process.EventKind{}, commands: map[process.ID]string{}}
	if !c.Follow {
		return v.past(ctx)
	}
	ctx, stop = inv.whileRead(ctx)
	defer stop()
	for {
		err := v.follow(ctx)
		if ctx.Err() != nil {
			return left(ctx)
		}
		// Having fallen behind is told by the watcher; the list fills in what
		// was missed.
		if !errors.Is(err, process.ErrLagged) {
			return err
		}
	}
}

// eventView prints the lifecycle facts of processes, each once.
type eventView struct {
	inv  *invocation
	d    *daemon
	only process.ID // "": all
	// told holds the last fact printed of each process.
	told     map[process.ID]process.EventKind
	commands map[process.ID]string
}

// follow prints what is known, then what happens. The watcher is opened before
// the list is read, so that nothing falls between the two.
func (v *eventView) follow(ctx context.Context) error {
	w, err := v.d.Watch(ctx)
	if err != nil {
		return err
	}
	defer w.Close()
	if err := v.past(ctx); err != nil {
		return err
	}
	for {
		ev, ok, err := w.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case ok:
			if err := v.tell(ctx, ev); err != nil {
				return err
			}
			continue
		}
		select {
		case <-w.Ready():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// past prints the facts of all known processes in the order of their times.
func (v *eventView) past(ctx context.Context) error {
	infos, err := v.d.List(ctx, process.Filter{})
	if err != nil {
		return err
	}
	var facts []process.Event
	for i := range infos {
		info := &infos[i]
		v.commands[info.ID] = info.Spec.Command()
		facts = append(facts, process.Event{Kind: process.EventStarted, ID: info.ID, Time: info.Started, PID: info.PID})
		if info.Exit != nil {
			facts = append(facts, process.Event{Kind: process.EventExited, ID: info.ID, Time: info.Exit.Time, PID: info.PID, Exit: info.Exit})
		}
	}
	slices.SortStableFunc(facts, func(a, b process.Event) int { return a.Time.Compare(b.Time) })
	for _, ev := range facts {
		if err := v.tell(ctx, ev); err != nil {
			return err
		}
	}
	return nil
}

// tell prints a fact unless it was printed before: the list and the watcher
// may both know it.
func (v *eventView) tell(ctx context.Context, ev process.Event) error {
	if v.only != "" && ev.ID != v.only || v.told[ev.ID] >= ev.Kind {
		return nil
	}
	v.told[ev.ID] = ev.Kind
	command, known := v.commands[ev.ID]
	if !known && ev.Kind == process.EventStarted {
		command = v.lookUp(ctx, ev.ID)
	}
	v.commands[ev.ID] = command
	if ev.Kind == process.EventRemoved {
		delete(v.commands, ev.ID)
	}
	if v.inv.flags.JSON {
		return printJSONLine(v.inv.out, eventFactsOf(ev, command))
	}
	return v.print(ev, command)
}

// lookUp asks for the command of a process that just started. One that is
// gone already has none.
func (v *eventView) lookUp(ctx context.Context, id process.ID) string {
	p, err := v.d.Get(ctx, process.Selector{ID: id})
	if err != nil {
		return ""
	}
	info, err := p.Info(ctx)
	if err != nil {
		return ""
	}
	return info.Spec.Command()
}

func (v *eventView) print(ev process.Event, command string) error {
	colour := v.inv.colours(v.inv.out)
	kind, detail := ev.Kind.String(), printable(command)
	switch ev.Kind {
	case process.EventStarted:
		kind = paint(colour, green, kind)
		detail = fmt.Sprintf("pid %d  %s", ev.PID, detail)
	case process.EventExited:
		sgr := dim
		if ev.Exit != nil && ev.Exit.ShellStatus() != 0 {
			sgr = red
		}
		kind = paint(colour, sgr, kind)
		if ev.Exit != nil {
			detail = fmt.Sprintf("%s (%s)  %s", ev.Exit, ev.Exit.Cause, detail)
		}
	}
	at := "-"
	if !ev.Time.IsZero() {
		at = ev.Time.Local().Format("2006-01-02 15:04:05.000")
	}
	_, err := fmt.Fprintf(v.inv.out, "%-23s  %s  %s  %s\n", at, cmp.Or(shortID(ev.ID, 14), "-"), kind, detail)
	return err
}
