package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/view"
	"github.com/tend-run/tend/process"
)

type logsCmd struct {
	inSandbox
	logsFlags
	allFlag

	IDs []string `arg:"" name:"id" optional:"" complete:"process" help:"The processes. With several, each line begins with the name."`
}

type logsFlags struct {
	Follow   bool   `short:"f" help:"Follow the output to the end of the process; of a service, over its restarts."`
	From     int64  `placeholder:"OFFSET" default:"0" help:"Start at this byte offset of each stream; of a service, of its newest run."`
	Since    string `placeholder:"TIME" help:"Only what was written since then: 5m ago, 15:04:05, 2006-01-02, or 2006-01-02T15:04:05 with or without a zone."`
	Until    string `placeholder:"TIME" help:"Only what was written before then."`
	Runs     int    `xor:"runs" placeholder:"N" help:"Only the newest N runs of a service. Default: all that are kept, by time."`
	Previous bool   `short:"p" xor:"runs" help:"Only the run of a service before the newest."`
	Head     string `placeholder:"N" help:"The first N lines; N with a unit (16KiB) is bytes. With --tail: both ends, and a line that says how much is omitted between them."`
	Tail     string `short:"n" placeholder:"N" help:"The last N lines; N with a unit (16KiB) is bytes. With -f: these lines, and then new output."`
	Times    bool   `short:"t" name:"timestamps" help:"Begin each line with the time at which its first byte arrived, exact to a tenth of a second."`
	UTC      bool   `name:"utc" help:"Times are those of UTC. Default: of this place, with its zone."`

	StripANSI bool   `name:"strip-ansi" help:"Remove terminal escape sequences."`
	MaxLine   string `name:"max-line" placeholder:"SIZE" help:"Cut lines after this many bytes (2KiB), and say how much is omitted."`

	Stdout bool `xor:"stream" help:"Only standard output."`
	Stderr bool `xor:"stream" help:"Only standard error, printed on standard output."`

	head, tail   *view.Amount
	since, until time.Time
}

// outputFacts is one piece of output as JSON: text if it is valid UTF-8,
// base64 otherwise.
type outputFacts struct {
	// ID is set if several processes were asked for.
	ID     process.ID `json:"id,omitempty"`
	Stream string     `json:"stream"`
	Offset int64      `json:"offset"`
	Time   *time.Time `json:"time"` // null if not known
	Text   *string    `json:"text,omitempty"`
	Base64 *string    `json:"base64,omitempty"`
	// GapTo is set where bytes [Offset, GapTo) were freed before they were read.
	GapTo *int64 `json:"gap_to,omitempty"`
	// To and Omitted are of views: text stands for the raw bytes [Offset, To),
	// or they are left out for the reason "middle", "long_line" or "freed".
	To      *int64 `json:"to,omitempty"`
	Omitted string `json:"omitted,omitempty"`
}

func (c *logsCmd) Run(ctx context.Context, inv *invocation) error {
	if err := c.check(c.IDs); err != nil {
		return err
	}
	return c.run(ctx, inv, func(ctx context.Context, d *daemon) ([]string, error) { return c.choose(ctx, inv, d, c.IDs, true) })
}

// run prints the output of the processes that which returns.
func (c *logsFlags) run(ctx context.Context, inv *invocation, which func(context.Context, *daemon) ([]string, error)) error {
	shown, err := c.read()
	if err != nil {
		return err
	}
	d, err := inv.connect(ctx)
	if err != nil {
		return err
	}
	ids, err := which(ctx, d)
	if err != nil {
		return err
	}
	if c.Follow {
		var stop func()
		ctx, stop = inv.whileRead(ctx)
		defer stop()
		if !c.until.IsZero() {
			ctx, stop = context.WithDeadline(ctx, c.until)
			defer stop()
		}
	}
	if c.Stderr {
		own := *inv
		own.stderr = inv.out
		inv = &own
	}
	if len(ids) == 1 {
		err = c.one(ctx, inv, d, ids[0], nil, nil, shown)
	} else {
		err = c.several(ctx, inv, d, ids, shown)
	}
	if c.Follow && ctx.Err() != nil { // ctrl-c is how one leaves logs -f, and no failure
		return left(ctx)
	}
	return err
}

