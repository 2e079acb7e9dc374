package transcode

import "encoding/binary"

// PointSize is the length of an encoded point: Raw and Replaced, 8 bytes each,
// big endian.
const PointSize = 16

// AppendPoint encodes a point.
func AppendPoint(b []byte, p Point) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(p.Raw))
	return binary.BigEndian.AppendUint64(b, uint64(p.Replaced))
}

// After returns the points behind raw, for keeping. What was kept before and
// these make the same map again.
func (m *Map) After(raw int64) []Point {
	i := len(m.points)
	for i > 0 && m.points[i-1].Raw > raw {
		i--
	}
	return m.points[i:]
}

// Parse makes a map of encoded points. It ends at the first one that cannot
// follow the one before, as after a torn write: what is missing is read from
// the stream again.
func Parse(b []byte) *Map {
	m := new(Map)
	for ; len(b) >= PointSize; b = b[PointSize:] {
		p := Point{int64(binary.BigEndian.Uint64(b)), int64(binary.BigEndian.Uint64(b[8:]))}
		last := m.End()
		if p.Raw <= last.Raw || p.Replaced < last.Replaced || p.Replaced-last.Replaced > p.Raw-last.Raw ||
			p.Raw > 1<<60 || p.Replaced > last.Replaced && p.Raw-last.Raw > step {
			break
		}
		if prev := m.before(); len(m.points) > 0 && p.Replaced == last.Replaced && last.Replaced == prev.Replaced {
			m.points[len(m.points)-1] = p
			continue
		}
		m.points = append(m.points, p)
	}
	return m
}
