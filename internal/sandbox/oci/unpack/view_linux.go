package unpack

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/eintr"
)

// View looks at a chain of layers, as a sandbox would see them.
type View struct{ t *tree }

// OpenView opens a chain, topmost first. Close closes it.
func OpenView(dirs []string) (*View, error) {
	t, err := openTree("", dirs)
	if err != nil {
		return nil, err
	}
	return &View{t}, nil
}

// Close closes the view.
func (v *View) Close() { v.t.close() }

// IsDir reports whether a path leads to a directory.
func (v *View) IsDir(name string) bool {
	real, err := v.t.walk(trim(name))
	if err != nil || real == "" {
		return err == nil
	}
	n, err := v.t.find(parent(real), path.Base(real))
	return err == nil && n.is(unix.S_IFDIR)
}

// ReadFile reads a regular file of at most so many bytes. [fs.ErrNotExist] if there is none.
func (v *View) ReadFile(name string, most int64) ([]byte, error) {
	real, err := v.t.walk(trim(name))
	if err != nil {
		return nil, err
	}
	n, err := v.t.find(parent(real), path.Base(real))
	if err == nil && !n.is(unix.S_IFREG) {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, fmt.Errorf("%.200q: %w", name, err)
	}
	dir, err := v.t.dir(n.layer, parent(real))
	if err != nil {
		return nil, err
	}
	fd, err := eintr.Get(func() (int, error) {
		return unix.Openat(dir, path.Base(real), unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	})
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("%.200q has more than %d bytes", name, most)
	}
	return b, errors.Join(err, f.Close())
}

func trim(name string) string { return strings.Trim(path.Clean("/"+name), "/") }
