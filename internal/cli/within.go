package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// inSandbox is the flag of the verbs about processes.
type inSandbox struct {
	Sandbox string `name:"sandbox" placeholder:"SANDBOX" complete:"sandbox" help:"In this sandbox, not on the machine itself: its name, its ID or the beginning of one."`
}

// chooseSandbox notes --sandbox, before anything is done. An empty one is a variable of
// a script that is not set: what was meant for a sandbox must not be done to the machine.
func (inv *invocation) chooseSandbox(n *node) error {
	if f := n.option("--sandbox"); f != nil && f.given {
		if inv.sandbox = f.value.String(); inv.sandbox == "" {
			return usageError("--sandbox is empty; give a name or an ID, or leave it out for the machine itself")
		}
	}
	return nil
}

// within returns the daemon as it is for the processes of the sandbox that was chosen,
// which is started if start says so; without one, for the machine's.
func (inv *invocation) within(ctx context.Context, d *daemon, start bool) (*daemon, error) {
	if inv.sandbox == "" {
		return d, nil
	}
	sandbox, _, err := d.sandbox(ctx, inv.sandbox)
	if err != nil {
		return nil, err
	}
	var inside *tend.Client
	if start {
		inside, err = sandbox.Client(ctx)
	} else {
		inside, err = sandbox.Look(ctx)
	}
	if err != nil {
		return nil, about(inv.sandbox, err)
	}
	// Paths and pids inside are not ours.
	return &daemon{Client: inside, url: d.url}, nil
}

// where is what a command line needs to come back to the sandbox.
func (inv *invocation) where() string {
	if inv.sandbox == "" {
		return ""
	}
	return "--sandbox " + inv.sandbox + " "
}

// keyError: a word finds no sandbox, or several. Its text says what there is.
type keyError struct {
	text string
	err  error
}

func (e *keyError) Error() string { return e.text }
func (e *keyError) Unwrap() error { return e.err }

// maxNamed is how many names an error lists.
const maxNamed = 8

// listed lists names for an error.
func listed(names []string) string {
	if n := len(names) - maxNamed; n > 0 {
		return fmt.Sprintf("%s and %d more (tend sandbox ls)", printable(strings.Join(names[:maxNamed], ", ")), n)
	}
	return printable(strings.Join(names, ", "))
}

// minPrefix is how much of an ID is enough to name a sandbox, if no other begins so.
const minPrefix = 4

// sandbox finds a sandbox as people name it: by its name, its ID or the beginning of an
// ID that no other has.
func (d *daemon) sandbox(ctx context.Context, key string) (*tend.Sandbox, tend.SandboxInfo, error) {
	var none tend.SandboxInfo
	if key == "" {
		return nil, none, usageError("the name of the sandbox is empty; give a name or an ID")
	}
	sandbox, err := d.Sandbox(ctx, key)
	if err == nil {
		info, err := sandbox.Info(ctx)
		return sandbox, info, about(key, err)
	}
	if _, invalid := errors.AsType[*process.InvalidError](err); !invalid && !errors.Is(err, process.ErrNotFound) {
		return nil, none, err
	}
	all, err := d.Sandboxes(ctx, tend.SandboxFilter{})
	if err != nil {
		return nil, none, err
	}
	fits := slices.DeleteFunc(slices.Clone(all), func(i tend.SandboxInfo) bool {
		return len(key) < minPrefix || !strings.HasPrefix(i.ID, strings.ToLower(key))
	})
	word := fmt.Sprintf("%.80q", key)
	switch {
	case len(fits) == 1:
		sandbox, err := d.Sandbox(ctx, fits[0].ID)
		return sandbox, fits[0], about(key, err)
	case len(fits) > 1:
		return nil, none, &keyError{fmt.Sprintf("the IDs of several sandboxes begin with %s: %s; give more letters, or the name",
			word, listed(mapped(fits, nameOfSandbox))), process.ErrAmbiguous}
	case len(all) == 0:
		return nil, none, &keyError{fmt.Sprintf("there is no sandbox %s, and no other; tend sandbox create makes one", word), process.ErrNotFound}
	}
	there := listed(mapped(all, nameOfSandbox))
	return nil, none, &keyError{fmt.Sprintf("there is no sandbox %s; there are %s", word, there), process.ErrNotFound}
}
