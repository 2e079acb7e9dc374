package cli

import (
	"bytes"
	"context"

	"github.com/tend-run/tend/internal/view"
	"github.com/tend-run/tend/process"
)

// tailOf returns the last lines or bytes of what there is now, within says of which output, and
// the offsets at which following continues.
func tailOf(ctx context.Context, p process.Process, opts process.ReadOptions, want view.Amount,
	within func(process.Event) bool) (pieces []process.Event, next [4]int64, err error) {
	info, err := p.Info(ctx)
	if err != nil {
		return nil, opts.From, err
	}
	opts.NoFollow = true
	next = opts.From
	for _, s := range info.Streams {
		if !view.Wanted(opts.Streams, s.Stream) {
			continue
		}
		next[s.Stream] = s.End
		start, err := tailStart(ctx, p, s, want)
		if err != nil {
			return nil, next, err
		}
		opts.From[s.Stream] = max(start, min(opts.From[s.Stream], s.End))
	}
	var t tail
	for ev, err := range process.Events(ctx, p, opts) {
		if err != nil {
			return nil, next, err
		}
		if ev.Kind != process.EventOutput {
			continue
		}
		next[ev.Stream] = max(next[ev.Stream], ev.Offset+int64(len(ev.Data)))
		if within(ev) {
			t.add(ev, want.Bytes > 0)
		}
	}
	return t.last(want), next, nil
}

// less is what is wanted beside pieces that there are.
func less(want view.Amount, pieces []process.Event) view.Amount {
	var open [4]bool
	for _, p := range pieces {
		want.Bytes = max(want.Bytes-int64(len(p.Data)), 0)
		if open[p.Stream] = !bytes.HasSuffix(p.Data, []byte{'\n'}); !open[p.Stream] {
			want.Lines--
		}
	}
	for _, unfinished := range open {
		if unfinished {
			want.Lines--
		}
	}
	want.Lines = max(want.Lines, 0)
	return want
}

// tailStart returns an offset from which stream s has at least the wanted
// lines or bytes, by looking back in growing steps: a gigabyte of output is
// not read for its last ten lines.
func tailStart(ctx context.Context, p process.Process, s process.StreamInfo, want view.Amount) (int64, error) {
	if want.Bytes > 0 {
		return max(s.Base, s.End-want.Bytes), nil
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
		if lines-1 > want.Lines {
			return start, nil
		}
	}
}

func countLines(ctx context.Context, p process.Process, s process.Stream, from int64) (int64, error) {
	opts := process.ReadOptions{Streams: []process.Stream{s}, NoFollow: true}
	opts.From[s] = from
	var n int64
	for ev, err := range process.Events(ctx, p, opts) {
		if err != nil {
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
func (t *tail) last(want view.Amount) []process.Event {
	if left := want.Bytes; left > 0 {
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
	left := want.Lines
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
