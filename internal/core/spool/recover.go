package spool

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/tend-run/tend/process"
)

// Recovered is what a process's directory holds after repair.
type Recovered struct {
	Journal  Journal
	Base     [4]int64 // by stream: the oldest byte kept
	End      [4]int64 // by stream: the length
	IndexEnd int64
	Damaged  string // what else is wrong; "": nothing that is known
}

// Recover repairs the directory of a process whose keeper died: torn tails of journal
// and index are cut off, and bytes that the index does not cover get a record with the
// time unknown. There must be no writer meanwhile.
func Recover(dir string) (*Recovered, error) { return RecoverFrom(dir, nil) }

// RecoverFrom is Recover for a process whose last announced bases, ends and index
// end are known: it reads only what follows in the index. It reads everything if
// announced is nil, or if the index is shorter than announced.
func RecoverFrom(dir string, announced *Progress) (*Recovered, error) {
	r, covered, size, err := scanFiles(dir, announced)
	if err != nil {
		return nil, err
	}
	if r.Journal.Torn {
		if err := truncate(dir, JournalName, r.Journal.Size); err != nil {
			return nil, err
		}
	}
	if r.IndexEnd < size {
		if err := truncate(dir, IndexName, r.IndexEnd); err != nil {
			return nil, err
		}
	}
	return r, r.cover(dir, covered)
}

// inspect is Recover without the repair.
func inspect(dir string) (*Recovered, error) {
	r, _, _, err := scanFiles(dir, nil)
	return r, err
}

// scanFiles reads everything but the data: also what the index covers of each
// stream, and its size with the torn tail.
func scanFiles(dir string, announced *Progress) (r *Recovered, covered [4]int64, indexSize int64, err error) {
	j, err := ReadJournal(dir)
	if err != nil {
		return nil, covered, 0, err
	}
	r = &Recovered{Journal: *j}
	if j.Freed {
		r.Base, r.End = j.FreedAt, j.FreedAt
		return r, covered, 0, nil
	}
	var lost [4]bool
	for s := process.Stdout; s <= process.PTY; s++ {
		if r.End[s], err = r.length(dir, s); err != nil {
			return nil, covered, 0, err
		}
		lost[s] = r.End[s] < 0
		r.End[s] = max(r.End[s], -r.End[s]-1)
	}
	covered, indexSize, err = r.readIndex(dir, announced)
	if errors.Is(err, process.ErrDamaged) {
		r.damage(err)
		r.IndexEnd, indexSize, err = 0, 0, nil
	}
	for s := range r.Base {
		r.Base[s] = min(r.Base[s], r.End[s])
		if lost[s] {
			r.Base[s] = r.End[s]
		}
	}
	return r, covered, indexSize, err
}

// length returns how long a stream is. The journal's end of stream takes precedence
// over the file, which may be longer because of damage. It returns -1-length for a
// stream whose file cannot be read, so that nothing of it is kept.
func (r *Recovered) length(dir string, s process.Stream) (int64, error) {
	j := &r.Journal
	f, err := open(dir, FileName(s), os.O_RDONLY)
	var size int64
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case errors.Is(err, process.ErrDamaged):
		r.damage(err)
		return -1 - j.EOFAt[s], nil
	case err != nil:
		return 0, err
	default:
		fi, err := f.Stat()
		f.Close()
		if err != nil {
			return 0, err
		}
		size = fi.Size()
	}
	if j.EOF[s] && size != j.EOFAt[s] {
		r.damage(broken(FileName(s), fmt.Sprintf("has %d bytes, and had %d", size, j.EOFAt[s])))
		size = min(size, j.EOFAt[s])
	}
	return size, nil
}

// damage notes what is wrong. Only the first fault is kept.
func (r *Recovered) damage(err error) {
	if r.Damaged == "" {
		r.Damaged = err.Error()
	}
}

func truncate(dir, name string, size int64) error {
	f, err := open(dir, name, os.O_WRONLY)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Truncate(size)
}

// readIndex takes bases and the end of the last whole record from the index.
// Damaged records before that are left where they are: a reader fills the hole
// from the data, but a trim after them must not be forgotten, or the zeros of
// freed blocks would be taken for output.
func (r *Recovered) readIndex(dir string, announced *Progress) (covered [4]int64, size int64, err error) {
	f, err := open(dir, IndexName, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return covered, 0, nil
	}
	if err != nil {
		return covered, 0, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return covered, 0, err
	}
	size = fi.Size()
	b := lend(64 << 10)
	defer b.giveBack()
	at := int64(0)
	if announced != nil && announced.IndexEnd >= IndexSize {
		// The last record may be of bytes that were not announced.
		last := announced.IndexEnd - IndexSize
		if n, _ := f.ReadAt(b.b[:IndexSize], last); n == IndexSize {
			if _, ok := ParseIndex(b.b[:n]); ok {
				covered, r.Base, at = announced.End, announced.Base, last
			}
		}
	}
	for {
		// What was freed, at the head, and whatever else is a hole, is skipped.
		at = nextRecord(f, at, size)
		if at >= size {
			return covered, size, nil
		}
		n, err := f.ReadAt(b.b, at)
		for i := 0; i+IndexSize <= n; i += IndexSize {
			rec, ok := ParseIndex(b.b[i:n])
			if !ok {
				continue
			}
			switch rec.Kind {
			case IndexData:
				covered[rec.Stream] = max(covered[rec.Stream], rec.Offset+int64(rec.Len))
			case IndexTrim:
				r.Base[rec.Stream] = max(r.Base[rec.Stream], rec.Offset)
			}
			r.IndexEnd = at + int64(i+IndexSize)
		}
		at += int64(n)
		if err == io.EOF {
			return covered, max(size, at), nil
		}
		if err != nil {
			return covered, size, broken(f.Name(), "cannot be read: "+err.Error())
		}
	}
}

// cover adds records for bytes that are in the data files alone.
func (r *Recovered) cover(dir string, covered [4]int64) error {
	var add []byte
	for s := process.Stdout; s <= process.PTY; s++ {
		for at := max(covered[s], r.Base[s]); at < r.End[s]; {
			n := min(r.End[s]-at, 1<<30)
			var rec [IndexSize]byte
			IndexRecord{Kind: IndexData, Stream: s, Offset: at, Len: uint32(n)}.Put(&rec)
			add = append(add, rec[:]...)
			at += n
		}
	}
	if len(add) == 0 {
		return nil
	}
	f, err := open(dir, IndexName, os.O_WRONLY|os.O_CREATE)
	if errors.Is(err, process.ErrDamaged) {
		return nil // it was noted; a reader does without
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteAt(add, r.IndexEnd); err != nil {
		return err
	}
	r.IndexEnd += int64(len(add))
	return nil
}