// read checks the flags, and returns the view that they ask for, nil for the
// output as it is.
func (c *logsFlags) read() (shown *view.Options, err error) {
	if c.head, err = optionalAmount("--head", c.Head); err != nil {
		return nil, err
	}
	if c.tail, err = optionalAmount("--tail", c.Tail); err != nil {
		return nil, err
	}
	if c.From < 0 {
		return nil, usageError("--from is negative; offsets count from 0")
	}
	if c.since, err = moment("--since", c.Since); err != nil {
		return nil, err
	}
	if c.until, err = moment("--until", c.Until); err != nil {
		return nil, err
	}
	if c.Runs < 0 {
		return nil, usageError("--runs is negative; give how many, such as 2")
	}
	shown, err = c.view()
	if shown != nil && c.Times {
		return nil, usageError("-t does not go with --head and --tail together, --strip-ansi or --max-line: what they show has no times")
	}
	return shown, err
}

// several prints the output of processes one after the other, and with -f as it
// comes.
func (c *logsFlags) several(ctx context.Context, inv *invocation, d *daemon, ids []string, shown *view.Options) error {
	together := new(sync.Mutex)
	if !c.Follow {
		return each(ids, func(id string) error { return c.one(ctx, inv, d, id, ids, together, shown) })
	}
	return errors.Join(atOnce(ids, func(_ int, id string) error { return c.one(ctx, inv, d, id, ids, together, nil) })...)
}

// one prints the output of one process, or of the runs of one service, or of one of several,
// which take turns by together.
func (c *logsFlags) one(ctx context.Context, inv *invocation, d *daemon, id string, all []string, together *sync.Mutex,
	shown *view.Options) error {
	p, err := d.find(ctx, id)
	if err != nil {
		return err
	}
	w := &outputWriter{logsFlags: c, inv: inv, d: d, id: id, all: all, together: together, shown: shown, first: c.head, last: c.tail}
	runs, err := d.runsOf(ctx, p, id)
	switch {
	case err != nil:
		return about(id, err)
	case runs == nil && (c.Previous || c.Runs > 0):
		return usageError(id + " is no service, and has one run")
	case runs == nil || c.From > 0:
		return about(id, w.write(ctx, p))
	}
	return about(id, w.runs(ctx, runs))
}

// outputWriter prints the output of a process, or of several runs of a service as one.
type outputWriter struct {
	*logsFlags
	inv         *invocation
	d           *daemon
	id          string
	all         []string // the words of all that are printed
	together    *sync.Mutex
	shown       *view.Options
	first, last *view.Amount // what of the head and of the tail is still to be printed
}

// write prints the output of one process.
func (w *outputWriter) write(ctx context.Context, p process.Process) (err error) {
	opts := process.ReadOptions{NoFollow: !w.Follow, Streams: w.streams()}
	if opts.From, err = startAt(ctx, p, w.From, opts.Streams); err != nil {
		return err
	}
	inv := w.inv
	if w.together != nil || w.Times && !inv.flags.JSON {
		own := *inv
		own.lines = &lineWriter{inv: inv, id: p.ID(), times: w.Times, utc: w.UTC, together: w.together}
		if w.together != nil {
			own.lines.name = inv.prefix(w.id, w.all)
		}
		defer func() { err = cmp.Or(err, own.lines.flush()) }()
		inv = &own
	}
	if w.shown != nil {
		v := *w.shown
		v.From = opts.From
		return inv.printView(ctx, w.d, p, v)
	}
	if w.last != nil {
		pieces, next, err := tailOf(ctx, p, opts, *w.last, w.within)
		for _, piece := range pieces {
			if err == nil {
				err = inv.printOutput(piece)
			}
		}
		if opts.From = next; err != nil || !w.Follow {
			return err
		}
	}
	return w.print(ctx, inv, p, opts)
}

