package cli

import (
	"context"
)

type rollbackCmd struct {
	ID     string `arg:"" name:"id" help:"The repair, as tend episodes lists it. last: the newest. CHAT/TURN: a turn of a chat."`
	Detach bool   `short:"d" help:"Return once it has begun (tend episodes shows the result)."`
}

// Ask takes a repair back and waits until that is over: 0 if it was, else 1.
func (c *rollbackCmd) Ask(ctx context.Context, inv *invocation, d *daemon) error {
	if c.ID == "last" {
		newest, err := d.Episode(ctx, "")
		if err != nil {
			return serviceError(err)
		}
		c.ID = newest.ID
	}
	id, err := d.RollBack(ctx, c.ID)
	if err != nil {
		return serviceError(err)
	}
	return inv.awaitEpisode(ctx, d, id, c.Detach)
}
