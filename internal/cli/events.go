package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tend-run/tend/process"
)

type eventsCmd struct {
	inSandbox
	Follow bool   `short:"f" xor:"end" help:"Follow: print also what happens from now on."`
	Since  string `placeholder:"TIME" help:"Only what happened since then: 5m ago, or a time as of tend logs."`
	Until  string `xor:"end" placeholder:"TIME" help:"Only what happened before then."`
	UTC    bool   `name:"utc" help:"Times are those of UTC. Default: of this place, with its zone."`
	ID     string `arg:"" complete:"process" optional:"" help:"Only events of this process."`
}

func (c *eventsCmd) Ask(ctx context.Context, inv *invocation, d *daemon) error {
	since, err := moment("--since", c.Since)
	if err != nil {
		return err
	}
	until, err := moment("--until", c.Until)
	if err != nil {
		return err
	}
	only := process.ID("")
	if c.ID != "" {
		p, err := d.find(ctx, c.ID)
		if err != nil {
			return err
		}
		only = p.ID()
	}
	v := &eventView{inv: inv, d: d, utc: c.UTC, only: only, since: since, until: until,
		printed: map[process.ID]process.EventKind{}, subjects: map[process.ID]subject{}}
	if !inv.flags.JSON {
		if err := v.line(dim, "TIME", "ID", "PID", "EVENT", "NAME", "COMMAND"); err != nil {
			return err
		}
	}
	if !c.Follow {
		return v.past(ctx)
	}
	ctx, stop := inv.whileRead(ctx)
	defer stop()
	for {
		err := v.follow(ctx)
		if ctx.Err() != nil {
			return left(ctx)
		}
		// The watcher reports that it has fallen behind. The list fills in what
		// was missed.
		if !errors.Is(err, process.ErrLagged) {
			return err
		}
	}
}

// eventView prints the lifecycle facts of processes, each once.
type eventView struct {
	inv      *invocation
	d        *daemon
	utc      bool
	only     process.ID // "": all
	since    time.Time
	until    time.Time                        // zero: no end
	printed  map[process.ID]process.EventKind // the last of each process
	subjects map[process.ID]subject
}

// subject is the process that an event is about. Of one that is gone nothing is
// known.
type subject struct{ name, command string }

func subjectOf(s *process.Spec) subject {
	return subject{name: cmp.Or(s.Name, s.Tag), command: commandOf(s)}
}

// follow prints what is known, then what happens. The watcher is opened before
// the list is read, so that nothing falls between the two.
func (v *eventView) follow(ctx context.Context) error {
	w, err := v.d.Watch(ctx)
	if err != nil {
		return err
	}
	defer w.Close()
	if err := v.past(ctx); err != nil {
		return err
	}
	for ev, err := range process.Follow(ctx, w) {
		if err == nil {
			err = v.show(ctx, ev)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// past prints the facts of all known processes in the order of their times.
func (v *eventView) past(ctx context.Context) error {
	infos, err := v.d.List(ctx, process.Filter{})
	if err != nil {
		return err
	}
	var facts []process.Event
	for i := range infos {
		info := &infos[i]
		v.subjects[info.ID] = subjectOf(&info.Spec)
		facts = append(facts, process.Event{Kind: process.EventStarted, ID: info.ID, Time: info.Started, PID: info.PID})
		if info.Exit != nil {
			facts = append(facts, process.Event{Kind: process.EventExited, ID: info.ID, Time: info.Exit.Time, PID: info.PID, Exit: info.Exit})
		}
	}
	slices.SortStableFunc(facts, func(a, b process.Event) int { return a.Time.Compare(b.Time) })
	for _, ev := range facts {
		if err := v.show(ctx, ev); err != nil {
			return err
		}
	}
	return nil
}

// show prints a fact unless it was printed before: the list and the watcher
// may both know it.
func (v *eventView) show(ctx context.Context, ev process.Event) error {
	if v.only != "" && ev.ID != v.only || v.printed[ev.ID] >= ev.Kind {
		return nil
	}
	v.printed[ev.ID] = ev.Kind
	if at := ev.Time; !at.IsZero() && (at.Before(v.since) || !v.until.IsZero() && !at.Before(v.until)) {
		return nil
	}
	about, known := v.subjects[ev.ID]
	if !known && ev.Kind != process.EventRemoved {
		about = v.subject(ctx, ev.ID)
	}
	if v.subjects[ev.ID] = about; ev.Kind == process.EventRemoved {
		delete(v.subjects, ev.ID)
	}
	if v.inv.flags.JSON {
		return printJSONLine(v.inv.out, eventFactsOf(ev, about.command))
	}
	return v.print(ev, about)
}

// subject asks what a process is that just started.
func (v *eventView) subject(ctx context.Context, id process.ID) subject {
	p, err := v.d.Get(ctx, process.Selector{ID: id})
	if err != nil {
		return subject{}
	}
	info, err := p.Info(ctx)
	if err != nil {
		return subject{}
	}
	return subjectOf(&info.Spec)
}

// print writes a line as ps does. The width of a column is fixed: what comes is
// not known.
func (v *eventView) print(ev process.Event, about subject) error {
	what, sgr := ev.Kind.String(), ""
	switch {
	case ev.Kind == process.EventStarted:
		sgr = green
	case ev.Kind == process.EventTreeGone:
		what, sgr = "tree gone", dim
	case ev.Kind == process.EventExited && ev.Exit != nil:
		info := process.Info{State: process.Exited, Exit: ev.Exit, TreeGone: true}
		what, sgr = stateText(&info), colourOf(&info, ev.Time)
	default:
		sgr = dim
	}
	at, pid := "-", "-"
	if !ev.Time.IsZero() {
		at = timeText(ev.Time, v.utc, "2006-01-02 15:04:05.000")
	}
	if ev.PID != 0 {
		pid = fmt.Sprint(ev.PID)
	}
	return v.line(sgr, at, cmp.Or(shortID(ev.ID, eventWidths[1]), "-"), pid, what, printable(cmp.Or(about.name, "-")),
		printable(cmp.Or(about.command, "-")))
}

// eventWidths are those of the columns of tend events: the time to a millisecond with its zone,
// the id as run shows it, a pid, a state.
var eventWidths = []int{29, 14, 7, 14, 12, 0}

func (v *eventView) line(sgr string, row ...string) error {
	line := alignRow(row, eventWidths)
	if size, ok := terminalSize(v.inv.out); ok {
		line = cut(line, int(size.Cols))
	}
	_, err := fmt.Fprintln(v.inv.out, paint(v.inv.colours(v.inv.out), sgr, line))
	return err
}
