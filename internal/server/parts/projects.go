package parts

import (
	"context"
	"time"

	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/sandbox/driver"
)

// awayIn reports of a sandbox that is there whether nothing can run in it.
func awayIn(sandboxes driver.Driver) func(context.Context, string) bool {
	return func(ctx context.Context, key string) bool {
		s, err := sandboxes.Get(ctx, key)
		if err != nil {
			return false
		}
		in, err := s.Info(ctx)
		return err == nil && in.State != driver.Ready
	}
}

// idIn finds the ID of a sandbox, and when it was made.
func idIn(sandboxes driver.Driver) func(context.Context, string) (string, time.Time) {
	return func(ctx context.Context, key string) (string, time.Time) {
		s, err := sandboxes.Get(ctx, key)
		if err != nil {
			return "", time.Time{}
		}
		in, err := s.Info(ctx)
		if err != nil {
			return "", time.Time{}
		}
		return string(in.ID), in.Created
	}
}

// watchIn watches a directory of a sandbox, or of this machine, with the rights of a user
// there, until ctx ends.
func watchIn(sandboxes driver.Driver) func(ctx context.Context, sandbox, user, dir string, changed func(string)) error {
	return func(ctx context.Context, sandbox, user, dir string, changed func(string)) error {
		fs, err := filesOf(ctx, sandboxes, sandbox, user)
		if err != nil {
			return err
		}
		w, err := fs.Watch(dir, files.WatchOptions{Recursive: true})
		if err != nil {
			return err
		}
		defer w.Close()
		for {
			select {
			case <-w.Ready():
			case <-ctx.Done():
				return nil
			}
			events, err := w.Take()
			for _, ev := range events {
				changed(ev.Name)
			}
			if err != nil {
				return err
			}
		}
	}
}

func filesOf(ctx context.Context, sandboxes driver.Driver, sandbox, user string) (driver.Files, error) {
	if sandbox != "" {
		s, err := sandboxes.Get(ctx, sandbox)
		if err != nil {
			return nil, err
		}
		return s.Files(user, "")
	}
	u, err := files.Account(user)
	if err == nil {
		err = u.Check()
	}
	return files.FS{User: u}, err
}
