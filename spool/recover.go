package spool

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tend-run/tend/process"
)

// Recovered is what a process's directory holds after repair.
type Recovered struct {
	Journal  Journal
	Base     [4]int64 // by stream: the oldest byte kept
	End      [4]int64 // by stream: the length
	IndexEnd int64
}

// Recover repairs the directory of a process whose keeper died: torn tails of
// journal and index are cut off, and bytes that the index does not cover get a
// record with the time unknown. Nobody may write meanwhile.
func Recover(dir string) (*Recovered, error) { return RecoverFrom(dir, nil) }

// RecoverFrom is Recover for a process of which it is known what was announced
// last, its bases, ends, and the index's end: only what follows in the index is
// looked at. nil, and an index that does not have it all: everything is.
func RecoverFrom(dir string, announced *Progress) (*Recovered, error) {
	r, covered, size, err := look(dir, announced)
	if err != nil {
		return nil, err
	}
	if r.Journal.Torn {
		if err := os.Truncate(filepath.Join(dir, JournalName), r.Journal.Size); err != nil {
			return nil, err
		}
	}
	if r.IndexEnd < size {
		if err := os.Truncate(filepath.Join(dir, IndexName), r.IndexEnd); err != nil {
			return nil, err
		}
	}
	return r, r.cover(dir, covered)
}

// inspect is Recover without the repair.
func inspect(dir string) (*Recovered, error) {
	r, _, _, err := look(dir, nil)
	return r, err
}

// look reads everything but the data: also what the index covers of each
// stream, and its size with the torn tail.
func look(dir string, announced *Progress) (r *Recovered, covered [4]int64, indexSize int64, err error) {
	j, err := ReadJournal(dir)
	if err != nil {
		return nil, covered, 0, err
	}
	r = &Recovered{Journal: *j}
	for s := process.Stdout; s <= process.PTY; s++ {
		if r.End[s], err = fileSize(filepath.Join(dir, FileName(s))); err != nil {
			return nil, covered, 0, err
		}
	}
	covered, indexSize, err = r.readIndex(dir, announced)
	for s := range r.Base {
		r.Base[s] = min(r.Base[s], r.End[s])
	}
	return r, covered, indexSize, err
}

func fileSize(path string) (int64, error) {
	fi, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return fi.Size(), nil
}

// readIndex takes bases and the end of the last whole record from the index.
// Damaged records before that are left where they are: a reader fills the hole
// from the data, but a trim after them must not be forgotten, or the zeros of
// freed blocks would be taken for output.
func (r *Recovered) readIndex(dir string, announced *Progress) (covered [4]int64, size int64, err error) {
	f, err := os.Open(filepath.Join(dir, IndexName))
	if errors.Is(err, fs.ErrNotExist) {
		return covered, 0, nil
	}
	if err != nil {
		return covered, 0, err
	}
	defer f.Close()
	b := lend(64 << 10)
	defer b.giveBack()
	if announced != nil && announced.IndexEnd >= IndexSize {
		// The last record may be of bytes that were not announced.
		last := announced.IndexEnd - IndexSize
		if n, _ := f.ReadAt(b.b[:IndexSize], last); n == IndexSize {
			if _, ok := ParseIndex(b.b[:n]); ok {
				covered, r.Base, size = announced.End, announced.Base, last
			}
		}
	}
	if _, err := f.Seek(size, io.SeekStart); err != nil {
		return covered, size, err
	}
	for {
		n, err := io.ReadFull(f, b.b)
		for at := 0; at+IndexSize <= n; at += IndexSize {
			rec, ok := ParseIndex(b.b[at:n])
			if !ok {
				continue
			}
			switch rec.Kind {
			case IndexData:
				covered[rec.Stream] = max(covered[rec.Stream], rec.Offset+int64(rec.Len))
			case IndexTrim:
				r.Base[rec.Stream] = max(r.Base[rec.Stream], rec.Offset)
			}
			r.IndexEnd = size + int64(at+IndexSize)
		}
		size += int64(n)
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return covered, size, nil
		}
		if err != nil {
			return covered, size, err
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
	f, err := os.OpenFile(filepath.Join(dir, IndexName), os.O_WRONLY|os.O_CREATE, 0o600)
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
