package run

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/supervisor"
	"github.com/tend-run/tend/supervisor/config"
	"github.com/tend-run/tend/supervisor/watch"
)

// watchAgain is how soon a watch is tried again that could not be, or ended.
const watchAgain = 30 * time.Second

// watchedFiles is what is watched for a service.
type watchedFiles struct {
	dir   string
	rules *config.Watch
	// sandbox is where, "" for this machine; and user is whose rights count there.
	sandbox, user string
}

// keepWatch tells when files of a service change, whether it runs or not: one that has
// failed is tried again then. Those of a sandbox are watched for a service that is wanted
// alone: what is watched is in use.
func (w *worker) keepWatch(r *config.Service, wanted bool) {
	now := &watchedFiles{dir: r.Cwd, rules: r.Watch, sandbox: r.Sandbox}
	if r.Sandbox != "" {
		now.user = r.User
		if !wanted {
			now.rules = nil
		}
	}
	if w.files != nil && (*w.files == *now || reflect.DeepEqual(w.files, now)) {
		return
	}
	if w.endFiles != nil {
		w.endFiles()
		w.endFiles = nil
	}
	if w.files = now; now.rules == nil {
		return
	}
	ctx, cancel := context.WithCancel(w.ctx)
	w.endFiles = cancel
	follow := w.followFiles
	if now.sandbox != "" {
		follow = w.followInside
	}
	w.s.wg.Go(func() {
		for ctx.Err() == nil {
			err := follow(ctx, now)
			if err == nil {
				return
			}
			w.s.c.Log.Error("files of a service are not watched", "service", w.name, "err", err, "again", watchAgain)
			select {
			case <-time.After(watchAgain):
			case <-ctx.Done():
			}
		}
	})
}

// followFiles tells of changes on this machine until ctx ends.
func (w *worker) followFiles(ctx context.Context, at *watchedFiles) error {
	files, err := watch.Open(at.dir, at.rules)
	if err != nil {
		return err
	}
	return files.Run(ctx, w.changed)
}

func (w *worker) changed(name string) {
	w.tell(supervisor.Event{Kind: supervisor.Changed, Text: name})
}

// checkWatch is why files of a service cannot be watched. What is not there, or in a sandbox
// that does not run, may come.
func (s *Supervisor) checkWatch(ctx context.Context, name string, r *config.Service) error {
	err := error(nil)
	switch {
	case r.Watch == nil:
	case r.Sandbox == "":
		err = watch.Check(r.Cwd, r.Watch)
	default:
		var many *watch.TooManyError
		if in, _ := s.sandbox(ctx, r.Sandbox); in != nil {
			var seat *watchSeat
			if seat, err = sitDown(in, &watchedFiles{dir: r.Cwd, rules: r.Watch, sandbox: r.Sandbox, user: r.User}); err == nil {
				_ = seat.w.Close()
			} else if !errors.As(err, &many) {
				err = nil
			}
		}
	}
	if err == nil {
		return nil
	}
	return &process.InvalidError{Field: fmt.Sprintf("services.%s.watch", name), Reason: err.Error()}
}
