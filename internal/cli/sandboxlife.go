package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// sandboxArgs are the sandboxes of a verb that does something to each.
type sandboxArgs struct {
	Names []string `arg:"" name:"sandbox" complete:"sandbox" help:"The sandboxes."`
}

// act does something to each sandbox, also after failures, and prints the sandboxes that it
// was done to.
func (c *sandboxArgs) act(ctx context.Context, inv *invocation, d *daemon, do func(*tend.Sandbox, context.Context) error) error {
	return each(c.Names, func(name string) error {
		sandbox, info, err := d.sandbox(ctx, name)
		if err != nil {
			return err
		}
		if err := do(sandbox, ctx); err != nil {
			return about(name, err)
		}
		return inv.acted(&info)
	})
}

// acted prints the sandbox that something was done to, as it was found.
func (inv *invocation) acted(info *tend.SandboxInfo) error {
	return inv.answer(printJSONLine, map[string]string{"id": info.ID, "name": info.Name}, nameOfSandbox(info))
}

type sandboxStartCmd struct{ sandboxArgs }

func (c *sandboxStartCmd) Ask(ctx context.Context, inv *invocation, d *daemon) error {
	return c.act(ctx, inv, d, (*tend.Sandbox).Start)
}

type sandboxStopCmd struct{ sandboxArgs }

func (c *sandboxStopCmd) Ask(ctx context.Context, inv *invocation, d *daemon) error {
	return c.act(ctx, inv, d, (*tend.Sandbox).Stop)
}

type sandboxPauseCmd struct{ sandboxArgs }

func (c *sandboxPauseCmd) Ask(ctx context.Context, inv *invocation, d *daemon) error {
	return c.act(ctx, inv, d, (*tend.Sandbox).Pause)
}

type sandboxResumeCmd struct{ sandboxArgs }

func (c *sandboxResumeCmd) Ask(ctx context.Context, inv *invocation, d *daemon) error {
	return c.act(ctx, inv, d, (*tend.Sandbox).Resume)
}

type sandboxRmCmd struct {
	All   bool              `short:"a" help:"All sandboxes."`
	Label map[string]string `short:"l" aliases:"metadata" placeholder:"K=V" help:"All with this label. Repeatable."`
	Force bool              `short:"f" help:"Do not fail if a named sandbox does not exist."`
	Names []string          `arg:"" name:"sandbox" optional:"" complete:"sandbox" help:"The sandboxes."`
}

func (c *sandboxRmCmd) Run(ctx context.Context, inv *invocation) error {
	many := c.All || len(c.Label) > 0
	if many == (len(c.Names) > 0) || c.All && len(c.Label) > 0 {
		return usageError("give the sandboxes to remove, or one of --all and --label")
	}
	if !many {
		return each(c.Names, func(name string) error {
			d, err := inv.connect(ctx)
			if err == nil {
				err = (&sandboxArgs{[]string{name}}).act(ctx, inv, d, (*tend.Sandbox).Destroy)
			}
			if c.Force && errors.Is(err, process.ErrNotFound) {
				return nil
			}
			return err
		})
	}
	d, err := inv.connect(ctx)
	if err != nil {
		return err
	}
	all, err := d.Sandboxes(ctx, tend.SandboxFilter{Metadata: c.Label})
	if err != nil {
		return err
	}
	var failed []error
	for i := range all {
		sandbox, err := d.Sandbox(ctx, all[i].ID)
		if err == nil {
			err = sandbox.Destroy(ctx)
		}
		switch {
		case errors.Is(err, process.ErrNotFound): // by its own end, or another's
		case err != nil:
			failed = append(failed, about(nameOfSandbox(&all[i]), err))
		default:
			failed = append(failed, inv.acted(&all[i]))
		}
	}
	return errors.Join(failed...)
}

type sandboxUpdateCmd struct {
	Name      string            `placeholder:"NAME" help:"Another name."`
	Timeout   time.Duration     `default:"-1ns" placeholder:"1h" help:"End it this long from now; 0: never."`
	Extend    time.Duration     `placeholder:"1h" help:"End it this long from now, if that is later than its current end."`
	OnTimeout string            `name:"on-timeout" enum:",rm,kill,pause" default:"" placeholder:"WHAT" help:"What happens at its end: rm or pause."`
	Idle      time.Duration     `default:"-1ns" placeholder:"10m" help:"Stop it when nobody has used it and nothing ran in it for this long; 0: never."`
	Label     map[string]string `short:"l" aliases:"metadata" placeholder:"K=V" help:"Add this label. Repeatable."`
	envFlags

	Sandbox string `arg:"" complete:"sandbox" help:"The sandbox."`
}

