//go:build linux

package stdin

import (
	"encoding/binary"
	"errors"
	"math"
	"time"

	"github.com/tend-run/tend/internal/lib/eintr"
	"github.com/tend-run/tend/process"
)

// Table holds how much was accepted of each writer of one process's input. The
// server writes it; the keeper reads it when it closes the input.
//
// # Layout (do not change)
//
// The table lies in the input's memfd, far behind all input, and so outlives
// server and keeper. A memfd of a former version has none, which reads as an
// empty one.
//
//	offset     what, from tableAt on (integers little-endian)
//	0          1: a writer was forgotten to make room for another
//	8          i64 all input accepted, as a write without a name last left it
//	64 + 64*i  writer i:
//	  0        u8 length of the name, 0: free; name, 32 bytes
//	  33       u8 1: its write continues; 2: the one before went on
//	  40       i64 bytes of this writer that were accepted
//	  48       i64 all input accepted, its last bytes included
//	  56       0
//
// An entry is written before the board says that its bytes are accepted, with
// one system call, which a kill does not tear apart. If the server dies between
// the two, the entry is ahead of the board; the next reader of the table notices
// that and takes the bytes back. No bytes were accepted in between: each server reads
// the table before it accepts.
type Table struct {
	mem     int
	entries [process.Writers]entry
	forgot  bool
	// goingOn: since when others have waited for the rest of a write.
	goingOn time.Time
}

const (
	tableAt   = int64(1) << 62
	othersAt  = 8
	entrySize = 64
	tableSize = entrySize * (1 + process.Writers)
)

const (
	flagGoesOn   = 1
	flagDidGoOn  = 2
	nameAt       = 1
	flagsAt      = 33
	takenAt      = 40
	acceptedAt   = 48
	maxEntryName = process.MaxWriterName
)

type entry struct {
	name     string
	flags    byte
	taken    int64
	accepted int64
}

// ReadTable reads the table of a memfd. accepted is what the board says of all
// input. With repair, what is corrected is written back; only the server does that.
func ReadTable(mem int, accepted int64, repair bool) (*Table, error) {
	t := &Table{mem: mem, goingOn: time.Now()}
	buf := make([]byte, tableSize)
	n, err := eintr.Pread(mem, buf, tableAt)
	if err != nil || n < entrySize {
		return t, err
	}
	t.forgot = buf[0] == 1
	for i := range t.entries {
		e := &t.entries[i]
		b := buf[entrySize*(1+i):][:entrySize]
		if (2+i)*entrySize > n || !e.decode(b) || e.accepted <= accepted {
			continue
		}
		e.taken -= e.accepted - accepted
		e.accepted, e.flags = accepted, e.flags>>1&flagGoesOn
		if repair {
			if err := t.write(i); err != nil {
				return t, err
			}
		}
	}
	return t, nil
}

func (e *entry) decode(b []byte) bool {
	n := int(b[0])
	if n == 0 || n > maxEntryName {
		return false
	}
	le := binary.LittleEndian
	*e = entry{string(b[nameAt : nameAt+n]), b[flagsAt], int64(le.Uint64(b[takenAt:])), int64(le.Uint64(b[acceptedAt:]))}
	return true
}

func (t *Table) write(i int) error {
	e := &t.entries[i]
	var b [entrySize]byte
	b[0] = byte(copy(b[nameAt:flagsAt], e.name))
	b[flagsAt] = e.flags
	le := binary.LittleEndian
	le.PutUint64(b[takenAt:], uint64(e.taken))
	le.PutUint64(b[acceptedAt:], uint64(e.accepted))
	_, err := eintr.Pwrite(t.mem, b[:], tableAt+entrySize*int64(1+i))
	return err
}

// Taken returns how many bytes of a writer were accepted, if it is known.
func (t *Table) Taken(name string) (n int64, known bool) {
	if i := t.find(name); i >= 0 {
		return t.entries[i].taken, true
	}
	return 0, false
}

// Forgot reports whether a writer that is not known may have been.
func (t *Table) Forgot() bool { return t.forgot }

