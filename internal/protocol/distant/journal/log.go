package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/tend-run/tend/internal/lib/atomicfile"
)

// segmentSize is how many bytes on the wire the frames of a segment stand for.
const segmentSize = 64 << 20

// maxSegment bounds the bytes of a segment that is read. None comes near it: what
// is no frame is smaller than the answer that goes with it.
const maxSegment = 4*segmentSize + 2*maxRecord

// Log is the journal of one session. It is not safe for concurrent use, but
// for [Log.Frames], which reads the files.
type Log struct {
	dir     string
	state   State
	file    *os.File
	segment uint64
	cost    int64 // of the frames in the segment
	size    int64 // of the segment
	limit   int64 // segmentSize, or less in tests
	buf     []byte
}

// Create makes the directory, for its owner alone, and begins with the state.
func Create(dir string, s State) (*Log, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	l := &Log{dir: dir, state: s.clone(), limit: segmentSize}
	if err := l.rotate(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return l, nil
}

// Open reads what is there and continues behind it.
func Open(dir string) (*Log, error) {
	segments, err := segmentsIn(dir)
	if err != nil {
		return nil, err
	}
	l := &Log{dir: dir, limit: segmentSize}
	// A segment whose first record is torn was never used.
	for i := len(segments) - 1; i >= 0; i-- {
		if err := l.load(segments[i]); err == nil {
			return l, nil
		} else if !errors.Is(err, ErrTorn) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%s holds no session: %w", dir, ErrTorn)
}

func (l *Log) load(segment uint64) error {
	file, err := atomicfile.Open(segmentPath(l.dir, segment), os.O_RDWR)
	if err != nil {
		return err
	}
	if err := l.resume(file, segment); err != nil {
		return errors.Join(err, file.Close())
	}
	l.file = file
	return nil
}

// resume reads a segment and cuts what is torn, so that what follows can be read.
func (l *Log) resume(file *os.File, segment uint64) error {
	data, err := atomicfile.ReadAll(file, maxSegment)
	if err != nil {
		return err
	}
	first, n, err := Parse(data)
	if err != nil {
		return err
	}
	var s State
	if first.Kind != KindState || json.Unmarshal(first.Data, &s) != nil {
		return ErrTorn
	}
	l.state, l.segment, l.cost = s, segment, 0
	for {
		r, size, err := Parse(data[n:])
		if err != nil {
			break
		}
		l.state.apply(&r)
		l.cost += r.cost()
		n += size
	}
	l.size = int64(n)
	return file.Truncate(l.size)
}

// State is what the session has come to. It is the log's own: do not change
// it, and do not keep it over the next Append.
func (l *Log) State() *State { return &l.state }

// Append writes one record and applies it to the state. With an error the
// record may be torn: the log is of no use any more.
func (l *Log) Append(r Record) error {
	if l.cost >= l.limit {
		if err := l.rotate(); err != nil {
			return err
		}
	}
	l.buf = r.Append(l.buf[:0])
	if _, err := l.file.WriteAt(l.buf, l.size); err != nil {
		return err
	}
	l.size += int64(len(l.buf))
	if cap(l.buf) > 64<<10 {
		l.buf = nil
	}
	l.cost += r.cost()
	l.state.apply(&r)
	return nil
}

// AppendJSON appends a record of a kind that is kept as JSON: a [Stream], [Watch],
// [Search] or [Write].
func (l *Log) AppendJSON(kind Kind, v any) error {
	r, err := jsonRecord(kind, v)
	if err != nil {
		return err
	}
	return l.Append(r)
}

// rotate begins a segment and removes all but the one before it.
func (l *Log) rotate() error {
	l.state.forget(l.state.Base)
	l.state.Base = l.state.Sent
	r, err := jsonRecord(KindState, &l.state)
	if err != nil {
		return err
	}
	file, err := atomicfile.Open(segmentPath(l.dir, l.segment+1), os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	b := r.Append(nil)
	if _, err := file.Write(b); err != nil {
		return errors.Join(err, file.Close())
	}
	if l.file != nil {
		if err := l.file.Close(); err != nil {
			return errors.Join(err, file.Close())
		}
	}
	l.file, l.size, l.cost = file, int64(len(b)), 0
	l.segment++
	if l.segment > 2 {
		if err := os.Remove(segmentPath(l.dir, l.segment-2)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Close keeps the session on disk.
func (l *Log) Close() error { return l.file.Close() }

// Dir is the directory of the session.
func (l *Log) Dir() string { return l.dir }

// ErrForgotten: the frames that are asked for are not known any more.
var ErrForgotten = errors.New("more was sent than is remembered")

// Frames calls yield with the frames after the number from, up to the number
// to, in order. Frames may be appended meanwhile.
func (l *Log) Frames(from, to uint64, yield func(Record) error) error {
	segments, err := segmentsIn(l.dir)
	if err != nil {
		return err
	}
	next := from + 1
	for _, segment := range segments {
		if next > to {
			break
		}
		data, err := atomicfile.Read(segmentPath(l.dir, segment), maxSegment)
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				continue // removed meanwhile
			}
			return err
		}
		for len(data) > 0 {
			r, n, err := Parse(data)
			if err != nil {
				break
			}
			data = data[n:]
			if !r.isFrame() || r.Frame < next || r.Frame > to {
				continue
			}
			if r.Frame != next {
				return ErrForgotten
			}
			if err := yield(r); err != nil {
				return err
			}
			next++
		}
	}
	if next <= to {
		return ErrForgotten
	}
	return nil
}

func segmentPath(dir string, n uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%08d.log", n))
}

// segmentsIn lists the segments, oldest first.
func segmentsIn(dir string) ([]uint64, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []uint64
	for _, e := range entries {
		var n uint64
		if _, err := fmt.Sscanf(e.Name(), "%d.log", &n); err == nil && n > 0 {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out, nil
}
