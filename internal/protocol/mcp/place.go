package mcp

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/process"
)

// inSandbox is the argument of the tools that work somewhere.
type inSandbox struct {
	Sandbox string `json:"sandbox,omitempty" jsonschema:"work in this sandbox, by name or id. Default: the machine"`
}

// placeOf is where a call works: in the sandbox that it names, or the client's place.
func (f *Face) placeOf(ctx context.Context, c *call, sandbox string) (*place, error) {
	switch {
	case sandbox == "":
		return c.place, nil
	case c.place.sandbox != "":
		if sandbox == string(c.place.sandbox) {
			return c.place, nil
		}
		return nil, &process.InvalidError{Field: "sandbox",
			Reason: "is not for you to choose: this client works in one sandbox alone; leave it out"}
	}
	s, info, err := f.sandboxOf(ctx, sandbox)
	if err != nil {
		return nil, err
	}
	return &place{access: s, sandbox: info.ID}, nil
}

// sandbox finds a sandbox.
func (f *Face) sandboxOf(ctx context.Context, key string) (driver.Sandbox, driver.Info, error) {
	if key == "" || len(key) > driver.MaxName {
		return nil, driver.Info{}, &process.InvalidError{Field: "sandbox",
			Reason: fmt.Sprintf("has %d bytes; a name or an id of 1 to %d is needed", len(key), driver.MaxName)}
	}
	if f.cfg.Driver == nil {
		return nil, driver.Info{}, errors.New("this server has no sandboxes")
	}
	s, err := f.cfg.Driver.Get(ctx, key)
	if err == nil {
		var info driver.Info
		if info, err = s.Info(ctx); err == nil {
			return s, info, nil
		}
	}
	if errors.Is(err, driver.ErrNotFound) {
		err = fmt.Errorf("there is no sandbox %.100q; the tool sandbox lists and creates them", key)
	}
	return nil, driver.Info{}, err
}

// find returns the process that a word means: an id, the beginning of one, or a name.
func (f *Face) find(ctx context.Context, at *place, word string) (process.Process, error) {
	if word == "" || len(word) > process.MaxNameLen {
		return nil, &process.InvalidError{Field: "id", Reason: fmt.Sprintf("has %d bytes; an id or a name of 1 to %d is needed",
			len(word), process.MaxNameLen)}
	}
	p, err := retried(ctx, func(ctx context.Context) (process.Process, error) {
		return at.access.Processes().Get(ctx, process.Selector{Any: word})
	})
	if errors.Is(err, process.ErrNotFound) {
		err = fmt.Errorf("there is no process %.100q; the tool list has them", word)
	}
	return p, err
}

// processOf is find in the place where a call works.
func (f *Face) processOf(ctx context.Context, c *call, sandbox, word string) (process.Process, error) {
	at, err := f.placeOf(ctx, c, sandbox)
	if err != nil {
		return nil, err
	}
	return f.find(ctx, at, word)
}

// known is processOf, with what is known of the process.
func (f *Face) known(ctx context.Context, c *call, sandbox, word string) (process.Process, process.Info, error) {
	p, err := f.processOf(ctx, c, sandbox, word)
	if err != nil {
		return nil, process.Info{}, err
	}
	info, err := retried(ctx, p.Info)
	return p, info, err
}

// filesOf are the files of the place where a call works, for a user, and a path as it is
// meant there.
func (f *Face) filesOf(ctx context.Context, c *call, sandbox, user, path string) (*place, driver.Files, string, error) {
	at, err := f.placeOf(ctx, c, sandbox)
	if err != nil {
		return nil, nil, "", err
	}
	fs, name, err := at.files(user, path)
	return at, fs, name, err
}

// files are those of the place, for a user, and the path as it is meant there: a relative
// one starts at the working directory.
func (at *place) files(user, name string) (driver.Files, string, error) {
	if strings.ContainsRune(name, 0) {
		return nil, "", &process.InvalidError{Field: "path", Reason: "has a NUL byte"}
	}
	fs, err := at.access.Files(user, at.dir)
	if err == nil && at.dir != "" && !strings.HasPrefix(name, "/") && !strings.HasPrefix(name, "~") {
		name = path.Join(at.dir, name)
	}
	return fs, name, err
}
