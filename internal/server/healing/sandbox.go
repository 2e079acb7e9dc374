package healing

import (
	"context"
	"fmt"
	"time"

	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/lib/errtext"
	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/process"
)

// Stored data about a project in a sandbox belongs to that sandbox, by its ID: a name
// is free once its sandbox is gone, and the next sandbox with that name has nothing to
// do with the old data. Earlier versions stored only the name. Such data is valid only
// for a sandbox that already existed when it was written.

// lookTime bounds how long a sandbox is looked for, on which the loop waits.
const lookTime = 5 * time.Second

// lookFor finds a sandbox; "": there is none, or it is unknown.
func (h *Healing) lookFor(ctx context.Context, key string) (id string, made time.Time) {
	if h.c.Sandbox == nil {
		return "", made
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	return h.c.Sandbox(ctx, key)
}

// sandboxNow is the ID of the sandbox that a service runs in; "": on the machine, or it is not
// known.
func (h *Healing) sandboxNow(s *config.Service) (id string) {
	if s.Sandbox != "" {
		id, _ = h.lookFor(h.alive, s.Sandbox)
	}
	return id
}

// sandboxThen is the ID of the sandbox that something was changed in at a time, under an order;
// "": on the machine. id is what was kept of it; "": the order's name alone was.
func (h *Healing) sandboxThen(o *healer.Order, id string, at time.Time) (string, error) {
	name := o.Rules.Sandbox
	if id != "" || name == "" {
		return id, nil
	}
	id, made := h.lookFor(h.alive, name)
	if id == "" || made.After(at) {
		return "", errtext.New(fmt.Sprintf("it cannot be taken back: it was in a sandbox %s that is not there any more", name),
			process.ErrUnsupported)
	}
	return id, nil
}

// space is where a file is: in a sandbox, or, nil, on the machine.
type space struct {
	id, name string
	made     time.Time // zero: it is not known
}

// spaceOf is the sandbox of which the ID and the name are given, or the machine without.
func (h *Healing) spaceOf(ctx context.Context, sandbox []string) *space {
	if len(sandbox) == 0 {
		return nil
	}
	s := &space{id: sandbox[0], name: sandbox[len(sandbox)-1]}
	if id, made := h.lookFor(ctx, s.id); id == s.id {
		s.made = made
	}
	return s
}

// had reports whether something was changed there at a time, for a service in the sandbox with a
// name, or on the machine. id is what was kept of the sandbox, "" the machine; nil: nothing
// but the name was.
func (s *space) had(name string, id *string, at time.Time) bool {
	switch {
	case id == nil && name != "":
		return s != nil && (name == s.id || name == s.name) && !s.made.IsZero() && !s.made.After(at)
	case id == nil || *id == "":
		return s == nil
	}
	return s != nil && *id == s.id
}
