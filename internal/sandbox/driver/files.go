package driver

import (
	"context"
	"errors"
	"io"
	"io/fs"

	"github.com/tend-run/tend/internal/files"
)

// Files does file operations inside a sandbox, with the rights of one user. Paths,
// operations and errors are those of [files.FS], which implements this for the daemon's
// own machine. A face that uses only Files touches nothing outside of the sandbox.
type Files interface {
	// Resolve makes a path absolute: it starts at the working directory.
	Resolve(path string) (string, error)
	Stat(path string) (files.Entry, error)
	List(ctx context.Context, path string, depth uint32) ([]files.Entry, error)
	// ListSome lists a part of one directory, and returns the total number of entries.
	ListSome(ctx context.Context, path string, w files.Window) (entries []files.Entry, total int, err error)
	// Search finds paths, or lines in files, below a directory.
	Search(ctx context.Context, dir string, q files.Query) (matches []files.Match, truncated bool, err error)
	Watch(path string, opts files.WatchOptions) (files.Watcher, error)

	Open(path string) (files.Content, fs.FileInfo, error)
	Write(path string, r io.Reader, metadata map[string]string) (files.Entry, error)
	// Replace writes a file atomically and as a whole, if its current version is was.
	Replace(ctx context.Context, path string, r io.Reader, was string) (entry files.Entry, version string, err error)
	// Archive writes a directory as a tar.
	Archive(ctx context.Context, dir string, w io.Writer) error
	// Extract unpacks a tar below an existing directory.
	Extract(ctx context.Context, r io.Reader, dir string, o files.ExtractOptions) (files.Extracted, error)
	Compose(ctx context.Context, sources []string, destination string) (files.Entry, error)
	Mkdir(path string) (files.Entry, error)
	Move(source, destination string) (files.Entry, error)
	Remove(path string) error
}

var _ Files = files.FS{}

// RootFiler is an optional ability of an Access to an isolated sandbox, whose root has no
// rights outside.
type RootFiler interface {
	// RootFiles is Files with the rights of the sandbox's own root. What appears, and each
	// file that is written, belongs to the user as far as that is possible
	// (files.Entry.Mine); what is moved keeps its owner.
	RootFiles(user, dir string) (Files, error)
}

// RootFiles returns the files of a sandbox as its own root, for a protocol that does file
// operations so. Where the sandbox is not isolated, its root is the machine's: then it is
// Access.Files, with the rights of the user.
func RootFiles(a Access, user, dir string) (Files, error) {
	if r, ok := a.(RootFiler); ok {
		if f, err := r.RootFiles(user, dir); !errors.Is(err, ErrUnsupported) {
			return f, err
		}
	}
	return a.Files(user, dir)
}
