package spool

import (
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/eintr"
	"github.com/tend-run/tend/process"
)

// CreateDir creates the directory of a process, with mode 0700. If it exists, the error
// is process.ErrExists.
func CreateDir(root string, id process.ID) (string, error) {
	dir := filepath.Join(root, string(id))
	switch err := unix.Mkdir(dir, 0o700); err {
	case nil:
		return dir, nil
	case unix.EEXIST:
		return "", process.ErrExists
	default:
		return "", fmt.Errorf("make %s: %w", dir, err)
	}
}

// OpenStream opens the data file of a stream for reading and writing, and creates it
// with mode 0600 if needed. It never uses O_APPEND, because splice(2) refuses that.
func OpenStream(dir string, s process.Stream) (int, error) {
	return OpenFile(filepath.Join(dir, FileName(s)), unix.O_RDWR|unix.O_CREAT)
}

// Punch frees the whole blocks of [from, to) of an open data file; offsets do
// not move. process.ErrUnsupported where the filesystem cannot.
func Punch(fd int, from, to int64) error {
	from = (from + BlockSize - 1) &^ (BlockSize - 1)
	to &^= BlockSize - 1
	if to <= from {
		return nil
	}
	err := eintr.Do(func() error {
		return unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, from, to-from)
	})
	if err == unix.EOPNOTSUPP || err == unix.ENOSYS {
		return fmt.Errorf("%w: %w", process.ErrUnsupported, err)
	}
	return err
}

// TrimIndex frees the head of an open index: the records, from byte from to byte end,
// before the first one that says something about bytes at or above base of its stream,
// but not the newest size of a terminal among them: that holds for what is kept. It
// examines at most most bytes and returns where it stopped, which is where to continue.
// A hole in the index reads as damaged records, which readers and repair skip.
func TrimIndex(fd int, from, end, most int64, base *[4]int64) (int64, error) {
	at, size := from, int64(-1) // size: where the newest one is that was passed
	buf := make([]byte, 32<<10)
look:
	for at < end && at-from < most {
		n, err := eintr.Pread(fd, buf[:min(int64(len(buf)), end-at)], at)
		if err != nil || n < IndexSize {
			break
		}
		for i := 0; i+IndexSize <= n; i += IndexSize {
			r, ok := ParseIndex(buf[i:n])
			switch {
			case !ok:
			case r.Kind == IndexData && r.Offset+int64(r.Len) <= base[r.Stream], r.Kind == IndexTrim && r.Offset < base[r.Stream]:
			case r.Kind == IndexSized && r.Offset <= base[r.Stream]:
				size = at
			default:
				break look
			}
			at += IndexSize
		}
	}
	// A version that does not repeat sizes may have written more than one look after one.
	// That one is freed, or nothing would ever be.
	if size > from || size == from && at-from < most {
		at = size
	}
	return at, Punch(fd, from&^(BlockSize-1), at)
}
