package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/tend-run/tend/process"
)

type logsCmd struct {
	Follow bool          `short:"f" help:"Go on with what is written, to the end of the process."`
	From   int64         `placeholder:"OFFSET" default:"0" help:"Start at this byte offset of each stream."`
	Since  time.Duration `placeholder:"5m" help:"Only what was written in this last time."`
	Head   string        `placeholder:"N" help:"The first N lines; N with a unit (16KiB) is bytes. With --tail: both ends, and what lies between is told."`
	Tail   string        `placeholder:"N" help:"The last N lines; N with a unit (16KiB) is bytes. With -f, and then what follows."`

	StripANSI bool   `name:"strip-ansi" help:"Take terminal escape sequences away."`
	MaxLine   string `name:"max-line" placeholder:"SIZE" help:"Cut lines after this many bytes (2KiB), and tell what is left out."`

	Stdout bool `xor:"stream" help:"Only standard output."`
	Stderr bool `xor:"stream" help:"Only standard error, printed on standard output."`

	ID string `arg:"" help:"The process."`
}

// outputFacts is one piece of output as JSON: text if it is valid UTF-8,
// base64 otherwise.
type outputFacts struct {
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
	// ctrl-c is how one leaves logs -f, and no failure.
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	head, err := optionalAmount("--head", c.Head)
	if err != nil {
		return err
	}
	tail, err := optionalAmount("--tail", c.Tail)
	if err != nil {
		return err
	}
	if c.From < 0 {
		return usageError("--from is negative; offsets count from 0")
	}
	if c.Since < 0 {
		return usageError("--since is negative; give how long ago, such as 5m")
	}
	shown, err := c.view(head, tail)
	if err != nil {
		return err
	}
	d, err := inv.connect(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	p, err := d.find(ctx, c.ID)
	if err != nil {
		return err
	}
	if c.Follow {
		ctx, stop = inv.whileRead(ctx)
		defer stop()
	}
	opts := process.ReadOptions{NoFollow: !c.Follow, Streams: c.streams()}
	if opts.From, err = startAt(ctx, p, c.From, opts.Streams); err != nil {
		return about(c.ID, err)
	}
	if shown != nil {
		shown.From = opts.From
		return about(c.ID, inv.printView(ctx, d, p, *shown))
	}
	if c.Stderr {
		inv = &invocation{out: inv.out, errs: inv.out, flags: inv.flags}
	}
	if tail != nil {
		if opts.From, err = printTail(ctx, inv, p, opts, *tail); err != nil || !c.Follow {
			return about(c.ID, err)
		}
	}
	err = c.print(ctx, inv, p, opts, head)
	if c.Follow && ctx.Err() != nil {
		return left(ctx)
	}
	return about(c.ID, err)
}

func (c *logsCmd) streams() []process.Stream {
	switch {
	case c.Stdout:
		return []process.Stream{process.Stdout, process.PTY}
	case c.Stderr:
		return []process.Stream{process.Stderr}
	}
	return nil
}

// startAt returns where to begin in each stream for --from. An offset, such as
// tend grep -b tells it, is of one stream; others that are not so long begin at
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
		if wanted(streams, s.Stream) {
			from[s.Stream] = min(offset, s.End)
			longest = max(longest, s.End)
		}
	}
	if offset > longest {
		return from, fmt.Errorf("%w: it ends at %d, %d was asked for", process.ErrOffset, longest, offset)
	}
	return from, nil
}

func optionalAmount(flag, text string) (*amount, error) {
	if text == "" {
		return nil, nil
	}
	a, err := parseAmount(text)
	if err != nil {
		return nil, usageError(fmt.Sprintf("%s %q %v", flag, text, err))
	}
	return &a, nil
}

// print writes output as it comes, up to head.
func (c *logsCmd) print(ctx context.Context, inv *invocation, p process.Process, opts process.ReadOptions, head *amount) error {
	reader, err := p.Read(ctx, opts)
	if err != nil {
		return err
	}
	var after time.Time
	if c.Since > 0 {
		after = time.Now().Add(-c.Since)
	}
	for ev, err := range process.Follow(ctx, reader) {
		if err != nil {
			return err
		}
		if head != nil && head.n <= 0 {
			return nil
		}
		// Output whose time is not known (it was recovered after a crash) is
		// shown: too much is better than too little.
		if ev.Kind == process.EventOutput && !ev.Time.IsZero() && ev.Time.Before(after) {
			continue
		}
		if head != nil && ev.Kind == process.EventOutput {
			ev.Data = head.take(ev.Data)
		}
		if err := inv.printOutput(ev); err != nil {
			return err
		}
	}
	return nil
}

// take returns the part of data that the amount still allows.
func (a *amount) take(data []byte) []byte {
	if a.bytes {
		data = data[:min(int64(len(data)), a.n)]
		a.n -= int64(len(data))
		return data
	}
	end := 0
	for a.n > 0 && end < len(data) {
		i := bytes.IndexByte(data[end:], '\n')
		if i < 0 {
			return data
		}
		end += i + 1
		a.n--
	}
	return data[:end]
}

