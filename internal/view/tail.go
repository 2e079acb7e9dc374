package view

import (
	"bytes"
	"slices"

	"github.com/tend-run/tend/process"
)

// lookBack is the first step in which lines are looked for from the end.
const lookBack = 64 << 10

// tail shows the end, after reporting what lies between it and the head.
func (v *viewer) tail() error {
	var pieces []process.Event
	if want := v.o.Tail; !want.zero() {
		var err error
		if pieces, err = v.last(want); err != nil {
			return err
		}
	}
	start := v.end // nothing of any stream
	for _, p := range slices.Backward(pieces) {
		start[p.Stream] = p.Offset
	}
	if err := v.skip(start); err != nil {
		return err
	}
	for _, p := range pieces {
		if err := v.show(p); err != nil {
			return err
		}
	}
	return v.flush()
}

// skip reports what is left out up to start.
func (v *viewer) skip(start [4]int64) error {
	for s, fl := range v.streams {
		if fl != nil && v.from[s] < start[s] {
			if err := fl.omit(v.from[s], start[s], Middle); err != nil {
				return err
			}
			v.from[s] = start[s]
		}
	}
	return nil
}

// last returns the wanted amount of output at the end, behind what was shown,
// by looking back in growing steps: a gigabyte is not read for its last lines.
func (v *viewer) last(want Amount) ([]process.Event, error) {
	for step := int64(lookBack); ; step *= 4 {
		if want.Bytes > 0 {
			step = want.Bytes
		}
		from, whole := v.from, true
		for s, fl := range v.streams {
			if at := v.end[s] - step; fl != nil && at > from[s] {
				from[s], whole = at, false
			}
		}
		var pieces []process.Event
		lines := int64(0)
		err := v.read(from, func(ev process.Event) (bool, error) {
			if ev.Kind == process.EventGap && !whole {
				return true, nil // the start of this step lies in what was freed
			}
			ev.Data = bytes.Clone(ev.Data)
			lines += int64(bytes.Count(ev.Data, []byte{'\n'}))
			pieces = append(pieces, ev)
			return true, nil
		})
		if err != nil {
			return nil, err
		}
		// Two more than wanted: the first is cut by the place it starts at,
		// and the last may have no end yet. More than MaxBytes is not kept.
		if want.Bytes > 0 || whole || lines > want.Lines+1 || step >= MaxBytes {
			return cutFront(pieces, want), nil
		}
	}
}

// cutFront leaves the wanted amount at the end of the pieces.
func cutFront(pieces []process.Event, want Amount) []process.Event {
	bytesLeft, linesLeft := want.Bytes, want.Lines
	if n := len(pieces); n > 0 && linesLeft > 0 && !bytes.HasSuffix(pieces[n-1].Data, []byte{'\n'}) {
		linesLeft-- // an unfinished line at the end counts
	}
	for i := len(pieces) - 1; i >= 0; i-- {
		p := &pieces[i]
		if p.Kind != process.EventOutput {
			continue
		}
		cut := 0
		if want.Bytes > 0 {
			if bytesLeft -= int64(len(p.Data)); bytesLeft > 0 {
				continue
			}
			cut = int(-bytesLeft)
		} else if cut = lineCut(p.Data, &linesLeft); cut < 0 {
			continue
		}
		p.Data = p.Data[cut:]
		p.Offset += int64(cut)
		if len(p.Data) == 0 {
			i++
		}
		return pieces[i:]
	}
	return pieces
}

// lineCut returns where the wanted lines begin in data, or -1 if they begin
// before it, and counts those it saw.
func lineCut(data []byte, left *int64) int {
	i := bytes.LastIndexByte(data, '\n')
	for ; i >= 0 && *left > 0; *left-- {
		i = bytes.LastIndexByte(data[:i], '\n')
	}
	if i < 0 {
		return -1
	}
	return i + 1
}
