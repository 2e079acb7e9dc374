package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/tend-run/tend/process"
)

// What went wrong, for errors.Is. The errors of this package name the path.
var (
	ErrNotExist   = errors.New("no such file or directory")
	ErrExists     = errors.New("it exists already")
	ErrIsDir      = errors.New("it is a directory")
	ErrNotDir     = errors.New("it is not a directory")
	ErrNotRegular = errors.New("it is not a regular file")
	ErrLoop       = errors.New("cyclic symlink or chain >255 links")
	// ErrChanged: the file is not the version that was asked for; see [FS.Replace].
	ErrChanged    = errors.New("the file was changed or removed meanwhile; read it again")
	ErrNoSpace    = errors.New("not enough disk space available")
	ErrPermission = errors.New("permission denied")
	// ErrOutside: it is not in the directory that paths are kept to ([FS.Within]).
	ErrOutside     = errors.New("it leads out of the directory that is served")
	ErrCrossDevice = errors.New("source and destination are on different file systems; copy, then remove the source")
	// ErrBusy: something is mounted there.
	ErrBusy = errors.New("something is mounted there, which is neither moved nor removed")
	// ErrTooMany: a listing has more than [MaxEntries] entries.
	ErrTooMany = fmt.Errorf("there are more than %d entries; list with a smaller depth", MaxEntries)
	// ErrNetworkMount: watching a network file system was not allowed, since
	// changes made by other machines are not reported there.
	ErrNetworkMount = errors.New("cannot watch path on network filesystem")
	// ErrOverflow: more changes than a watch keeps. Some were not reported; list
	// the directory and watch again.
	ErrOverflow = errors.New("changes came faster than they were read and some are lost; list the directory and watch it again")
	// ErrWatchLimit: the kernel allows no more watches, or a sandbox has used up its share.
	ErrWatchLimit = errors.New("the limit on watches is reached (sysctl fs.inotify.max_user_watches, " +
		"fs.inotify.max_user_instances; of these a sandbox has an eighth, and all sandboxes half); close some, or raise it")
	// ErrClosed: the watch was closed.
	ErrClosed = errors.New("the watch is closed")
	// ErrUnknownUser: no account has the name.
	ErrUnknownUser = errors.New("no such user")
	// ErrEndless: a file that the kernel makes up, such as /proc/kmsg or
	// /proc/kcore, has no end within [MaxPseudo], or waits for its content.
	ErrEndless = fmt.Errorf("it has more than %d bytes or waits for more; read it with a command", MaxPseudo)
)

// errMagicLink: see [Actor]. It is an [ErrPermission].
var errMagicLink = errors.New("it leads through a link of /proc that stands for an open file, which file operations do not follow")

// errForeign is the system's EOVERFLOW, whose own text is about a value that is too large.
// It is an [ErrPermission].
var errForeign = errors.New("it belongs to an id that there is not here, so it is neither changed nor removed")

// PathError says what failed on which path. It wraps one of the errors above,
// if one fits, and the system's error.
type PathError struct {
	Op   string // "stat", "list", "open", "write", …
	Path string
	Kind error // one of the errors above, or nil
	Err  error // the system's error, or nil
}

func (e *PathError) Error() string {
	switch {
	case e.Err != nil:
		return e.Op + " " + e.Path + ": " + e.Err.Error()
	case e.Kind != nil:
		return e.Op + " " + e.Path + ": " + e.Kind.Error()
	}
	return e.Op + " " + e.Path
}

func (e *PathError) Unwrap() []error {
	errs := make([]error, 0, 2)
	for _, err := range []error{e.Kind, e.Err} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// InvalidError: an argument is wrong: "path", "source_paths[3]", "metadata". Nothing was done.
type InvalidError = process.InvalidError

// bodyError is an error of the reader that an upload comes from. It is kept
// apart from errors of the disk.
type bodyError struct{ err error }

func (e *bodyError) Error() string { return e.err.Error() }
func (e *bodyError) Unwrap() error { return e.err }

// IsBodyError reports whether err came from the reader given to [FS.Write]
// and not from the file.
func IsBodyError(err error) bool {
	var b *bodyError
	return errors.As(err, &b)
}

// pathError wraps err; nil stays nil, errors that say it all stay themselves.
func pathError(op, path string, err error) error {
	var done *PathError
	var invalid *InvalidError
	if err == nil || errors.As(err, &done) || errors.As(err, &invalid) && !IsBodyError(err) {
		return err
	}
	// The system's errors repeat operation and path.
	var fe *fs.PathError
	var le *os.LinkError
	switch {
	case errors.As(err, &fe):
		err = fe.Err
	case errors.As(err, &le):
		err = le.Err
	}
	if errors.Is(err, syscall.EOVERFLOW) {
		err = errForeign
	}
	if errors.Is(err, syscall.ENAMETOOLONG) {
		return &InvalidError{Field: "path", Reason: fmt.Sprintf("%.40q… has a name of more than 255 bytes, or is too long", path)}
	}
	return &PathError{Op: op, Path: path, Kind: kindOf(err), Err: err}
}

func kindOf(err error) error {
	switch {
	case errors.Is(err, ErrOutside):
		return ErrOutside
	case errors.Is(err, fs.ErrNotExist):
		return ErrNotExist
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return ErrNoSpace
	case errors.Is(err, syscall.EISDIR):
		return ErrIsDir
	case errors.Is(err, syscall.ENOTDIR):
		return ErrNotDir
	case errors.Is(err, syscall.ELOOP):
		return ErrLoop
	case errors.Is(err, syscall.EXDEV):
		return ErrCrossDevice
	case errors.Is(err, syscall.EBUSY):
		return ErrBusy
	case errors.Is(err, syscall.ENXIO), errors.Is(err, syscall.ENODEV):
		return ErrNotRegular
	case errors.Is(err, fs.ErrExist), errors.Is(err, syscall.ENOTEMPTY):
		return ErrExists
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS), errors.Is(err, errMagicLink),
		errors.Is(err, errForeign):
		return ErrPermission
	}
	return nil
}

// unlessGone drops errors of directories that vanished or are closed to the
// user: the rest can still be listed and watched.
func unlessGone(err error) error {
	switch kindOf(err) {
	case ErrNotExist, ErrNotDir, ErrPermission, ErrLoop:
		return nil
	}
	// These are the errors of the directory of a process that has ended, and of
	// a mount whose other end is gone.
	for _, no := range []syscall.Errno{syscall.EINVAL, syscall.EIO, syscall.ENOTCONN, syscall.ESRCH, syscall.ESTALE} {
		if errors.Is(err, no) {
			return nil
		}
	}
	return err
}
