package cli

import (
	"context"

	"github.com/tend-run/tend/internal/heal/project"
	"github.com/tend-run/tend/internal/heal/view"
	"github.com/tend-run/tend/internal/heal/work"
)

// healEpisodeCmd is the worker that the daemon starts.
type healEpisodeCmd struct {
	Dir string `arg:"" help:"Directory of the episode."`
}

func (c *healEpisodeCmd) Run(ctx context.Context, inv *invocation) error {
	return work.Run(ctx, c.Dir, inv.environ(), inv.out)
}

// healChatCmd is the worker of a chat, which the daemon starts.
type healChatCmd struct {
	Dir string `arg:"" help:"Directory of the chat."`
}

func (c *healChatCmd) Run(ctx context.Context, inv *invocation) error {
	return work.Chat(ctx, c.Dir, inv.environ(), inv.out)
}

// healProjectCmd is the process that works on a project for a worker, as the user of the
// service, or in its sandbox.
type healProjectCmd struct{}

func (*healProjectCmd) Run(ctx context.Context, inv *invocation) error {
	return project.Serve(ctx, inv.environ(), inv.in, inv.out)
}

// healRelayCmd is what lets a view of a repair reach an address of the machine.
type healRelayCmd struct {
	Address string `arg:"" help:"Address to listen at."`
	Socket  string `arg:"" help:"Socket that connections go to."`
}

func (c *healRelayCmd) Run(_ context.Context, inv *invocation) error {
	return view.Relay(c.Address, c.Socket, inv.out)
}
