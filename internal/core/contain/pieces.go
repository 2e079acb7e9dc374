//go:build linux && (amd64 || arm64)

package contain

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/lib/place"
	"github.com/tend-run/tend/process"
)

// The root of a container over this machine is an overlay of the skeleton and the layers, and over it
// lies an overlay for each piece: a directory of the machine that containers see. So the machine's root
// may be an overlay itself, and nothing that is mounted below a piece shows.
//
// Dir/up has the form of what is inside: what is written below /usr is in Dir/up/usr. The overlay of
// the root never looks there: the piece lies over it.
//
// An ordinary user gets no overlay of a directory below which something is mounted that the user
// could not unmount. There the pieces are the directories beside what is mounted, and a directory
// in which a file is mounted is shown as it is, and not to be written to.
type piece struct {
	path   string // inside
	from   string // on the machine, without links
	at     string // in the parts of the stage
	nobody bool   // its owners on the machine are nobody inside
	bound  bool   // it is shown as it is
	own    bool   // the skeleton has something of it, too
	copied bool   // it is one of container.Spec.Copies, of one container alone
	above  []attr // of the directories on the way, and its own
	dev    uint64 // of from
	ino    uint64

	// Of one container:
	fd     int   // a detached mount of it; -1: the stage has it
	lowers []int // indexes of layers, topmost first
	host   bool  // below them is what all containers have
}

// mostPieces bounds how many overlays a container has.
const mostPieces = 128

// mostCopied bounds a file that is shown as a copy, in bytes: it is in a directory that is
// no piece.
const mostCopied = 1 << 20

// localPrograms are the machine's own: administrators leave there what is not for everybody.
const localPrograms = "/usr/local"

// shownDirs are the directories of the machine that containers see: as they are called inside, and where
// they are. Those inside others come behind them.
func shownDirs(t place.Table, show []string) (all []piece, places []place.Place, err error) {
	names := slices.Concat(container.Programs, container.Packages, show)
	slices.Sort(names)
	for _, p := range slices.Compact(names) {
		if fi, err := os.Lstat(p); err != nil || fi.Mode()&os.ModeSymlink != 0 && slices.Contains(container.Programs, p) {
			continue
		}
		real, err := filepath.EvalSymlinks(p)
		if err != nil {
			continue
		}
		if why := container.CheckShown(real); why != "" && real != p && slices.Contains(show, p) {
			return nil, nil, fmt.Errorf("sandboxes are to see %s, which is a link, and where it leads %s: %w", p, why, process.ErrUnsupported)
		}
		var st unix.Stat_t
		if unix.Stat(real, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
			continue
		}
		if slices.Contains(container.Packages, p) && isEmpty(real) {
			continue // an overlay costs each container as much as one of a full directory
		}
		at, err := t.Of(real)
		if err != nil {
			return nil, nil, err
		}
		seen := slices.ContainsFunc(all, func(q piece) bool {
			rest, ok := place.Below(p, q.path)
			return ok && q.from+rest == real && onOneMount(t, q.from, real)
		})
		if seen {
			continue
		}
		all, places = append(all, piece{path: p, from: real, dev: uint64(st.Dev), ino: st.Ino, host: true}), append(places, at)
	}
	return all, places, nil
}

// onOneMount reports whether nothing is mounted at a directory or between it and one above.
func onOneMount(t place.Table, above, dir string) bool {
	return !slices.ContainsFunc(t.Points(), func(at string) bool {
		_, in := place.Below(dir, at)
		_, over := place.Below(at, above)
		return in && over && at != above
	})
}

