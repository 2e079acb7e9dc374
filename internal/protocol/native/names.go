package native

import (
	"context"
	"fmt"
	"sync"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/lib/errtext"
	"github.com/tend-run/tend/process"
)

// claims are the names of processes that are just being started as the only ones with
// their name.
type claims struct {
	sync.Mutex
	names map[[2]string]string // by sandbox and name: the ID
}

// claim takes a name until the start is over, if no other process that runs has it. Each
// sandbox has names of its own, and so has this machine: sandbox is "".
func (c *claims) claim(ctx context.Context, mgr process.Manager, sandbox string, spec *tendv1.Spec) (release func(), err error) {
	name, id := spec.GetName(), spec.GetId()
	if name == "" {
		return nil, &process.InvalidError{Field: "spec.name", Reason: "is empty, and unique_name is set"}
	}
	taken := func(by string) error {
		return errtext.New(fmt.Sprintf("the name %q is taken by %s", name, by), process.ErrExists)
	}
	place := [2]string{sandbox, name}
	c.Lock()
	other, busy := c.names[place]
	if c.names == nil {
		c.names = map[[2]string]string{}
	}
	if !busy {
		c.names[place] = id
	}
	c.Unlock()
	release = func() {}
	switch {
	case busy && (id == "" || other != id): // else it is the same call, repeated
		return nil, taken("a process that is just being started")
	case !busy:
		release = func() { c.Lock(); defer c.Unlock(); delete(c.names, place) }
	}
	infos, err := mgr.List(ctx, process.Filter{Live: true})
	for i := range infos {
		if in := &infos[i]; in.Spec.Name == name && string(in.ID) != id && (sandbox != "" || in.Spec.Labels[process.LabelSandbox] == "") {
			err = taken(fmt.Sprintf("process %s, which runs", in.ID))
			if of := in.Spec.Labels[process.LabelService]; of != "" {
				err = taken("the service " + of)
			}
			break
		}
	}
	if err != nil {
		release()
	}
	return release, err
}
