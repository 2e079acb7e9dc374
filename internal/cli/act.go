package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"syscall"

	"github.com/tend-run/tend/process"
)

type signalCmd struct {
	inSandbox
	ID     string `arg:"" complete:"live" help:"The process."`
	Signal string `arg:"" complete:"signal" help:"A name, with or without SIG, or a number."`
	Leader bool   `xor:"scope" help:"Only the process itself, not its descendants."`
	Group  bool   `xor:"scope" help:"Only its process group."`
}

func (c *signalCmd) Run(ctx context.Context, inv *invocation) error {
	id, sig, err := c.read()
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
	_, p, err := inv.open(ctx, id)
	if err != nil {
		return err
	}
	return inv.signal(ctx, p, id, sig, scope)
}

// read takes the signal after the process, or before it as with kill.
func (c *signalCmd) read() (id string, sig int, err error) {
	if sig, err = parseSignal(c.Signal); err == nil {
		return c.ID, sig, nil
	}
	if first, e := parseSignal(c.ID); e == nil {
		return c.Signal, first, nil
	}
	return "", 0, err
}

func (inv *invocation) signal(ctx context.Context, p process.Process, id string, sig int, scope process.Scope) error {
	if err := about(id, p.Signal(ctx, sig, scope)); err != nil || !inv.flags.JSON {
		return err
	}
	return printJSON(inv.out, map[string]any{"id": p.ID(), "signal": signalName(sig)})
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
	inSandbox
	Signal string `short:"s" placeholder:"SIG" complete:"signal" help:"Send this signal to the process and its descendants, and do not wait; -9, -KILL and the like are the same as -s."`
	allFlag
	IDs []string `arg:"" name:"id" optional:"" complete:"live" help:"The processes."`
}

// asUsual: kill -9, -KILL and -SIGKILL are kill -s.
func (*killCmd) asUsual(word string) string {
	name := word[1:]
	if _, err := parseSignal(name); err != nil || name == "s" || name == "h" {
		return word
	}
	return "--signal=" + name
}

func (c *killCmd) Run(ctx context.Context, inv *invocation) error {
	if err := c.check(c.IDs); err != nil {
		return err
	}
	sig := int(syscall.SIGKILL)
	if c.Signal != "" {
		var err error
		if sig, err = parseSignal(c.Signal); err != nil {
			return err
		}
	}
	d, err := inv.connect(ctx)
	if err != nil {
		return err
	}
	ids, err := c.choose(ctx, inv, d, c.IDs, false)
	if err != nil {
		return err
	}
	return d.each(ctx, ids, func(p process.Process, id string) error {
		if sig != int(syscall.SIGKILL) {
			return inv.signal(ctx, p, id, sig, process.ScopeTree)
		}
		of := inv.serviceOf(ctx, d, p)
		err := inv.kill(ctx, p, id)
		if err == nil {
			inv.noteService(of, id)
		}
		return err
	})
}

// kill ends one process. That it has ended before is no failure: what was
// asked for is so.
func (inv *invocation) kill(ctx context.Context, p process.Process, id string) error {
	facts, err := inv.killTree(ctx, p, id)
	if facts == nil {
		return err
	}
	if inv.flags.JSON {
		if err := printJSONLine(inv.out, facts); err != nil {
			return err
		}
	} else if facts.Exited {
		inv.note("%s had ended before", id)
	}
	return err
}

// A kill of which the kernel could not say that it reached all. Both are exit
// status 1: a script must not continue as if nothing were left.
var (
	errSurvivors = errors.New("not all processes died")
	errStrays    = errors.New("it is unknown whether all processes died")
)

// killTree kills and returns what became of it; without facts nothing did.
func (inv *invocation) killTree(ctx context.Context, p process.Process, id string) (*killFacts, error) {
	res, err := p.Kill(ctx)
	gone := errors.Is(err, process.ErrExited)
	if err != nil && !gone {
		return nil, about(id, err)
	}
	facts := &killFacts{ID: p.ID(), Verified: res.Verified || gone, Survivors: []int{}, Strays: res.Strays, Names: res.Names, Exited: gone}
	facts.Survivors = append(facts.Survivors, res.Survivors...)
	var left []error
	if len(res.Survivors) > 0 {
		left = append(left, fmt.Errorf("%s: %w: %d are left (pids %s); they are in an uninterruptible system call and end when it returns",
			id, errSurvivors, len(res.Survivors), named(res.Survivors, res.Names)))
	}
	if len(res.Strays) > 0 {
		left = append(left, fmt.Errorf("%s: %w: it is unknown whether these belong to it, so they were not killed: pids %s; if they do, end them with kill(1)",
			id, errStrays, named(res.Strays, res.Names)))
	}
	if len(left) == 0 && !facts.Verified && !inv.flags.JSON {
		inv.note("%s: all of its processes that were found are dead; this machine cannot confirm that there were no others (kill_reaches_tree in tend status)", id)
	}
	return facts, errors.Join(left...)
}

type rmCmd struct {
	inSandbox
	IDs      []string `arg:"" name:"id" optional:"" complete:"finished" help:"The processes."`
	Force    bool     `short:"f" help:"Kill those that still run."`
	Finished bool     `help:"All finished processes, except pinned ones."`
	All      bool     `short:"a" help:"The same; with -f, also all that run, but for those of services and, without --sandbox, of sandboxes."`
}