// splits an ordinary user's directory of the machine into pieces.
func (k *skeleton) split(p piece, points []string) (found []piece, err error) {
	var below []string
	for _, at := range points {
		if rest, ok := place.Below(at, p.from); ok && rest != "" {
			below = append(below, rest)
		}
	}
	if len(below) == 0 {
		return []piece{p}, nil
	}
	if !slices.ContainsFunc(below, func(rest string) bool { return strings.Count(rest, "/") > 1 || isDir(p.from+rest) }) {
		p.bound = true
		return []piece{p}, nil
	}
	entries, err := os.ReadDir(p.from)
	if err != nil {
		return nil, nil
	}
	if err := k.mkdirs(p.path, k.asSeen(p.path)); err != nil {
		return nil, err
	}
	for _, e := range entries {
		q := piece{path: p.path + "/" + e.Name(), from: p.from + "/" + e.Name(), nobody: p.nobody, host: true}
		var st unix.Stat_t
		if strings.ContainsAny(e.Name(), ",:\\") || unix.Lstat(q.from, &st) != nil {
			continue
		}
		q.dev, q.ino = uint64(st.Dev), st.Ino
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFLNK, unix.S_IFREG:
			if st.Size <= mostCopied {
				err = k.copy(q.from, q.path, false)
			}
		case unix.S_IFDIR:
			if slices.Contains(points, q.from) {
				err = k.mkdirs(q.path, attr{mode: 0o755})
				break
			}
			var more []piece
			more, err = k.split(q, points)
			found = append(found, more...)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", q.from, err)
		}
	}
	return found, nil
}

func isDir(p string) bool {
	fi, err := os.Lstat(p)
	return err == nil && fi.IsDir()
}

// show makes the pieces of the skeleton, and writes what it has of them. attach says how the
// parts of a stage come to have a piece.
func (k *skeleton) show(t place.Table, show []string, attach func(p *piece, i int) error) error {
	dirs, places, err := shownDirs(t, show)
	if err != nil {
		return err
	}
	var hide []string
	for i, p := range dirs {
		rest, err := hiddenIn(&places[i], p.path, k.hidden)
		if err != nil {
			return err
		}
		for _, r := range rest {
			hide = append(hide, p.path+r)
		}
		parts := []piece{p}
		if k.rootless {
			parts[0].nobody = true
			if parts, err = k.split(parts[0], t.Points()); err != nil {
				return err
			}
		}
		for _, q := range parts {
			if err := attach(&q, len(k.pieces)); err != nil {
				return err
			}
			k.pieces = append(k.pieces, q)
		}
	}
	if len(k.pieces) > mostPieces {
		return fmt.Errorf("there are mounts in so many directories of this machine that its root has %d pieces; %d are the most; use a template with a root of its own: %w",
			len(k.pieces), mostPieces, process.ErrUnsupported)
	}
	left := mostOwn
	if k.rootless && k.as == 0 {
		left = mostOwnRootless
	}
	for _, p := range k.pieces {
		if err := k.mkdirs(p.path, k.asSeen(p.path)); err != nil {
			return err
		}
		for _, dir := range k.owned(&p) {
			if err := k.ownBelow(dir, p.from+strings.TrimPrefix(dir, p.path), &left); err != nil {
				return err
			}
		}
	}
	for _, p := range k.pieces {
		if p.nobody && !p.bound && !k.trial && slices.Contains(container.Packages, p.path) {
			for _, dir := range []string{"", "/triggers", "/lists"} {
				if err := k.database(p.path+dir, p.from+dir); err != nil {
					return err
				}
			}
		}
	}
	for _, p := range append(slices.Clone(show), localPrograms) {
		closed, err := k.closed(p)
		if err != nil {
			return err
		}
		hide = append(hide, closed...)
	}
	for _, p := range hide {
		if err := k.hide(p); err != nil {
			return err
		}
	}
	if err := k.python(); err != nil {
		return err
	}
	for i := range k.pieces {
		p := &k.pieces[i]
		entries, err := os.ReadDir(k.at + p.path)
		if err != nil {
			return err
		}
		p.own = len(entries) > 0
		for n := 1; n <= len(p.path); n++ {
			if n == len(p.path) || p.path[n] == '/' {
				p.above = append(p.above, k.made[p.path[:n]])
			}
		}
	}
	return nil
}

