package run

import (
	"context"
	"reflect"
	"time"

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
}

// keepWatch tells when files of a service change, whether it runs or not: one that has
// failed is tried again then.
func (w *worker) keepWatch(dir string, rules *config.Watch) {
	now := &watchedFiles{dir, rules}
	if w.files != nil && (*w.files == *now || reflect.DeepEqual(w.files, now)) {
		return
	}
	if w.endFiles != nil {
		w.endFiles()
		w.endFiles = nil
	}
	if w.files = now; rules == nil {
		return
	}
	ctx, cancel := context.WithCancel(w.ctx)
	w.endFiles = cancel
	w.s.wg.Go(func() {
		for ctx.Err() == nil {
			files, err := watch.Open(dir, rules)
			if err == nil {
				err = files.Run(ctx, func(name string) {
					w.tell(supervisor.Event{Kind: supervisor.Changed, Text: name})
				})
			}
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
