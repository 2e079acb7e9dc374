//go:build linux && (amd64 || arm64)

package cell

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/box"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/process"
)

// An ordinary user gets no overlay of the machine's whole root: the kernel refuses one of
// a directory below which something is mounted that the user could not unmount. So the
// root of a rootless box is an overlay of the mask and the layers, and over it lies an
// overlay for each piece: a directory of the machine's root below which nothing is mounted.
// Mostly these are /usr, /etc, /var and /opt. Where there is a mount, in /var say, the
// directories of /var are pieces.
//
// Dir/up has the same form as that of other boxes: what is written below /usr is in
// Dir/up/usr. The overlay of the root never looks there: the piece lies over it.

// mostPieces bounds how many overlays a box has.
const mostPieces = 128

// mostCopied bounds a file that is shown as a copy, in bytes: it is in a directory that is
// no piece.
const mostCopied = 1 << 20

// pieces completes the mask of a rootless box, and returns its pieces. mounts are the paths
// at which something is mounted.
func (m *mask) pieces(mounts []string) (pieces []piece, err error) {
	found, err := m.piecesOf("", mounts)
	left := mostOwn
	for _, p := range found {
		for _, dir := range writable {
			if err == nil && (p == dir || strings.HasPrefix(p, dir+"/") || strings.HasPrefix(dir, p+"/")) {
				err = m.own(dir, &left)
			}
		}
	}
	if err == nil && len(found) > mostPieces {
		err = fmt.Errorf("there are mounts in so many directories of this machine that its root has %d pieces; %d are the most; use a template with a root of its own: %w",
			len(found), mostPieces, process.ErrUnsupported)
	}
	for _, p := range found {
		pieces = append(pieces, piece{path: p, host: true, cut: m.cuts(p)})
	}
	return pieces, err
}

// writable are the directories in which programs may make and replace files, and those
// below them: the mask has them, too, and there they are the user's own.
var writable = []string{"/etc", "/opt", "/usr/local", "/var"}

// mostOwn bounds how many there are.
const mostOwn = 4096

// own makes a directory of the machine's the user's own, with those below it that may be
// looked into, as far as left reaches.
func (m *mask) own(dir string, left *int) error {
	var st unix.Stat_t
	if m.done[dir] || *left <= 0 || unix.Lstat(m.root+dir, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil
	}
	entries, err := os.ReadDir(m.root + dir)
	if err != nil {
		return nil
	}
	*left--
	if err := m.mkdir(dir, st.Mode, 0, 0); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := m.own(dir+"/"+e.Name(), left); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *mask) piecesOf(dir string, mounts []string) (found []string, err error) {
	entries, err := os.ReadDir(m.root + dir + "/")
	if err != nil {
		return nil, nil // of the machine it cannot be read, either
	}
	for _, e := range entries {
		p := dir + "/" + e.Name()
		if m.done[p] || strings.ContainsAny(p, ",:\\") {
			continue
		}
		var st unix.Stat_t
		if unix.Lstat(m.root+p, &st) != nil {
			continue
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFLNK:
			to, rerr := os.Readlink(m.root + p)
			if rerr == nil {
				err = os.Symlink(to, m.at+maskTop+p)
			}
		case unix.S_IFREG:
			err = m.copy(p, &st)
		case unix.S_IFDIR:
			if err = m.mkdir(p, st.Mode, 0, 0); err != nil || slices.Contains(mounts, p) {
				break
			}
			if !slices.ContainsFunc(mounts, func(at string) bool { return strings.HasPrefix(at, p+"/") }) {
				found = append(found, p)
				break
			}
			var below []string
			below, err = m.piecesOf(p, mounts)
			found = append(found, below...)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
	}
	return found, nil
}

// copy shows a small file that everybody may read.
func (m *mask) copy(p string, st *unix.Stat_t) error {
	if st.Size > mostCopied || st.Mode&0o004 == 0 {
		return nil
	}
	in, err := os.Open(m.root + p)
	if err != nil {
		return nil
	}
	defer in.Close()
	out, err := os.OpenFile(m.at+maskTop+p, os.O_WRONLY|os.O_CREATE|os.O_EXCL, os.FileMode(st.Mode&0o777))
	if err != nil {
		return err
	}
	defer out.Close()
	_, err = io.Copy(out, io.LimitReader(in, mostCopied))
	return err
}

// mountPoints reads the form of /proc/self/mountinfo.
func mountPoints(text string) (paths []string) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) > 4 && f[4] != "/" {
			paths = append(paths, procfs.Unescape(f[4]))
		}
	}
	return paths
}

