// Package place says where on which filesystem a path of this machine leads. A directory that is
// mounted at several paths has one place.
package place

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/procfs"
)

// Place is a path on a filesystem.
type Place struct {
	// Real is the path on this machine, without symbolic links. What is not there yet stands at its end.
	Real string
	dev  string // of the filesystem: major:minor
	path string // on it
	id   id     // of what is there; zero: nothing is
	up   []id   // of the directories above, as the paths on this machine have them
}

type id struct{ dev, ino uint64 }

// Table is what is mounted, to be used for a moment.
type Table map[uint64]mount

type mount struct{ dev, root, at string }

// Read returns what is mounted now.
func Read() (Table, error) { return readFile("/proc/self/mountinfo") }

func readFile(name string) (Table, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	t := Table{}
	for line := range strings.Lines(string(text)) {
		var n uint64
		f := strings.Fields(line)
		if len(f) < 5 {
			continue
		}
		if _, err := fmt.Sscan(f[0], &n); err == nil {
			t[n] = mount{f[2], procfs.Unescape(f[3]), procfs.Unescape(f[4])}
		}
	}
	return t, nil
}

// Of returns the place of an absolute path. What is not there has one in the directory above that is.
func (t Table) Of(path string) (p Place, err error) {
	path = filepath.Clean(path)
	there, rest := path, ""
	for {
		p.Real, err = filepath.EvalSymlinks(there)
		if err == nil || there == "/" || !errors.Is(err, fs.ErrNotExist) {
			break
		}
		there, rest = filepath.Dir(there), "/"+filepath.Base(there)+rest
	}
	if err != nil {
		return p, err
	}
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, p.Real, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_INO|unix.STATX_MNT_ID, &st); err != nil {
		return p, fmt.Errorf("%s: %w", p.Real, err)
	}
	m, ok := t[st.Mnt_id]
	in, below := Below(p.Real, m.at)
	if !ok || !below {
		return p, fmt.Errorf("%s: it is on no filesystem that /proc/self/mountinfo shows", p.Real)
	}
	p.dev, p.path = m.dev, filepath.Join(m.root, in)
	if rest == "" {
		p.id = id{unix.Mkdev(st.Dev_major, st.Dev_minor), st.Ino}
	} else {
		p.Real, p.path = filepath.Join(p.Real, rest), filepath.Join(p.path, rest)
	}
	for dir := p.Real; dir != "/"; {
		dir = filepath.Dir(dir)
		var st unix.Stat_t
		if unix.Stat(dir, &st) == nil {
			p.up = append(p.up, id{uint64(st.Dev), st.Ino})
		} else {
			p.up = append(p.up, id{})
		}
	}
	return p, nil
}

// In reports whether a place is dir or in it, and where: "" or a path that begins with a slash.
func (p *Place) In(dir *Place) (rest string, ok bool) {
	if p.dev == dir.dev {
		if rest, ok := Below(p.path, dir.path); ok {
			return rest, true
		}
	}
	if dir.id == (id{}) {
		return "", false
	}
	if p.id == dir.id { // by another filesystem's view of the same
		return "", true
	}
	for i, above := range p.up {
		if above == dir.id {
			parts := strings.Split(p.Real, "/")
			return "/" + strings.Join(parts[len(parts)-1-i:], "/"), true
		}
	}
	return "", false
}

// Is reports whether a file has the place's device and inode.
func (p *Place) Is(st *unix.Stat_t) bool { return p.id != id{} && p.id == id{uint64(st.Dev), st.Ino} }

// Below reports whether a clean path is dir or below it, and the rest.
func Below(path, dir string) (rest string, ok bool) {
	if rest, ok = strings.CutPrefix(path, strings.TrimSuffix(dir, "/")); ok && (rest == "" || rest[0] == '/') {
		if rest == "/" {
			rest = ""
		}
		return rest, true
	}
	return "", false
}

// Points are the directories and files at which something is mounted, but for the root.
func (t Table) Points() (points []string) {
	for _, m := range t {
		if m.at != "/" {
			points = append(points, m.at)
		}
	}
	return points
}

// Meet reports whether one of two paths leads to the other, or into it.
func Meet(a, b string) (bool, error) {
	t, err := Read()
	if err != nil {
		return false, err
	}
	p, err := t.Of(a)
	if err != nil {
		return false, err
	}
	q, err := t.Of(b)
	if err != nil {
		return false, err
	}
	_, in := p.In(&q)
	_, over := q.In(&p)
	return in || over, nil
}
