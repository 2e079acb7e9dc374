package unpack

import (
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"golang.org/x/sys/unix"
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
	f, err := v.Open(real)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("%.200q has more than %d bytes", name, most)
	}
	return b, errors.Join(err, f.Close())
}

func trim(name string) string { return strings.Trim(path.Clean("/"+name), "/") }
