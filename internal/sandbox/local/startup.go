package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tend-run/tend/process"
)

// shell is the command that runs a line. A line that is a list of words in JSON is that command,
// as in a Dockerfile.
func (s *sandbox) shell(line string) []string {
	var words []string
	if strings.HasPrefix(line, `["`) && json.Unmarshal([]byte(line), &words) == nil {
		return words
	}
	if r, err := s.openRoot(); err == nil {
		found := false
		err = r.Look(context.Background(), rootUser, func(stat statFunc) { _, err := stat("/bin/bash"); found = err == nil })
		if err == nil && found {
			return []string{"/bin/bash", "-l", "-c", line}
		}
	}
	return []string{"/bin/sh", "-c", line}
}

// startUp runs the start command of a template, and waits until it is ready. strict: a
// start command that fails before is an error at once.
func (s *sandbox) startUp(ctx context.Context, start, ready string, strict bool) error {
	const every, most = 500 * time.Millisecond, 10 * time.Minute
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	if start != "" {
		p, err := s.Processes().Start(ctx, process.Spec{Argv: s.shell(start), Labels: map[string]string{"start": "template"}})
		if err != nil {
			return fmt.Errorf("start command: %w", err)
		}
		if strict && ready != "" {
			go func() { // it ends with ctx
				if res, err := p.Wait(ctx, process.Until{}); err == nil && res.Exit != nil {
					if err := failure(res.Exit); err != nil {
						fail(fmt.Errorf("start command: %w before it was ready", err))
					}
				}
			}()
		}
	}
	for ready != "" {
		p, err := s.Processes().Start(ctx, process.Spec{Argv: s.shell(ready), Timeout: most})
		if err != nil {
			return fmt.Errorf("ready command: %w", because(ctx, err))
		}
		res, err := p.Wait(ctx, process.Until{})
		if err != nil {
			return fmt.Errorf("ready command: %w", because(ctx, err))
		}
		if err := p.Remove(ctx); err != nil && !errors.Is(err, process.ErrNotFound) {
			return because(ctx, err)
		}
		if res.Exit.Code == 0 && res.Exit.Signal == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("ready command: %w", context.Cause(ctx))
		case <-time.After(every):
		}
	}
	return nil
}

// because is why a wait came to nothing.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// failure words how a command ended that did not end well.
func failure(e *process.Exit) error {
	switch {
	case e.Signal != 0:
		return fmt.Errorf("the command was ended by signal %d (%s)", e.Signal, e.Cause)
	case e.Code != 0:
		return fmt.Errorf("the command ended with exit status %d", e.Code)
	}
	return nil
}