// printOutput writes one event of a reader, raw or as a line of JSON.
func (inv *invocation) printOutput(ev process.Event) error {
	if !inv.flags.JSON {
		switch ev.Kind {
		case process.EventOutput:
			_, err := inv.sink(ev.Stream).Write(ev.Data)
			return err
		case process.EventGap:
			_, err := fmt.Fprintf(inv.errs, "tend: %s\n", gapText(ev.Gap))
			return err
		}
		return nil
	}
	f := outputFacts{Stream: ev.Stream.String(), Offset: ev.Offset}
	if !ev.Time.IsZero() {
		at := ev.Time.UTC()
		f.Time = &at
	}
	switch {
	case ev.Kind == process.EventGap:
		f.Stream, f.Offset, f.GapTo = ev.Gap.Stream.String(), ev.Gap.From, &ev.Gap.To
	case ev.Kind != process.EventOutput:
		return nil
	case utf8.Valid(ev.Data):
		text := string(ev.Data)
		f.Text = &text
	default:
		text := base64.StdEncoding.EncodeToString(ev.Data)
		f.Base64 = &text
	}
	return printJSONLine(inv.out, f)
}

// printTail writes the last lines or bytes of what there is now and returns
// the offsets at which following goes on.
func printTail(ctx context.Context, inv *invocation, p process.Process, opts process.ReadOptions, want amount) ([4]int64, error) {
	info, err := p.Info(ctx)
	if err != nil {
		return opts.From, err
	}
	opts.NoFollow = true
	next := opts.From
	for _, s := range info.Streams {
		if !wanted(opts.Streams, s.Stream) {
			continue
		}
		next[s.Stream] = s.End
		start, err := tailStart(ctx, p, s, want)
		if err != nil {
			return next, err
		}
		opts.From[s.Stream] = max(start, min(opts.From[s.Stream], s.End))
	}
	reader, err := p.Read(ctx, opts)
	if err != nil {
		return next, err
	}
	var t tail
	for ev, err := range process.Follow(ctx, reader) {
		if err != nil {
			return next, err
		}
		if ev.Kind != process.EventOutput {
			continue
		}
		next[ev.Stream] = max(next[ev.Stream], ev.Offset+int64(len(ev.Data)))
		t.add(ev, want.bytes)
	}
	for _, piece := range t.last(want) {
		if err := inv.printOutput(piece); err != nil {
			return next, err
		}
	}
	return next, nil
}

func wanted(streams []process.Stream, s process.Stream) bool {
	if len(streams) == 0 {
		return true
	}
	for _, w := range streams {
		if w == s {
			return true
		}
	}
	return false
}

// tailStart returns an offset from which stream s has at least the wanted
// lines or bytes, by looking back in growing steps: a gigabyte of output is
// not read for its last ten lines.
func tailStart(ctx context.Context, p process.Process, s process.StreamInfo, want amount) (int64, error) {
	if want.bytes {
		return max(s.Base, s.End-want.n), nil
	}
	for step := int64(64 << 10); ; step *= 4 {
		start := max(s.Base, s.End-step)
		if start == s.Base {
			return start, nil
		}
		lines, err := countLines(ctx, p, s.Stream, start)
		if err != nil {
			return 0, err
		}
		// One more than wanted: the first is cut by the place it starts at,
		// and the last may have no end yet.
		if lines-1 > want.n {
			return start, nil
		}
	}
}

func countLines(ctx context.Context, p process.Process, s process.Stream, from int64) (int64, error) {
	opts := process.ReadOptions{Streams: []process.Stream{s}, NoFollow: true}
	opts.From[s] = from
	reader, err := p.Read(ctx, opts)
	if err != nil {
		return 0, err
	}
	var n int64
	for ev, err := range process.Follow(ctx, reader) {
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		if ev.Kind == process.EventOutput {
			n += int64(bytes.Count(ev.Data, []byte{'\n'}))
		}
	}
	return n, nil
}

// tail keeps output in order of arrival, in pieces of at most a line.
type tail struct{ pieces []process.Event }

func (t *tail) add(ev process.Event, whole bool) {
	data := bytes.Clone(ev.Data)
	for len(data) > 0 {
		n := len(data)
		if i := bytes.IndexByte(data, '\n'); i >= 0 && !whole {
			n = i + 1
		}
		piece := ev
		piece.Data = data[:n]
		t.pieces = append(t.pieces, piece)
		ev.Offset += int64(n)
		data = data[n:]
	}
}

// last returns the pieces that make up the wanted amount at the end. A line of
// a stream may be in several pieces with pieces of another stream between;
// what is unfinished at the end counts as a line.
func (t *tail) last(want amount) []process.Event {
	left := want.n
	if want.bytes {
		for i := len(t.pieces) - 1; i >= 0; i-- {
			n := int64(len(t.pieces[i].Data))
			if n >= left {
				cut := n - left
				t.pieces[i].Data = t.pieces[i].Data[cut:]
				t.pieces[i].Offset += cut
				return t.pieces[i:]
			}
			left -= n
		}
		return t.pieces
	}
	var open, full [4]bool // open: inside a line of the stream; full: no more of it
	keep := make([]bool, len(t.pieces))
	for i := len(t.pieces) - 1; i >= 0; i-- {
		p := t.pieces[i]
		ends := bytes.HasSuffix(p.Data, []byte{'\n'})
		if ends || !open[p.Stream] {
			if left == 0 {
				full[p.Stream] = true
			} else {
				left--
				open[p.Stream] = true
			}
		}
		keep[i] = !full[p.Stream]
	}
	var kept []process.Event
	for i, ok := range keep {
		if ok {
			kept = append(kept, t.pieces[i])
		}
	}
	return kept
}
