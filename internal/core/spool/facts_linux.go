package spool

import (
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/eintr"
	"github.com/tend-run/tend/process"
)

// Free frees the output of a finished process and keeps its facts. Its streams keep the
// lengths in ends, but no bytes. The caller must have announced this to the readers
// before. Free works on a full filesystem, and can be repeated after an interruption at
// any point. It returns the new journal. sync: the facts must survive a power loss.
func Free(dir string, ends [4]int64, sync bool) (*Journal, error) {
	j, err := ReadJournal(dir)
	if err != nil {
		return nil, err
	}
	if !j.Freed {
		rec := appendFreed(nil, time.Now(), ends)
		err := appendTo(dir, j.Size, rec)
		if isFull(err) {
			// The index gives a block; without it the output has no order and no
			// times, and all its bytes.
			if rerr := os.Remove(filepath.Join(dir, IndexName)); rerr == nil {
				err = appendTo(dir, j.Size, rec)
			}
		}
		if err != nil {
			return nil, err
		}
		j.Freed, j.FreedAt = true, ends
		j.Size += int64(len(rec))
	}
	if err := DropOutput(dir); err != nil {
		return nil, err
	}
	return shrink(dir, j, sync)
}

// AppendJournal writes whole records to a journal that was opened to append, or
// nothing: a record cut short would hide all that follow it.
func AppendJournal(fd int, rec []byte) error {
	n, err := eintr.Write(fd, rec)
	var st unix.Stat_t
	if err != nil && n > 0 && unix.Fstat(fd, &st) == nil {
		_ = unix.Ftruncate(fd, st.Size-int64(n)) // if not, repair cuts it off
	}
	return err
}

// appendTo appends a record to a journal whose whole records end at size.
func appendTo(dir string, size int64, rec []byte) error {
	f, err := open(dir, JournalName, unix.O_WRONLY)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteAt(rec, size)
	if err != nil {
		_ = f.Truncate(size) // if not, it is a torn tail
	}
	return err
}

// DropOutput removes data and index. It leaves the journal, whatever that is. The
// blocks are freed before the files are removed: a reader may hold the files open
// for long. It reads zeros then, and reports them as a gap.
func DropOutput(dir string) error {
	for _, name := range fileNames {
		if name == JournalName {
			continue
		}
		path := filepath.Join(dir, name)
		if fd, err := OpenFile(path, unix.O_RDWR); err == nil {
			var st unix.Stat_t
			if unix.Fstat(fd, &st) == nil && st.Size > 0 {
				_ = Punch(fd, 0, (st.Size+BlockSize-1)&^(BlockSize-1))
			}
			unix.Close(fd)
		}
		if err := remove(path); err != nil {
			return err
		}
	}
	return nil
}

// shrink replaces the journal of a process without output by one whose spec is
// cut, if that gains a block. The one that is there holds until the new one is
// whole.
func shrink(dir string, j *Journal, sync bool) (*Journal, error) {
	spec, cut := Cut(&j.Spec)
	if j.Size <= BlockSize || !cut {
		return j, nil
	}
	old, err := wholeJournal(dir)
	if err != nil {
		return nil, err
	}
	b, small := withSpec(old, j, &spec), *j
	small.Spec, small.Size = spec, int64(len(b))
	if !j.IsCut() {
		small.Cut = sumOf(&j.Spec)
	}
	f, err := open(dir, newJournal, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC)
	if err != nil {
		return nil, err
	}
	_, err = f.Write(b)
	if err == nil && sync {
		err = f.Sync()
	}
	f.Close()
	if err == nil {
		err = os.Rename(filepath.Join(dir, newJournal), filepath.Join(dir, JournalName))
	}
	if err != nil {
		_ = os.Remove(filepath.Join(dir, newJournal))
		return nil, err
	}
	return &small, nil
}

// withSpec is a journal with a spec that is cut: of all other records only
// earlier pins are left out.
func withSpec(old []byte, j *Journal, spec *process.Spec) (b []byte) {
	sum := j.Cut
	if !j.IsCut() {
		sum = sumOf(&j.Spec)
	}
	for {
		kind, at, _, n := cutRecord(old)
		switch {
		case n == 0:
			if j.Pinned != spec.Retention.Pin {
				b = AppendPinned(b, j.SpecTime, j.Pinned)
			}
			return b
		case kind == recSpec:
			b = AppendSpec(b, at, spec)
			b = appendRecord(b, recCut, at, func(b []byte) []byte { return append(b, sum[:]...) })
		case kind == recPinned, kind == recCut:
		default:
			b = append(b, old[:n]...)
		}
		old = old[n:]
	}
}
