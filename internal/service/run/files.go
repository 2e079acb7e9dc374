package run

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/service/supervisor"
	"github.com/tend-run/tend/internal/service/watch"
	"github.com/tend-run/tend/process"
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

// hash is another text for other files, or those of another service.
func (f *watchedFiles) hash(token string) string {
	all, _ := json.Marshal([]any{token, f.dir, f.rules.Paths, f.rules.Ignore, f.sandbox, f.user}) // plain text
	sum := sha256.Sum256(all)
	return hex.EncodeToString(sum[:])
}

// keepWatch tells when files of a service change, whether it runs or not: one that has
// failed is tried again then. Those of a sandbox are watched for a service that is wanted
// alone: what is watched is in use.
func (w *worker) keepWatch(r *config.Service, token string, wanted bool) {
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
	of := now.hash(token)
	follow := func(ctx context.Context) error { return w.followFiles(ctx, now, of) }
	if now.sandbox != "" {
		follow = func(ctx context.Context) error { return w.followInside(ctx, now, of) }
	}
	w.s.wg.Go(func() {
		for ctx.Err() == nil {
			err := follow(ctx)
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
func (w *worker) followFiles(ctx context.Context, at *watchedFiles, of string) error {
	files, err := watch.Open(at.dir, at.rules)
	if err != nil {
		return err
	}
	defer files.Close()
	return files.Run(ctx, nil, w.compare(ctx, of, files.Sum), w.tellFiles(of))
}

// tellFiles is what is done with what a watch finds.
func (w *worker) tellFiles(of string) watch.Tell {
	return watch.Tell{Changed: w.changed, Known: func(now *watch.Sum) {
		if now == nil {
			w.s.store.forgetFiles(w.name)
			return
		}
		if was := w.s.store.files(w.name, of); was != nil && *was == *now || w.ctx.Err() != nil {
			return
		}
		if err := w.s.store.saveFiles(w.name, of, now); err != nil {
			w.s.c.Log.Warn("changes of a service's files would not be noticed after this server", "service", w.name, "err", err)
		}
	}}
}

// changed tells of a change. What the files were is forgotten first: who dies now leaves
// either the change or the restart to the supervisor after it, and never both.
func (w *worker) changed(name string) {
	w.s.store.forgetFiles(w.name)
	w.tell(supervisor.Event{Kind: supervisor.Changed, Text: name})
}

// meanwhile is what has changed while nobody watched.
const meanwhile = "what it watches, while no server ran,"

// compare returns what is to be told as changed if files of a service are others than they
// were when a supervisor before this one ended, and what was started then has seen none of
// that; else "". What is watched is watched already: so it is told with what has changed since,
// as one.
func (w *worker) compare(ctx context.Context, of string, sum func() *watch.Sum) string {
	was := w.s.store.files(w.name, of)
	if was == nil {
		return ""
	}
	now := sum()
	if now != nil && *now == *was {
		return ""
	}
	if now != nil && w.unseen(ctx) {
		return meanwhile
	}
	if ctx.Err() == nil { // else whoever comes next compares
		w.s.store.forgetFiles(w.name)
	}
	return ""
}

// unseen reports whether the newest run began before this supervisor and is not to be followed
// by another one. It is false if ctx ends before that is known.
func (w *worker) unseen(ctx context.Context) bool {
	is := make(chan bool, 1)
	w.push(func() { // after what has become of the run is told
		_ = w.s.in(ctx, func() { // else nobody asks any more
			state, _ := w.s.set.State(w.name)
			before, there := w.s.before[w.name]
			p := state.Phase
			is <- there && state.Run == before && (p == supervisor.Running || p == supervisor.Completed || p == supervisor.Failed)
		})
	})
	select {
	case is := <-is:
		return is
	case <-ctx.Done():
		return false
	}
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
