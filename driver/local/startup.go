package local

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tend-run/tend/process"
)

// shell is the command that runs a line.
func (s *sandbox) shell(line string) []string {
	if r, err := s.openRoot(); err == nil {
		found := false
		err = r.Look(context.Background(), rootUser, func(stat statFunc) { _, err := stat("/bin/bash"); found = err == nil })
		if err == nil && found {
			return []string{"/bin/bash", "-l", "-c", line}
		}
	}
	return []string{"/bin/sh", "-c", line}
}

// startUp runs the start command of a template, and waits until it is ready.
func (s *sandbox) startUp(ctx context.Context, start, ready string) error {
	const every, most = 500 * time.Millisecond, 10 * time.Minute
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	if start != "" {
		if _, err := s.Processes().Start(ctx, process.Spec{Argv: s.shell(start), Labels: map[string]string{"start": "template"}}); err != nil {
			return fmt.Errorf("start command: %w", err)
		}
	}
	for ready != "" {
		p, err := s.Processes().Start(ctx, process.Spec{Argv: s.shell(ready), Timeout: most})
		if err != nil {
			return fmt.Errorf("ready command: %w", err)
		}
		res, err := p.Wait(ctx, process.Until{})
		if err != nil {
			return fmt.Errorf("ready command: %w", err)
		}
		if err := p.Remove(ctx); err != nil && !errors.Is(err, process.ErrNotFound) {
			return err
		}
		if res.Exit.Code == 0 && res.Exit.Signal == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("ready command: %w", ctx.Err())
		case <-time.After(every):
		}
	}
	return nil
}