// piece is one of a box: an overlay at its path.
type piece struct {
	path   string
	lowers []int // indexes of layers, topmost first
	host   bool  // below them are the mask's and the machine's
	cut    bool  // the mask has an empty directory below path
}

// piecesFor says which of the machine's pieces a box with these layers has, and makes their
// places in its directory up. Nothing of the box runs.
func piecesFor(s *box.Spec, all []piece) (pieces []piece, err error) {
	up := s.Dir + "/up"
	for _, q := range all {
		p := q.path
		mode, isDir, _, err := inspect(up, p)
		if err != nil {
			return nil, err
		}
		if mode != 0 && !isDir {
			continue // what took its place is in the root
		}
		first, gone := uint32(0), false
		for i, l := range s.Layers {
			mode, isDir, opaque, err := inspect(l, p)
			if err != nil {
				return nil, err
			}
			if mode == 0 {
				continue
			}
			if !isDir {
				gone, q.host = first == 0, false
				break
			}
			if first == 0 {
				first = mode
			}
			q.lowers = append(q.lowers, i)
			if opaque {
				q.host = false
				break
			}
		}
		if gone {
			continue
		}
		if err := makeDir(up, p, first); err != nil {
			return nil, err
		}
		if len(q.lowers) > 0 || q.host {
			pieces = append(pieces, q)
		}
	}
	return pieces, nil
}

// userOpaque is the attribute of a directory of a box that hides those below it.
const userOpaque = "user.overlay.opaque"

// inspect says what a layer has at a path, or on the way to it: the mode of what it is, and 0 if
// it has nothing there. No link is followed: it may be a program's that ran inside.
func inspect(dir, p string) (mode uint32, isDir, opaque bool, err error) {
	for i := 1; i <= len(p); i++ {
		if i < len(p) && p[i] != '/' {
			continue
		}
		var st unix.Stat_t
		switch err := unix.Lstat(dir+p[:i], &st); {
		case err == unix.ENOENT && opaque: // what is below does not show
			return unix.S_IFCHR, false, false, nil
		case err == unix.ENOENT:
			return 0, false, false, nil
		case err != nil:
			return 0, false, false, fmt.Errorf("%s: %w", dir+p[:i], err)
		}
		if mode = st.Mode; mode&unix.S_IFMT != unix.S_IFDIR {
			return mode, false, false, nil
		}
		var v [1]byte
		n, _ := unix.Lgetxattr(dir+p[:i], userOpaque, v[:])
		opaque = opaque || n == 1 && v[0] == 'y'
	}
	return mode, true, opaque, nil
}

// makeDir makes the upper directory of a piece, with those above, as they are in the machine
// or, the last one, with a mode. Those that are there are directories.
func makeDir(up, p string, mode uint32) error {
	for i := 1; i <= len(p); i++ {
		if i < len(p) && p[i] != '/' {
			continue
		}
		as := mode
		if i < len(p) || mode == 0 {
			var st unix.Stat_t
			if unix.Lstat(p[:i], &st) != nil {
				st.Mode = 0o755
			}
			as = st.Mode
		}
		if err := os.Mkdir(up+p[:i], 0o700); os.IsExist(err) {
			continue
		} else if err != nil {
			return err
		}
		if err := unix.Chmod(up+p[:i], as&0o7777|0o700); err != nil {
			return err
		}
	}
	return nil
}
