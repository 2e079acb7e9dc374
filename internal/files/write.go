package files

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// headBytes is how much of an upload is read before the file is touched: an
// upload that breaks off within it changes nothing. Each upload in progress
// costs this much memory.
const headBytes = 64 << 10

// Write makes the content of r the content of the file, which it creates with
// mode 0666 less the umask, parents included. metadata replaces all metadata
// the file had. The package comment says what is left of an upload that breaks
// off.
//
// Concurrent writers of one path mix, as they do for processes.
func (f FS) Write(path string, r io.Reader, metadata map[string]string) (entry Entry, err error) {
	if err := CheckMetadata(metadata); err != nil {
		return Entry{}, err
	}
	abs, err := f.Resolve(path)
	if err != nil {
		return Entry{}, err
	}
	if err := checkNew(abs); err != nil {
		return Entry{}, err
	}
	err = f.do(func(a *Actor) error {
		if info, err := a.stat(abs, true); err == nil {
			return checkRegular("write", abs, info)
		}
		return nil
	})
	if err != nil {
		return Entry{}, err
	}
	var head bytes.Buffer
	_, err = io.CopyN(&head, r, headBytes)
	whole := errors.Is(err, io.EOF)
	if err != nil && !whole {
		return Entry{}, pathError("write", abs, &bodyError{err})
	}
	defer f.Root.use()() // also between the pieces
	w := &writer{fs: f, path: abs}
	err = f.do(func(a *Actor) error { return w.begin(a, head.Bytes()) })
	if err == nil && !whole {
		_, err = io.CopyBuffer(w, bodyReader{r}, head.Bytes())
	}
	endErr := f.do(func(a *Actor) error {
		if err = w.end(a, err, metadata); err == nil {
			entry, err = a.entry(abs, a.owners())
		}
		return err
	})
	return entry, pathError("write", abs, endErr)
}

// writer writes one file. It has the user's rights for each piece, and none
// while the next one is awaited.
type writer struct {
	fs      FS
	path    string
	file    *os.File // nil: not opened
	created bool
}

// begin opens the file and writes the first piece.
func (w *writer) begin(a *Actor, head []byte) error {
	if err := a.ensureDir(filepath.Dir(w.path)); err != nil {
		return err
	}
	var err error
	if w.file, w.created, err = a.create(w.path); err != nil {
		return err
	}
	if err := a.give(w.file, w.created); err != nil {
		return err
	}
	// A file that was just made is empty. Truncating it would be reported to
	// watchers as a write.
	if !w.created {
		if err := w.file.Truncate(0); err != nil {
			return err
		}
	}
	if len(head) == 0 {
		return nil
	}
	_, err = w.file.Write(head)
	return err
}

// Write implements [io.Writer].
func (w *writer) Write(p []byte) (n int, err error) {
	err = w.fs.do(func(*Actor) error {
		n, err = w.file.Write(p)
		return err
	})
	return n, err
}

// end labels and closes the file, or undoes what was begun.
func (w *writer) end(a *Actor, err error, metadata map[string]string) error {
	if w.file == nil {
		return err
	}
	if err == nil {
		err = a.settle(w.file)
	}
	if err == nil {
		err = writeMetadata(w.file, metadata)
	}
	if err != nil {
		// The package comment says what is left. An error of Truncate would
		// change nothing for the caller.
		_ = w.file.Truncate(0)
		if w.created {
			a.removeSame(w.path, w.file)
		}
	}
	// Some file systems report a full disk only now.
	return errors.Join(err, w.file.Close())
}

// bodyReader marks the errors of the reader as such.
type bodyReader struct{ r io.Reader }

func (b bodyReader) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = &bodyError{err}
	}
	return n, err
}

// removeSame removes the path if it still is the open file.
func (a *Actor) removeSame(path string, file *os.File) {
	mine, err := file.Stat()
	if err != nil {
		return
	}
	dir, name, err := a.parent(path)
	if err != nil {
		return
	}
	defer dir.close()
	var there fs.FileInfo
	if there, err = os.Lstat(dir.at(name)); err == nil && os.SameFile(mine, there) {
		_ = os.Remove(dir.at(name))
	}
}