// All returns how many bytes were accepted of each writer.
func (t *Table) All() map[string]int64 {
	all := map[string]int64{}
	for i := range t.entries {
		if e := &t.entries[i]; e.name != "" {
			all[e.name] = e.taken
		}
	}
	return all
}

// Note records that n bytes of a writer are about to be accepted, the last ones of
// accepted. more: its write continues behind them. If there is no room for a new
// writer, the one that was silent for longest is forgotten.
func (t *Table) Note(name string, n, accepted int64, more bool) error {
	i := t.find(name)
	if i < 0 {
		i = t.room()
		if t.entries[i].name != "" && !t.forgot {
			if _, err := eintr.Pwrite(t.mem, []byte{1}, tableAt); err != nil {
				return err
			}
			t.forgot = true
		}
		t.entries[i] = entry{name: name}
	}
	e := &t.entries[i]
	flags := e.flags & flagGoesOn << 1
	if more {
		flags |= flagGoesOn
		t.goingOn = time.Now()
	}
	before := *e
	e.taken, e.accepted, e.flags = e.taken+n, accepted, flags
	err := t.write(i)
	if err != nil {
		*e = before
	}
	return err
}

// NoteOther records that a writer without a name is about to write the last bytes of
// accepted: for [End], where there is a table.
func (t *Table) NoteOther(accepted int64) error {
	if t.entries[0].name == "" {
		return nil
	}
	_, err := eintr.Pwrite(t.mem, binary.LittleEndian.AppendUint64(nil, uint64(accepted)), tableAt+othersAt)
	return err
}

// End returns where the input in a memfd of a size ends, for a caller without a board:
// the table is not input.
func End(mem int, size int64) (int64, error) {
	if size <= tableAt {
		return size, nil
	}
	t, err := ReadTable(mem, math.MaxInt64, false)
	if err != nil {
		return 0, err
	}
	var b [8]byte
	if _, err := eintr.Pread(mem, b[:], tableAt+othersAt); err != nil {
		return 0, err
	}
	end := int64(binary.LittleEndian.Uint64(b[:]))
	for i := range t.entries {
		end = max(end, t.entries[i].accepted)
	}
	if end < 0 || end > tableAt {
		return 0, errors.New("the table of writers is damaged")
	}
	return end, nil
}

// Finish records that a writer's write has ended with the bytes that were accepted.
func (t *Table) Finish(name string) error {
	if i := t.find(name); i >= 0 && t.entries[i].flags != 0 {
		t.entries[i].flags = 0
		return t.write(i)
	}
	return nil
}

// Await begins the wait for the rest of a writer's unfinished write again.
func (t *Table) Await(name string) {
	if i := t.find(name); i >= 0 && t.entries[i].flags&flagGoesOn != 0 {
		t.goingOn = time.Now()
	}
}

// GoingOn returns the writer of an unfinished write, and since when other writers have
// waited for its rest.
func (t *Table) GoingOn(accepted int64) (name string, since time.Time) {
	for i := range t.entries {
		if e := &t.entries[i]; e.name != "" && e.flags&flagGoesOn != 0 && e.accepted == accepted {
			return e.name, t.goingOn
		}
	}
	return "", time.Time{}
}

// Interrupted reports whether other input, of which accepted is the end, has come between a
// writer's unfinished write and its rest.
func (t *Table) Interrupted(name string, accepted int64) bool {
	i := t.find(name)
	return i >= 0 && t.entries[i].flags&flagGoesOn != 0 && t.entries[i].accepted != accepted
}

func (t *Table) find(name string) int {
	for i := range t.entries {
		if t.entries[i].name == name {
			return i
		}
	}
	return -1
}

// room returns a free place, or that of the writer that wrote longest ago.
func (t *Table) room() int {
	oldest := 0
	for i := range t.entries {
		if t.entries[i].name == "" {
			return i
		}
		if t.entries[i].accepted < t.entries[oldest].accepted {
			oldest = i
		}
	}
	return oldest
}
