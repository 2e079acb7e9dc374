//go:build linux && (amd64 || arm64)

package contain

import (
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// piecesFor says which of the pieces a container has whose own directory is up and whose layers are at
// these paths, and makes their places in up. Nothing of the container runs.
func piecesFor(up string, layers []string, all []piece, rootless bool) (pieces []piece, err error) {
	for _, q := range all {
		mine, err := inspect(up, q.path)
		if err != nil {
			return nil, err
		}
		if mine.over || mine.opaque {
			continue // what took its place is in the root
		}
		q.above, q.fd = slices.Clone(q.above), -1
		found := make([]bool, len(q.above))
		gone := false
		for i, l := range layers {
			in, err := inspect(l, q.path)
			if err != nil {
				return nil, err
			}
			for n, st := range in.dirs {
				if !found[n] {
					found[n], q.above[n] = true, attr{st.Mode & 0o7777, st.Uid, st.Gid}
				}
			}
			if in.over {
				gone, q.host = len(q.lowers) == 0 && !found[len(found)-1], false
				break
			}
			if len(in.dirs) < len(q.above) {
				continue
			}
			if in.opaque || !isEmpty(l+q.path) {
				q.lowers = append(q.lowers, i)
			}
			if in.opaque {
				q.host = false
				break
			}
		}
		if gone {
			continue
		}
		if err := makeDirs(up, &q, len(mine.dirs), rootless); err != nil {
			return nil, err
		}
		if len(q.lowers) > 0 || q.host {
			pieces = append(pieces, q)
		}
	}
	return pieces, nil
}

func isEmpty(dir string) bool {
	f, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer f.Close()
	names, _ := f.Readdirnames(1)
	return len(names) == 0
}

// userOpaque is the attribute of a directory of a container that hides those below it.
const userOpaque = "user.overlay.opaque"

// found is what a layer has at a path.
type found struct {
	dirs   []unix.Stat_t // those on the way, and the one there
	over   bool          // something else is there, or on the way, or nothing is that shows
	opaque bool          // one of the directories hides those below
}

// inspect says what a layer has at a path. No link is followed: it may be a program's that ran
// inside.
func inspect(dir, p string) (f found, err error) {
	for i := 1; i <= len(p); i++ {
		if i < len(p) && p[i] != '/' {
			continue
		}
		var st unix.Stat_t
		switch err := unix.Lstat(dir+p[:i], &st); {
		case err == unix.ENOENT:
			f.over = f.opaque // what is below does not show
			return f, nil
		case err != nil:
			return f, fmt.Errorf("%s: %w", dir+p[:i], err)
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			f.over = true
			return f, nil
		}
		f.dirs = append(f.dirs, st)
		var v [1]byte
		n, _ := unix.Lgetxattr(dir+p[:i], userOpaque, v[:])
		f.opaque = f.opaque || n == 1 && v[0] == 'y'
	}
	return f, nil
}

// makeDirs makes the upper directory of a piece, with those above, of which the first ones are there.
func makeDirs(up string, p *piece, there int, rootless bool) error {
	for i, n := 1, 0; i <= len(p.path); i++ {
		if i < len(p.path) && p.path[i] != '/' {
			continue
		}
		if n++; n <= there {
			continue
		}
		a, at := p.above[n-1], up+p.path[:i]
		if err := os.Mkdir(at, 0o700); err != nil {
			return err
		}
		if rootless {
			a.mode |= 0o700
		} else if err := unix.Lchown(at, int(a.uid), int(a.gid)); err != nil {
			return err
		}
		if err := unix.Chmod(at, a.mode&0o7777); err != nil {
			return err
		}
	}
	return nil
}
