package cli

import (
	"context"
	"fmt"

	"github.com/tend-run/tend/internal/core/embedded"
)

// payloadCmd writes the program of the keeper that this tend carries: a daemon
// that is upgraded to it asks for it.
type payloadCmd struct{}

func (c *payloadCmd) Run(_ context.Context, inv *invocation) error {
	b, err := embedded.Bytes()
	if err != nil {
		return fmt.Errorf("the keeper's program: %w", err)
	}
	_, err = inv.out.Write(b)
	return err
}