func (c *rmCmd) Run(ctx context.Context, inv *invocation) error {
	switch {
	case len(c.IDs) == 0 && !c.Finished && !c.All:
		return usageError("give the processes to forget, or --finished for all that have ended")
	case len(c.IDs) > 0 && (c.Finished || c.All), c.Force && c.Finished:
		return usageError("--finished and --all go with no id, and --finished with no -f")
	}
	d, err := inv.connect(ctx)
	if err != nil {
		return err
	}
	if c.All && c.Force {
		live, err := (&allFlag{true}).choose(ctx, inv, d, nil, false)
		if err == nil {
			err = d.each(ctx, live, func(p process.Process, id string) error { _, err := inv.killTree(ctx, p, id); return err })
		}
		if err != nil {
			return err
		}
	}
	if c.Finished || c.All {
		return c.finished(ctx, inv, d)
	}
	return d.each(ctx, c.IDs, func(p process.Process, id string) error {
		if c.Force {
			if _, err := inv.killTree(ctx, p, id); err != nil {
				return err
			}
		}
		return inv.remove(ctx, p, id)
	})
}

// finished forgets what has ended and left nothing that runs.
func (c *rmCmd) finished(ctx context.Context, inv *invocation, d *daemon) error {
	all, err := d.List(ctx, process.Filter{})
	if err != nil {
		return err
	}
	removed := 0
	var failed []error
	for i := range all {
		if all[i].Exit == nil || all[i].Pinned {
			continue
		}
		p, err := d.Get(ctx, process.Selector{ID: all[i].ID})
		if err == nil {
			err = inv.remove(ctx, p, string(all[i].ID))
		}
		switch {
		case err == nil:
			removed++
		case errors.Is(err, process.ErrNotFound): // another client was faster
		case errors.Is(err, process.ErrRunning):
			inv.note("%s", explain(err)) // what is left of it
		default:
			failed = append(failed, err)
		}
	}
	if !inv.flags.JSON {
		fmt.Fprintf(inv.out, "%d removed\n", removed)
	}
	return errors.Join(failed...)
}

func (inv *invocation) remove(ctx context.Context, p process.Process, id string) error {
	if err := about(id, p.Remove(ctx)); err != nil || !inv.flags.JSON {
		return err
	}
	return printJSONLine(inv.out, map[string]any{"id": p.ID(), "removed": true})
}

type pinCmd struct {
	inSandbox
	IDs []string `arg:"" name:"id" complete:"process" help:"The processes."`
}

func (c *pinCmd) Ask(ctx context.Context, inv *invocation, d *daemon) error {
	return inv.pin(ctx, d, c.IDs, true)
}

type unpinCmd struct {
	inSandbox
	IDs []string `arg:"" name:"id" complete:"process" help:"The processes."`
}

func (c *unpinCmd) Ask(ctx context.Context, inv *invocation, d *daemon) error {
	return inv.pin(ctx, d, c.IDs, false)
}

func (inv *invocation) pin(ctx context.Context, d *daemon, ids []string, pinned bool) error {
	return d.each(ctx, ids, func(p process.Process, id string) error {
		if err := about(id, p.Pin(ctx, pinned)); err != nil || !inv.flags.JSON {
			return err
		}
		return printJSONLine(inv.out, map[string]any{"id": p.ID(), "pinned": pinned})
	})
}

// open connects, and finds a process.
func (inv *invocation) open(ctx context.Context, id string) (*daemon, process.Process, error) {
	d, err := inv.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	p, err := d.find(ctx, id)
	return d, p, err
}

// allFlag is of verbs that are for some processes, or for all.
type allFlag struct {
	All bool `short:"a" help:"All that run; without --sandbox, on the machine itself."`
}

// check wants one of the two.
func (a *allFlag) check(given []string) error {
	if a.All == (len(given) > 0) {
		return usageError("give the processes, or --all for all that run")
	}
	return nil
}

// choose returns the words for the processes: those that were given, or of all that run. Those of
// services are among them by the names of these, or not at all: tend down ends them.
func (a *allFlag) choose(ctx context.Context, inv *invocation, d *daemon, given []string, services bool) (words []string, err error) {
	if !a.All {
		return given, nil
	}
	infos, err := d.List(ctx, process.Filter{Live: true})
	left := 0
	for i := range infos {
		labels, word := infos[i].Spec.Labels, string(infos[i].ID)
		of := labels[process.LabelService]
		switch {
		case inv.sandbox == "" && labels[process.LabelSandbox] != "" && of == "", labels[process.LabelHook] != "":
			continue
		case of != "" && !services:
			left++
			continue
		case of != "":
			word = of
		}
		words = append(words, word)
	}
	if left > 0 {
		inv.note("services go on; tend down ends them")
	}
	return words, err
}

// each calls act for every process, also after failures.
func (d *daemon) each(ctx context.Context, ids []string, act func(p process.Process, id string) error) error {
	return each(ids, func(id string) error {
		p, err := d.find(ctx, id)
		if err != nil {
			return err
		}
		return act(p, id)
	})
}

// each calls act for every id, also after failures.
func each(ids []string, act func(id string) error) error {
	failed := make([]error, len(ids))
	for i, id := range ids {
		failed[i] = act(id)
	}
	return errors.Join(failed...)
}

// atOnce calls act for every id at the same time, and returns the error of each.
func atOnce(ids []string, act func(i int, id string) error) []error {
	failed := make([]error, len(ids))
	var wg sync.WaitGroup
	for i, id := range ids {
		wg.Go(func() { failed[i] = act(i, id) })
	}
	wg.Wait()
	return failed
}