func (c *sandboxUpdateCmd) Run(ctx context.Context, inv *invocation) error {
	const absent = -1 // the default of durations for which 0 means never
	change := tend.SandboxChange{Metadata: c.Label}
	var err error
	if change.Env, err = c.environment(inv); err != nil {
		return err
	}
	if c.Name != "" {
		change.Name = &c.Name
	}
	if c.Timeout != absent {
		change.Timeout = &c.Timeout
	}
	if c.Extend != 0 {
		change.Extend = &c.Extend
	}
	if c.Idle != absent {
		change.IdleTTL = &c.Idle
	}
	if c.OnTimeout != "" {
		pause := c.OnTimeout == "pause"
		change.PauseAtTimeout = &pause
	}
	d, err := inv.connect(ctx)
	if err != nil {
		return err
	}
	sandbox, _, err := d.sandbox(ctx, c.Sandbox)
	if err != nil {
		return err
	}
	info, err := sandbox.Update(ctx, change)
	if err != nil {
		return about(c.Sandbox, err)
	}
	return inv.announceSandbox(&info)
}

type sandboxForkCmd struct {
	Count   int    `short:"n" default:"1" placeholder:"N" help:"How many copies, 1 to 100. Default: 1."`
	Sandbox string `arg:"" complete:"sandbox" help:"The sandbox."`
}

func (c *sandboxForkCmd) Run(ctx context.Context, inv *invocation) error {
	if c.Count < 1 || c.Count > 100 {
		return usageError(fmt.Sprintf("-n is %d; 1 to 100 copies can be made", c.Count))
	}
	d, err := inv.connect(ctx)
	if err != nil {
		return err
	}
	sandbox, _, err := d.sandbox(ctx, c.Sandbox)
	if err != nil {
		return err
	}
	done := inv.copying(ctx, sandbox, "fork of "+c.Sandbox)
	copies, err := sandbox.Fork(ctx, c.Count)
	done()
	failed := []error{about(c.Sandbox, err)}
	for _, made := range copies {
		info, err := made.Info(ctx)
		if err == nil {
			err = inv.acted(&info)
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// copying shows how far the files of a sandbox are copied; done ends it.
func (inv *invocation) copying(ctx context.Context, sandbox *tend.Sandbox, what string) (done func()) {
	return inv.fetching(what, false).during(ctx, func(ctx context.Context) (done, total int64) {
		info, _ := sandbox.Info(ctx) // one that does not answer now has nothing new to show
		return info.Copied, info.ToCopy
	})
}

// sandboxSnapshotCmd keeps files; its first verb needs no name.
type sandboxSnapshotCmd struct {
	Create snapshotCreateCmd `cmd:"" default:"" help:"Save the files of a sandbox, and print the name of the snapshot."`
	Ls     snapshotLsCmd     `cmd:"" aliases:"list" help:"List snapshots."`
	Rm     snapshotRmCmd     `cmd:"" aliases:"remove" help:"Remove snapshots that no sandbox needs."`
}

type snapshotCreateCmd struct {
	Name    string `placeholder:"NAME" help:"The name of the snapshot. Default: a generated one."`
	Sandbox string `arg:"" complete:"sandbox" help:"The sandbox."`
}

func (c *snapshotCreateCmd) Ask(ctx context.Context, inv *invocation, d *daemon) error {
	sandbox, _, err := d.sandbox(ctx, c.Sandbox)
	if err != nil {
		return err
	}
	done := inv.copying(ctx, sandbox, "snapshot of "+c.Sandbox)
	s, err := sandbox.Snapshot(ctx, c.Name)
	done()
	if err != nil {
		return about(c.Sandbox, err)
	}
	return inv.answer(printJSON, snapshotFactsOf(&s), nameOfSnapshot(&s))
}

func nameOfSnapshot(s *tend.SandboxSnapshot) string { return cmp.Or(s.Name, s.ID) }

type snapshotLsCmd struct {
	Quiet bool `short:"q" help:"Print only names, one on each line."`
}

func (c *snapshotLsCmd) Ask(ctx context.Context, inv *invocation, d *daemon) error {
	all, err := d.SandboxSnapshots(ctx)
	if err != nil {
		return err
	}
	rows := [][]string{{"NAME", "ID", "STATE", "SIZE", "AGE", "OF"}}
	for i := range all {
		s := &all[i]
		rows = append(rows, []string{printable(nameOfSnapshot(s)), printable(s.ID[:min(len(s.ID), 13)]), s.State.String(),
			sizeText(s.Bytes), age(time.Since(s.Created)), printable(s.Sandbox)})
	}
	return inv.printList(mapped(all, snapshotFactsOf), rows, c.Quiet)
}

type snapshotRmCmd struct {
	Names []string `arg:"" name:"snapshot" complete:"snapshot" help:"The snapshots."`
}

func (c *snapshotRmCmd) Ask(ctx context.Context, inv *invocation, d *daemon) error {
	all, err := d.SandboxSnapshots(ctx)
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, s := range all {
		known[s.ID], known[s.Name] = true, true
	}
	return each(c.Names, func(name string) error {
		if !known[name] || name == "" {
			text := fmt.Sprintf("there is no snapshot %.80q", name)
			if len(all) > 0 {
				text += "; there are " + listed(mapped(all, nameOfSnapshot))
			}
			return &keyError{text, process.ErrNotFound}
		}
		if err := d.DeleteSandboxSnapshot(ctx, name); err != nil {
			return about(name, err)
		}
		return inv.answer(printJSONLine, map[string]string{"name": name}, name)
	})
}
