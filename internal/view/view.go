package view

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tend-run/tend/process"
)

// Bounds of what one view may hold.
const (
	MaxBytes = 16 << 20 // of head, and of tail
	MaxLines = 1 << 20  // of head, and of tail
	MinLine  = 16       // bytes of Options.MaxLine
)

// Amount is a part of the output: of all streams together, in the order of
// arrival. The zero Amount is nothing; at most one field is set.
type Amount struct {
	Bytes int64
	Lines int64
}

func (a Amount) zero() bool { return a.Bytes == 0 && a.Lines == 0 }

// Options say what to show.
type Options struct {
	// Streams to show; empty: all.
	Streams []process.Stream
	// From is where each stream starts, as in process.ReadOptions. Past the end is
	// [process.ErrOffset], which says where the end is.
	From [4]int64
	// Head and Tail select how much of the beginning and of the end is shown. Both zero:
	// everything.
	Head, Tail Amount
	// StripANSI takes terminal escape sequences away.
	StripANSI bool
	// MaxLine cuts lines after this many bytes; 0: they are not cut.
	MaxLine int
	// Times makes text say when it arrived.
	Times bool
}

// Validate reports what is wrong as a [*process.InvalidError], or nil.
func (o *Options) Validate() error {
	for name, a := range map[string]Amount{"head": o.Head, "tail": o.Tail} {
		switch {
		case a.Bytes < 0 || a.Lines < 0 || a.Bytes > MaxBytes || a.Lines > MaxLines:
			return &process.InvalidError{Field: name, Reason: fmt.Sprintf("is %d bytes and %d lines; at most %d bytes or %d lines are allowed",
				a.Bytes, a.Lines, MaxBytes, MaxLines)}
		case a.Bytes > 0 && a.Lines > 0:
			return &process.InvalidError{Field: name, Reason: "is given in bytes and in lines; give one"}
		}
	}
	if o.MaxLine != 0 && (o.MaxLine < MinLine || o.MaxLine > MaxBytes) {
		return &process.InvalidError{Field: "max_line", Reason: fmt.Sprintf("is %d bytes; %d to %d are allowed, 0 for whole lines",
			o.MaxLine, MinLine, MaxBytes)}
	}
	return nil
}

// Reason says why something is not shown.
type Reason uint8

const (
	Middle   Reason = iota + 1 // it lies between head and tail
	LongLine                   // it is the rest of a line that was cut
	Freed                      // retention freed it
)

func (r Reason) String() string {
	switch r {
	case Middle:
		return "middle"
	case LongLine:
		return "long_line"
	case Freed:
		return "freed"
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

// Item is a piece of the view: text, or a range that is left out.
type Item struct {
	Stream process.Stream
	// From and To are the raw range [From, To) that the item stands for.
	From, To int64
	// Text is what is shown of it; valid until the next item.
	Text []byte
	// Omitted is why the range is not shown; 0 for text.
	Omitted Reason
	// Time is when the first byte of the text arrived, with Options.Times; the rest may
	// have come up to 100 ms later. Zero if it is not known.
	Time time.Time
}

// Show delivers the view of what the process has written until now.
func Show(ctx context.Context, p process.Process, o Options, item func(Item) error) error {
	if err := o.Validate(); err != nil {
		return err
	}
	info, err := p.Info(ctx)
	if err != nil {
		return err
	}
	v := &viewer{ctx: ctx, p: p, o: &o, item: item}
	for _, si := range info.Streams {
		if Wanted(o.Streams, si.Stream) {
			v.streams[si.Stream] = &filter{stream: si.Stream, strip: o.StripANSI, maxLine: o.MaxLine, item: item}
			v.end[si.Stream] = si.End
			if v.from[si.Stream], err = start(si, o.From); err != nil {
				return err
			}
		}
	}
	if o.Head.zero() && o.Tail.zero() {
		return v.all()
	}
	if err := v.head(); err != nil {
		return err
	}
	return v.tail()
}

// start is where a stream starts.
func start(si process.StreamInfo, from [4]int64) (int64, error) {
	switch at := from[si.Stream]; {
	case at == process.FromNow:
		return si.End, nil
	case at > si.End:
		return 0, process.PastEnd(si.Stream, si.End, at)
	default:
		return at, nil
	}
}

// Wanted reports whether a stream is one of those, of which none stands for all.
func Wanted(streams []process.Stream, s process.Stream) bool {
	return len(streams) == 0 || slices.Contains(streams, s)
}

// viewer makes one view.
type viewer struct {
	ctx     context.Context // of the one call it lives for
	p       process.Process
	o       *Options
	item    func(Item) error
	streams [4]*filter
	from    [4]int64 // what is not shown yet
	end     [4]int64 // where the view ends
}

// read calls f for the output from v.from on, in the order of arrival, up to
// the ends of the view. f returns false when it has enough.
func (v *viewer) read(from [4]int64, f func(ev process.Event) (bool, error)) error {
	opts := process.ReadOptions{From: from, NoFollow: true, MaxChunk: 64 << 10}
	for s, fl := range v.streams {
		if fl != nil {
			opts.Streams = append(opts.Streams, process.Stream(s))
		}
	}
	if len(opts.Streams) == 0 {
		return nil
	}
	r, err := v.p.Read(v.ctx, opts)
	if err != nil {
		return err
	}
	for ev, err := range process.Follow(v.ctx, r) {
		if err != nil {
			return err
		}
		if ev.Kind == process.EventGap {
			ev.Stream, ev.Offset = ev.Gap.Stream, ev.Gap.From
		}
		if ev.Kind != process.EventOutput && ev.Kind != process.EventGap {
			continue
		}
		// Written after the call: not of this view.
		if left := v.end[ev.Stream] - ev.Offset; left <= 0 {
			continue
		} else if ev.Kind == process.EventOutput {
			ev.Data = ev.Data[:min(left, int64(len(ev.Data)))]
		}
		if more, err := f(ev); err != nil || !more {
			return err
		}
	}
	return nil
}

// show passes one event on.
func (v *viewer) show(ev process.Event) error {
	fl := v.streams[ev.Stream]
	if ev.Kind == process.EventGap {
		v.from[ev.Stream] = ev.Gap.To
		return fl.omit(ev.Gap.From, ev.Gap.To, Freed)
	}
	v.from[ev.Stream] = ev.Offset + int64(len(ev.Data))
	if v.o.Times {
		fl.time = ev.Time
	}
	return fl.add(ev.Offset, ev.Data)
}

func (v *viewer) flush() error {
	for _, fl := range v.streams {
		if fl != nil {
			if err := fl.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (v *viewer) all() error {
	err := v.read(v.from, func(ev process.Event) (bool, error) { return true, v.show(ev) })
	if err != nil {
		return err
	}
	return v.flush()
}

// head shows the beginning.
func (v *viewer) head() error {
	left := v.o.Head
	if left.zero() {
		return nil
	}
	return v.read(v.from, func(ev process.Event) (bool, error) {
		if ev.Kind == process.EventOutput {
			ev.Data = left.Cut(ev.Data)
		}
		return !left.zero(), v.show(ev)
	})
}

// Cut returns the part of data that the amount allows, and takes it off.
func (a *Amount) Cut(data []byte) []byte {
	if a.Lines == 0 {
		data = data[:min(int64(len(data)), a.Bytes)]
		a.Bytes -= int64(len(data))
		return data
	}
	for i, c := range data {
		if c == '\n' {
			if a.Lines--; a.Lines == 0 {
				return data[:i+1]
			}
		}
	}
	return data
}
