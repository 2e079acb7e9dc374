package spool

import (
	"encoding/binary"
	"maps"
	"slices"
	"time"
)

// Writers says how many bytes were accepted from each remembered writer of a process's
// input, by name.
type Writers struct {
	Taken  map[string]int64
	Forgot bool // there were more
}

// AppendWriters appends the record of the writers, once they can write no more.
func AppendWriters(b []byte, at time.Time, w Writers) []byte {
	return appendRecord(b, recWriters, at, func(b []byte) []byte {
		b = append(b, bit(w.Forgot))
		for _, name := range slices.Sorted(maps.Keys(w.Taken)) {
			b = append(append(b, byte(len(name))), name...)
			b = binary.LittleEndian.AppendUint64(b, uint64(w.Taken[name]))
		}
		return b
	})
}

func parseWriters(body []byte) (w Writers, ok bool) {
	if len(body) < 1 {
		return w, false
	}
	w = Writers{Taken: map[string]int64{}, Forgot: body[0] == 1}
	for body = body[1:]; len(body) > 0; {
		n := int(body[0])
		if len(body) < 1+n+8 {
			return w, false
		}
		w.Taken[string(body[1:1+n])] = int64(binary.LittleEndian.Uint64(body[1+n:]))
		body = body[1+n+8:]
	}
	return w, true
}
