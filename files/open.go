package files

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// openFlags keep an open from hanging or having effects: a FIFO or a device
// that took the place of the file is opened without waiting, and refused.
const openFlags = syscall.O_NONBLOCK | syscall.O_NOCTTY

// Open opens the regular file for reading. Directories are [ErrIsDir],
// everything else but regular files [ErrNotRegular].
func (f FS) Open(path string) (*os.File, fs.FileInfo, error) {
	abs, err := f.Resolve(path)
	if err != nil {
		return nil, nil, err
	}
	return openRegular("open", abs, os.O_RDONLY)
}

func openRegular(op, path string, flags int) (*os.File, fs.FileInfo, error) {
	// Opening some devices has effects; look first, and once more after.
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, pathError(op, path, err)
	}
	if err := checkRegular(op, path, info); err != nil {
		return nil, nil, err
	}
	file, err := os.OpenFile(path, flags|openFlags, 0)
	if err != nil {
		return nil, nil, pathError(op, path, err)
	}
	info, err = file.Stat()
	if err == nil {
		err = checkRegular(op, path, info)
	}
	if err != nil {
		return nil, nil, errors.Join(pathError(op, path, err), file.Close())
	}
	return file, info, nil
}

func checkRegular(op, path string, info fs.FileInfo) error {
	switch {
	case info.IsDir():
		return &PathError{Op: op, Path: path, Kind: ErrIsDir}
	case !info.Mode().IsRegular():
		return &PathError{Op: op, Path: path, Kind: ErrNotRegular}
	}
	return nil
}

// headBytes is how much of an upload is read before the file is touched: an
// upload that breaks off within it changes nothing. Each upload in progress
// costs this much memory.
const headBytes = 64 << 10

// Write makes the content of r the content of the file, which it creates with
// mode 0666 less the umask, parents included, and gives to the user. metadata
// replaces all metadata the file had. The package comment says what is left
// of an upload that breaks off.
//
// Concurrent writers of one path mix, as they do for processes.
func (f FS) Write(path string, r io.Reader, metadata map[string]string) (Entry, error) {
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
	if info, err := os.Stat(abs); err == nil {
		if err := checkRegular("write", abs, info); err != nil {
			return Entry{}, err
		}
	}
	var head bytes.Buffer
	switch _, err := io.CopyN(&head, r, headBytes); {
	case errors.Is(err, io.EOF):
		r = nil
	case err != nil:
		return Entry{}, pathError("write", abs, &bodyError{err})
	}
	if err := f.ensureDir(filepath.Dir(abs)); err != nil {
		return Entry{}, err
	}
	file, created, err := create(abs)
	if err != nil {
		return Entry{}, pathError("write", abs, err)
	}
	if err = f.give(file); err == nil {
		if err = fill(file, &head, r, metadata); err != nil {
			// What is left is told in the package comment; that it could not
			// be emptied changes nothing for the caller.
			_ = file.Truncate(0)
		}
	}
	if err != nil && created {
		removeSame(abs, file)
	}
	// Some file systems tell of a full disk only now.
	if err = errors.Join(err, file.Close()); err != nil {
		return Entry{}, pathError("write", abs, err)
	}
	return stat(abs, newOwners())
}

// create opens the file for writing and says whether it was made.
func create(path string) (file *os.File, created bool, err error) {
	// Twice: the file may go between the two opens.
	for range 2 {
		file, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|openFlags, 0o666)
		if err == nil {
			return file, true, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, false, err
		}
		file, _, err = openRegular("write", path, os.O_WRONLY)
		if err == nil {
			return file, false, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, false, err
		}
	}
	// A link that leads to a file that is not there yet: O_EXCL does not
	// follow it.
	file, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|openFlags, 0o666)
	if err != nil {
		return nil, false, err
	}
	info, err := file.Stat()
	if err == nil {
		err = checkRegular("write", path, info)
	}
	if err != nil {
		return nil, false, errors.Join(err, file.Close())
	}
	return file, false, nil
}

// fill gives the file its content and metadata. rest may be nil.
func fill(file *os.File, head *bytes.Buffer, rest io.Reader, metadata map[string]string) error {
	if err := file.Truncate(0); err != nil {
		return err
	}
	if _, err := file.Write(head.Bytes()); err != nil {
		return err
	}
	if rest != nil {
		if _, err := io.CopyBuffer(onlyWriter{file}, bodyReader{rest}, head.Bytes()); err != nil {
			return err
		}
	}
	return writeMetadata(file, metadata)
}

// onlyWriter hides ReadFrom, which would leave the buffer unused and mix the
// errors of the two sides.
type onlyWriter struct{ io.Writer }

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
func removeSame(path string, file *os.File) {
	mine, err := file.Stat()
	if err != nil {
		return
	}
	if there, err := os.Lstat(path); err == nil && os.SameFile(mine, there) {
		_ = os.Remove(path)
	}
}
