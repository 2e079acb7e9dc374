package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/lib/backoff"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// healCmd is the part of the grammar about repairs.
type healCmd struct {
	Begin   healBeginCmd   `cmd:"" signals:"int,term" default:"" help:"Repair a service (tend heal alone does the same)."`
	Show    healShowCmd    `cmd:"" help:"Show a change by a model that waits for you, and why it does."`
	Apply   healApplyCmd   `cmd:"" signals:"int,term" help:"Apply such a change, and watch the service; if it is not well then, exactly the change is taken back."`
	Discard healDiscardCmd `cmd:"" help:"Remove such a change."`
}

type healBeginCmd struct {
	Name   string `arg:"" name:"service" optional:"" complete:"service" help:"The service. Default: the one that healer names in tend.yaml."`
	DryRun bool   `name:"dry-run" help:"Say what would be tried and why, and do nothing."`
	Detach bool   `short:"d" help:"Return once it has begun (tend episodes shows the result)."`
	Cancel bool   `help:"End the running repair, and roll back its changes."`
}

// Ask begins a repair and waits until it is over: 0 if the service is well then, else 1.
func (c *healBeginCmd) Ask(ctx context.Context, inv *invocation, d *daemon) error {
	if c.Cancel {
		if c.DryRun || c.Name != "" {
			return usageError("--cancel stands alone: there is at most one repair under way")
		}
		return serviceError(d.CancelHeal(ctx, ""))
	}
	id, err := d.Heal(ctx, d.full(ctx, c.Name), c.DryRun)
	if err != nil {
		return serviceError(err)
	}
	return inv.awaitEpisode(ctx, d, id, c.Detach)
}

type healShowCmd struct {
	ID   string `arg:"" name:"id" optional:"" help:"The repair, as tend episodes lists it. Default: the newest that holds a change."`
	Diff bool   `help:"Print only the diff."`
}

// Ask shows what waits.
func (c *healShowCmd) Ask(ctx context.Context, inv *invocation, d *daemon) error {
	if c.ID == "" {
		all, err := d.Episodes(ctx, "")
		if err != nil {
			return serviceError(err)
		}
		for _, e := range all {
			if e.Held != "" {
				c.ID = e.ID
				break
			}
		}
		if c.ID == "" {
			return fmt.Errorf("no change waits: %w", process.ErrNotFound)
		}
	}
	e, err := d.Episode(ctx, c.ID)
	switch {
	case err != nil:
		return serviceError(err)
	case e.Held == "":
		return fmt.Errorf("%s holds no change: %w", e.ID, process.ErrNotFound)
	case inv.flags.JSON:
		return printJSON(inv.out, map[string]string{"episode": e.ID, "service": e.Service, "hash": e.Held, "why": e.HeldWhy,
			"diff": string(e.Diff)})
	case c.Diff:
		return inv.printLines(string(e.Diff))
	}
	return inv.printLines(fmt.Sprintf("%s  %s  a change waits: %s\n\n%s\n\ntend heal apply %s\ntend heal discard %[5]s",
		e.ID, e.Service, e.HeldWhy, strings.TrimSpace(string(e.Diff)), e.Held))
}

type healApplyCmd struct {
	Hash   string `arg:"" name:"hash" help:"The hash that tend heal show prints: nothing is applied that you have not looked at."`
	Detach bool   `short:"d" help:"Return once it has begun (tend episodes shows the result)."`
}

// Ask applies a change: 0 if the service is well then, else 1.
func (c *healApplyCmd) Ask(ctx context.Context, inv *invocation, d *daemon) error {
	id, err := d.ApplyHeld(ctx, c.Hash)
	if err != nil {
		return serviceError(err)
	}
	return inv.awaitEpisode(ctx, d, id, c.Detach)
}

type healDiscardCmd struct {
	Hash string `arg:"" name:"hash" help:"The hash that tend heal show prints."`
}

func (c *healDiscardCmd) Ask(ctx context.Context, _ *invocation, d *daemon) error {
	return serviceError(d.DiscardHeld(ctx, c.Hash))
}

// awaitEpisode waits for an episode that was begun and shows it. The status is 1 if it did not
// end well; of a dry run it is 0. detach: it only says which one it is.
func (inv *invocation) awaitEpisode(ctx context.Context, d *daemon, id string, detach bool) error {
	if detach {
		return inv.answer(printJSONLine, map[string]string{"episode": id}, id)
	}
	e, err := inv.followEpisode(ctx, d, id)
	if err != nil {
		return serviceError(err)
	}
	if err := inv.printEpisode(&e); err != nil {
		return err
	}
	if e.Status != tend.HealReady && !e.DryRun {
		return statusError(1)
	}
	return nil
}

// doing are the actions of an episode in words.
var doing = map[string]string{
	"look":       "finding out what is wrong",
	"checkpoint": "saving the project's files",
	"act":        "working",
	"verify":     "waiting until the service is ready and stays so",
	"review":     "looking at the change",
	"commit":     "committing the change",
	"rollback":   "taking the change back",
}

// progress is one line about an episode that is not over: the remedy that is tried, if
// there is one, and what is being done.
func progress(e *tend.EpisodeRecord) string {
	said, ok := doing[e.Doing]
	if !ok { // of a newer daemon
		said = e.Doing
	}
	if n := len(e.Tries); n > 0 {
		said = remedyText(e.Tries[n-1].HealRemedy) + ": " + said
	}
	if e.Unreached != "" {
		said += "; the model does not answer yet: " + e.Unreached
	}
	return said
}

// episodePace is how often an episode is looked at.
const episodePace = 250 * time.Millisecond

// followEpisode waits until an episode is over, and notes what is being done.
func (inv *invocation) followEpisode(ctx context.Context, d *daemon, id string) (e tend.EpisodeRecord, err error) {
	runs := commandBar{inv: inv}
	defer runs.show(nil)
	for said := ""; ; {
		if e, err = d.Episode(ctx, id); err != nil {
			return e, err
		}
		now := progress(&e)
		if now != said && !e.Over() && !inv.json {
			runs.show(nil)
			inv.note("%s", now)
			said = now
		}
		runs.show(e.Running)
		if e.Over() {
			return e, nil
		}
		if !backoff.Wait(ctx, episodePace) {
			return e, ctx.Err()
		}
	}
}

// commandBar shows the command of a playbook that runs.
type commandBar struct {
	inv   *invocation
	bar   *bar
	begun time.Time
}

// show shows what it has written last; nil: none runs.
func (c *commandBar) show(r *tend.HealCommand) {
	if c.bar != nil && (r == nil || !r.Begun.Equal(c.begun)) {
		c.bar.end()
		c.bar = nil
	}
	if r == nil {
		return
	}
	if c.bar == nil {
		c.bar, c.begun = c.inv.fetching(r.Command, c.inv.json), r.Begun
	}
	c.bar.tell(r.Line)
}
