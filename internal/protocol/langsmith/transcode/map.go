package transcode

import (
	"fmt"
	"io"
	"sort"
)

// step is the most raw bytes between two points with replaced bytes between
// them.
const step = 64 << 10

// Point is what the map knows: Replaced bytes of the first Raw bytes are no
// part of a character.
type Point struct{ Raw, Replaced int64 }

// Text is the text offset of the point.
func (p Point) Text() int64 { return p.Raw + int64(Grown)*p.Replaced }

// Map leads from text offsets back to raw offsets, for the part of a stream
// that was turned into text once. The zero Map knows the beginning of the
// stream. It is not safe for concurrent use.
type Map struct {
	// points after the zero point, in order, none at the same Raw. Between
	// neighbours with the same Replaced nothing is replaced.
	points []Point
}

// End is the last point known: the text from there on is not in the map yet.
func (m *Map) End() Point {
	if len(m.points) == 0 {
		return Point{}
	}
	return m.points[len(m.points)-1]
}

// before is the last point but one.
func (m *Map) before() Point {
	if len(m.points) < 2 {
		return Point{}
	}
	return m.points[len(m.points)-2]
}

// Add takes the raw bytes from End on into the map. They end where a character
// does.
func (m *Map) Add(raw []byte) {
	for len(raw) > 0 {
		piece := raw
		if len(raw) > step {
			piece = raw[:Settled(raw[:step])]
		}
		m.AddCounted(len(piece), Replaced(piece))
		raw = raw[len(piece):]
	}
}

// AddCounted is Add for n raw bytes, at most 64 KiB of them if any was
// replaced, of which the caller has counted the replaced ones.
func (m *Map) AddCounted(n, replaced int) {
	if n == 0 {
		return
	}
	last, prev := m.End(), m.before()
	next := Point{last.Raw + int64(n), last.Replaced + int64(replaced)}
	clean, wasClean := replaced == 0, last.Replaced == prev.Replaced
	// The last point moves if what is between it and the one before stays
	// what it is: clean, or short.
	if len(m.points) > 0 && (clean && wasClean || !clean && !wasClean && next.Raw-prev.Raw <= step) {
		m.points[len(m.points)-1] = next
		return
	}
	m.points = append(m.points, next)
}

// Skip takes the bytes from End to raw for clean without having seen them:
// they were freed before anybody read them. Their text offsets are then a
// convention, which is kept as all other points are.
func (m *Map) Skip(raw int64) {
	if n := raw - m.End().Raw; n > 0 {
		m.points = append(m.points, Point{raw, m.End().Replaced})
	}
}

// Locate returns the last point at or before the text offset where a character
// begins: Text() is at most three bytes less than text, and equal to it if a
// character begins there. text lies within the map. Of a text offset whose
// bytes were freed it says only that: the point is before src.Base().
func (m *Map) Locate(text int64, src Source) (Point, error) {
	return m.locate(text, Point.Text, src)
}

// Source is a raw stream whose head may have been freed.
type Source interface {
	// ReadAt reads freed bytes as zeros.
	io.ReaderAt
	// Base is the first byte that was not freed.
	Base() (int64, error)
}

// AfterGap returns the first point at or behind base where a character begins
// for certain, where all before base was freed: the rest of a character that
// was cut is left out.
func (m *Map) AfterGap(base int64, src Source) (Point, error) {
	if base >= m.End().Raw {
		return m.End(), nil
	}
	var head [maxSequence - 1]byte
	n, err := src.ReadAt(head[:], base)
	if err != nil && err != io.EOF {
		return Point{}, err
	}
	return m.LocateRaw(min(base+int64(continuations(head[:n])), m.End().Raw), src)
}

// continuations counts the bytes at the beginning of raw, three at most, that
// may belong to a character that began before.
func continuations(raw []byte) int {
	n := 0
	for n < len(raw) && n < maxSequence-1 && raw[n]&0xC0 == 0x80 {
		n++
	}
	return n
}

// LocateRaw is Locate for a raw offset.
func (m *Map) LocateRaw(raw int64, src Source) (Point, error) {
	return m.locate(raw, func(p Point) int64 { return p.Raw }, src)
}

// locate finds the last point where of(point) is at most want.
func (m *Map) locate(want int64, of func(Point) int64, src Source) (Point, error) {
	end := m.End()
	if want < 0 || want > of(end) {
		return Point{}, fmt.Errorf("offset %d is outside the map, which ends at %d", want, of(end))
	}
	if want == of(end) {
		return end, nil
	}
	i := sort.Search(len(m.points), func(i int) bool { return of(m.points[i]) > want })
	from, to := Point{}, m.points[i]
	if i > 0 {
		from = m.points[i-1]
	}
	if from.Replaced == to.Replaced {
		at := Point{from.Raw + want - of(from), from.Replaced}
		w, err := window(src, at.Raw, at.Raw+1)
		if err != nil {
			return Point{}, err
		}
		at.Raw -= int64(w.at - characterStart(w.raw, w.at))
		return at, nil
	}
	base, err := src.Base()
	if err != nil {
		return Point{}, err
	}
	w, err := window(src, from.Raw, to.Raw)
	if err != nil {
		return Point{}, err
	}
	if base > from.Raw {
		// Only the end says what was replaced in the freed part.
		w.at += int(min(base, to.Raw) - from.Raw)
		w.at += continuations(w.raw[w.at:])
		end := len(w.raw) - w.behind
		w.at = min(w.at, end)
		at := Point{to.Raw - int64(end-w.at), to.Replaced - int64(Replaced(w.raw[w.at:end]))}
		if of(at) > want {
			return from, nil
		}
		from = at
	}
	return w.walk(from, want, of), nil
}

// part is a range of the raw stream with what is around it.
type part struct {
	raw    []byte
	at     int // where the range begins in raw
	behind int // bytes of raw behind the range
}

// window reads the raw bytes [from, to) and three on either side.
func window(src io.ReaderAt, from, to int64) (part, error) {
	begin := max(0, from-maxSequence+1)
	raw := make([]byte, to-begin+maxSequence-1)
	n, err := src.ReadAt(raw, begin)
	if err != nil && err != io.EOF {
		return part{}, err
	}
	if begin+int64(n) < to {
		return part{}, fmt.Errorf("raw bytes %d to %d: %w", begin, to, io.ErrUnexpectedEOF)
	}
	return part{raw[:n], int(from - begin), int(begin + int64(n) - to)}, nil
}

// walk goes from a point, where a character begins, to the wanted offset,
// character by character.
func (w part) walk(p Point, want int64, of func(Point) int64) Point {
	for i := w.at; i < len(w.raw); {
		size, replaced := sequence(w.raw[i:]), 0
		if size == 0 {
			size, replaced = 1, 1
		}
		next := Point{p.Raw + int64(size), p.Replaced + int64(replaced)}
		if of(next) > want {
			break
		}
		p = next
		i += size
	}
	return p
}
