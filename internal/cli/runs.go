package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/view"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// runsOf returns the runs that are kept of the service that a word means, oldest first: the
// word is the name of a service, and p what was found by it. nil: the word means p alone.
func (d *daemon) runsOf(ctx context.Context, p process.Process, word string) ([]process.Info, error) {
	info, err := p.Info(ctx)
	name, labels := info.Spec.Name, info.Spec.Labels
	if err != nil || name != word && shortName(name) != word || labels[process.LabelService] != name || labels[process.LabelHook] != "" {
		return nil, err
	}
	return d.runs(ctx, name)
}

func (d *daemon) runs(ctx context.Context, service string) ([]process.Info, error) {
	infos, err := d.List(ctx, process.Filter{Labels: map[string]string{process.LabelService: service}})
	return slices.DeleteFunc(infos, func(i process.Info) bool { return i.Spec.Labels[process.LabelHook] != "" }), err
}

// runs prints the output of runs of a service as one, with a line between them, and with -f
// that of those that follow.
func (w *outputWriter) runs(ctx context.Context, runs []process.Info) error {
	switch {
	case w.Previous && len(runs) < 2:
		return errors.New("no run before the newest is kept")
	case w.Previous:
		runs = runs[len(runs)-2 : len(runs)-1]
	case w.Runs > 0:
		runs = runs[max(len(runs)-w.Runs, 0):]
	}
	follow := w.Follow && !w.Previous
	if w.inv.flags.JSON && w.together == nil && (follow || len(runs) > 1) {
		w.together = new(sync.Mutex) // each piece says of which run it is
	}
	runs, tails, err := w.tails(ctx, runs)
	if err != nil {
		return err
	}
	for i := range runs {
		if i > 0 {
			w.between(&runs[i-1], &runs[i])
		}
		if tails != nil {
			w.last = &tails[i]
		}
		if err := w.of(ctx, &runs[i]); err != nil {
			return err
		}
	}
	w.last = nil // what comes is new
	for follow && ctx.Err() == nil && (w.first == nil || *w.first != (view.Amount{})) {
		last := runs[len(runs)-1]
		if runs, err = w.d.nextRuns(ctx, last.Spec.Name, &last); err != nil || runs == nil {
			return err
		}
		for i := range runs {
			w.between(&last, &runs[i])
			if err := w.of(ctx, &runs[i]); err != nil {
				return err
			}
			last = runs[i]
		}
	}
	return nil
}

// tails returns the newest runs that have, together, the tail that is wanted, and what is wanted
// of each; nil: all.
func (w *outputWriter) tails(ctx context.Context, runs []process.Info) ([]process.Info, []view.Amount, error) {
	if w.tail == nil || w.shown != nil {
		return runs, nil, nil
	}
	tails, left := make([]view.Amount, len(runs)), *w.tail
	for i := len(runs) - 1; i >= 0; i-- {
		if tails[i] = left; left == (view.Amount{}) && i < len(runs)-1 {
			return runs[i+1:], tails[i+1:], nil
		}
		p, err := w.d.Get(ctx, process.Selector{ID: runs[i].ID})
		if err != nil {
			return nil, nil, err
		}
		pieces, _, err := tailOf(ctx, p, process.ReadOptions{Streams: w.streams()}, left, w.within)
		if err != nil {
			return nil, nil, err
		}
		left = less(left, pieces)
	}
	return runs, tails, nil
}

// of prints the output of one run. One that is gone meanwhile has none.
func (w *outputWriter) of(ctx context.Context, run *process.Info) error {
	p, err := w.d.Get(ctx, process.Selector{ID: run.ID})
	if err == nil {
		err = w.write(ctx, p)
	}
	if errors.Is(err, process.ErrNotFound) {
		return nil
	}
	return err
}

// between says that a run ends and another one begins.
func (w *outputWriter) between(before, run *process.Info) {
	ended := "ended"
	if before.Exit != nil {
		ended = stateText(before)
	} else if p, err := w.d.Get(context.Background(), process.Selector{ID: before.ID}); err == nil {
		if now, err := p.Info(context.Background()); err == nil {
			ended = stateText(&now)
		}
	}
	w.inv.note("%s: %s; the next run began %s", printable(w.id), ended, timeText(run.Started, w.UTC, time.DateTime))
}

// nextRuns waits for runs of a service after one that has ended; nil: none comes by itself.
func (d *daemon) nextRuns(ctx context.Context, service string, last *process.Info) ([]process.Info, error) {
	for all, err := range d.WatchServices(ctx) {
		if err != nil {
			return nil, serviceError(err)
		}
		s := serviceNamed(all, service)
		if s == nil {
			return nil, nil
		}
		if s.Process != "" && s.Process != last.ID && s.Phase != tend.ServiceStarting {
			runs, err := d.runs(ctx, service)
			return slices.DeleteFunc(runs, func(i process.Info) bool { return !i.Started.After(last.Started) }), err
		}
		if done, _ := over([]tend.Service{*s}); done {
			return nil, nil
		}
	}
	return nil, ctx.Err()
}

// moment reads a time, or how long ago it was; "" is none.
func moment(flag, text string) (time.Time, error) {
	now := time.Now()
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n >= 1e9 {
		return time.Unix(n, 0), nil // no duration that people write
	}
	switch ago, err := duration(cmp.Or(text, "0")); {
	case text == "":
		return time.Time{}, nil
	case err == nil && ago < 0:
		return time.Time{}, usageError(flag + " is negative; give how long ago, such as 5m, or a time")
	case err == nil:
		return now.Add(-ago), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", time.DateTime, "2006-01-02T15:04", "2006-01-02 15:04", time.DateOnly,
		time.TimeOnly, "15:04"} {
		t, err := time.ParseInLocation(layout, text, time.Local)
		if err != nil {
			continue
		}
		if t.Year() == 0 { // of today
			y, m, d := now.Date()
			t = time.Date(y, m, d, t.Hour(), t.Minute(), t.Second(), 0, time.Local)
		}
		return t, nil
	}
	return time.Time{}, usageError(fmt.Sprintf("%s %.80q is no time; write how long ago (5m), 15:04:05, 2006-01-02 or 2006-01-02T15:04:05Z", flag, text))
}

// timeText is a time with its zone: that of this place, or UTC.
func timeText(t time.Time, utc bool, layout string) string {
	if t = t.Local(); utc {
		t = t.UTC()
	}
	return t.Format(layout + "Z07:00")
}