// owned are the directories of a piece that root inside is to own with all below, though on the machine
// their owners are nobody inside. Those of an ordinary user's programs are too many.
func (k *skeleton) owned(p *piece) []string {
	if !p.nobody || p.bound || k.trial {
		return nil
	}
	if !k.rootless || k.as != 0 {
		return []string{p.path}
	}
	for _, dir := range container.Programs {
		if _, ok := place.Below(p.path, dir); !ok {
			continue
		}
		if _, ok := place.Below(p.path, localPrograms); ok {
			break
		}
		if _, ok := place.Below(localPrograms, p.path); ok && isDir(p.from+strings.TrimPrefix(localPrograms, p.path)) {
			return []string{localPrograms}
		}
		return nil
	}
	return []string{p.path}
}

// mostOwn bounds how many directories the skeleton has of pieces whose owners are nobody inside, so
// that programs may make and replace files in them.
const (
	mostOwn         = 32768
	mostOwnRootless = 4096
)

// ownBelow makes a directory of the machine root's inside, with those below it that may be looked
// into, as far as left reaches.
func (k *skeleton) ownBelow(p, from string, left *int) error {
	var st unix.Stat_t
	if *left <= 0 || unix.Lstat(from, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return nil
	}
	*left--
	if err := k.mkdirs(p, attr{mode: st.Mode & 0o7777}); err != nil {
		return fmt.Errorf("%s: %w", p, err)
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := k.ownBelow(p+"/"+e.Name(), from+"/"+e.Name(), left); err != nil {
				return err
			}
		}
	}
	return nil
}

// database has copies of the files of a database of packages, whose owners are nobody inside: programs
// of packages make hard links of them, and lock some, which are new where they are not for everybody.
func (k *skeleton) database(p, from string) error {
	entries, _ := os.ReadDir(from) // there may be none
	for _, e := range entries {
		fi, err := e.Info()
		if err != nil || !fi.Mode().IsRegular() || path.Base(p) == "lists" && fi.Mode()&0o004 != 0 {
			continue
		}
		if fi.Mode()&0o004 == 0 {
			err = k.hide(p + "/" + e.Name())
		} else {
			err = k.copy(from+"/"+e.Name(), p+"/"+e.Name(), false)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// mostLooked bounds the files of a directory that is looked through for those that are not for everybody.
const mostLooked = 100_000

// closed are the files and directories below one that containers see, which this machine shows not to
// everybody: root inside would read what is for root outside. What cannot be read now is left out.
func (k *skeleton) closed(p string) (paths []string, err error) {
	from := ""
	for _, q := range k.pieces {
		if rest, ok := place.Below(p, q.path); ok {
			from = q.from + rest
		}
	}
	if from == "" || k.rootless {
		return nil, nil // the kernel refuses what is not for that user
	}
	var top unix.Stat_t
	if err := unix.Stat(from, &top); err != nil {
		return nil, nil // it is gone
	}
	left := mostLooked
	var look func(p, from string) error
	look = func(p, from string) error {
		f, err := os.Open(from)
		if err != nil {
			return nil
		}
		defer f.Close()
		entries, _ := f.ReadDir(-1)
		if left -= len(entries); left < 0 {
			return fmt.Errorf("there are more than %d files in it; name directories in it", mostLooked)
		}
		for _, e := range entries {
			var st unix.Stat_t
			// By its name alone: the way to the directory takes ten times as long.
			if t := e.Type(); !t.IsDir() && !t.IsRegular() || unix.Fstatat(int(f.Fd()), e.Name(), &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
				continue
			}
			q := p + "/" + e.Name()
			switch st.Mode & unix.S_IFMT {
			case unix.S_IFDIR:
				if st.Dev != top.Dev {
					continue // what is mounted there does not show
				}
				if st.Mode&0o005 != 0o005 {
					paths = append(paths, q)
				} else if err := look(q, from+"/"+e.Name()); err != nil {
					return err
				}
			case unix.S_IFREG:
				if st.Mode&0o004 == 0 {
					paths = append(paths, q)
				}
			}
		}
		return nil
	}
	if err := look(p, from); err != nil {
		return nil, fmt.Errorf("sandboxes see %s: %w: %w", p, err, process.ErrUnsupported)
	}
	return paths, nil
}