// within: output was written in the time that was asked for. What was recovered after a
// crash has no time, and is shown: too much is better than too little.
func (c *logsFlags) within(ev process.Event) bool {
	return ev.Time.IsZero() || !ev.Time.Before(c.since) && (c.until.IsZero() || ev.Time.Before(c.until))
}

func (c *logsFlags) streams() []process.Stream {
	switch {
	case c.Stdout:
		return []process.Stream{process.Stdout, process.PTY}
	case c.Stderr:
		return []process.Stream{process.Stderr}
	}
	return nil
}

// startAt returns where to begin in each stream for --from. An offset, such as
// tend grep -b prints it, is of one stream; others that are not so long begin at
// their end. It is an error only if it is past the end of all.
func startAt(ctx context.Context, p process.Process, offset int64, streams []process.Stream) (from [4]int64, err error) {
	if offset == 0 {
		return from, nil
	}
	info, err := p.Info(ctx)
	if err != nil {
		return from, err
	}
	var longest int64
	for _, s := range info.Streams {
		if view.Wanted(streams, s.Stream) {
			from[s.Stream] = min(offset, s.End)
			longest = max(longest, s.End)
		}
	}
	if offset > longest {
		return from, fmt.Errorf("%w: it ends at %d, %d was asked for", process.ErrOffset, longest, offset)
	}
	return from, nil
}

func optionalAmount(flag, text string) (*view.Amount, error) {
	if text == "" {
		return nil, nil
	}
	a, err := parseAmount(text)
	if err != nil {
		return nil, usageError(fmt.Sprintf("%s %q %v", flag, text, err))
	}
	return &a, nil
}

// print writes output as it comes, up to the head.
func (w *outputWriter) print(ctx context.Context, inv *invocation, p process.Process, opts process.ReadOptions) error {
	for ev, err := range process.Events(ctx, p, opts) {
		if err != nil {
			return err
		}
		if w.first != nil && *w.first == (view.Amount{}) {
			return nil
		}
		if ev.Kind == process.EventOutput && !w.within(ev) {
			continue
		}
		if w.first != nil && ev.Kind == process.EventOutput {
			ev.Data = w.first.Cut(ev.Data)
		}
		if err := inv.printOutput(ev); err != nil {
			return err
		}
	}
	return nil
}

// printOutput writes one event of a reader, raw or as a line of JSON.
func (inv *invocation) printOutput(ev process.Event) error {
	if !inv.flags.JSON {
		switch {
		case ev.Kind == process.EventGap:
			inv.note("%s", gapText(ev.Gap))
		case ev.Kind == process.EventOutput && inv.lines != nil:
			return inv.lines.write(ev.Stream, ev.Time, ev.Data)
		case ev.Kind == process.EventOutput:
			_, err := inv.sink(ev.Stream).Write(ev.Data)
			return err
		}
		return nil
	}
	f := outputFacts{Stream: ev.Stream.String(), Offset: ev.Offset, Time: timeOrNull(ev.Time)}
	switch ev.Kind {
	case process.EventGap:
		f.Stream, f.Offset, f.GapTo = ev.Gap.Stream.String(), ev.Gap.From, &ev.Gap.To
	case process.EventOutput:
		f.Text, f.Base64 = textOrBase64(ev.Data)
	default:
		return nil
	}
	return inv.printPiece(f)
}

// printPiece writes output as JSON, with the process if there are several.
func (inv *invocation) printPiece(f outputFacts) error {
	if inv.lines == nil {
		return printJSONLine(inv.out, f)
	}
	f.ID = inv.lines.id
	inv.lines.together.Lock()
	defer inv.lines.together.Unlock()
	return printJSONLine(inv.out, f)
}

// printStep writes one event of a process that is followed as JSON: its start,
// output as logs has it, its exit.
func (inv *invocation) printStep(id process.ID, ev process.Event, command string) error {
	switch ev.Kind {
	case process.EventOutput, process.EventGap:
		return inv.printOutput(ev)
	case process.EventStarted:
		ev.ID = id
		return printJSONLine(inv.out, eventFactsOf(ev, command))
	case process.EventExited:
		ev.ID = id
		return printJSONLine(inv.out, eventFactsOf(ev, ""))
	}
	return nil
}
