package cli

import (
	"context"
	"os/signal"
	"syscall"
)

type rollbackCmd struct {
	ID     string `arg:"" name:"id" help:"The repair, as tend episodes lists it. last: the newest. CHAT/TURN: a turn of a chat."`
	Detach bool   `short:"d" help:"Return once it has begun (tend episodes shows the result)."`
}

// Run takes a repair back and waits until that is over: 0 if it was, else 1.
func (c *rollbackCmd) Run(ctx context.Context, inv *invocation) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	d, err := inv.connect(ctx)
	if err != nil {
		return err
	}
	if c.ID == "last" {
		newest, err := d.Episode(ctx, "")
		if err != nil {
			return healError(err)
		}
		c.ID = newest.ID
	}
	id, err := d.RollBack(ctx, c.ID)
	if err != nil {
		return healError(err)
	}
	return inv.awaitEpisode(ctx, d, id, c.Detach)
}

func (*rollbackCmd) Help() string {
	return `A repair that has helped is an ordinary commit, or a change that was never committed. This takes it back: exactly its files, by one new commit where there was one, and restarts the service. tend episodes ID --diff shows what goes.

Nothing is done if one of those files has changed since; they are named then. What is not committed, and what is staged, stays as it is. The healer does not make such a repair again by itself for a day, or until a file changes while the service is broken.

CHAT/TURN takes back what a turn of a chat with the model has changed, which is in no commit: CHAT is the ID of the chat, TURN the number of the message that the turn began with. The page has a button for it.

` + examples(`tend rollback last`)
}
