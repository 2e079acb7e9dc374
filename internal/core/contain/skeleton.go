//go:build linux && (amd64 || arm64)

package contain

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/lib/place"
)

// The skeleton is the lowest layer of containers over this machine: a filesystem in memory that is
// written once and not changed. In it are
//
//   - the directories of each root, empty, with those above pieces (see pieces.go) and below
//     which a piece is mounted, and the machine's links at their places (/bin -> usr/bin);
//   - an /etc that is made from a list, with accounts and names of its own;
//   - for a piece, what is different from the machine's: whiteouts of what is hidden, and the link
//     python.
//
// So what of the machine no list names is not there.
type skeleton struct {
	at string // its path
	// rootless: it is written by an ordinary user, whose own all in it is, for overlays of
	// that user's.
	rootless bool
	// first is the id outside of root inside: all in the skeleton has ids from there on.
	first  int
	made   map[string]attr // the directories in it, but for those in copies
	hidden []hidden
	room   int64 // for what is copied, in bytes

	// as is whose rights it is written with: an id outside; 0: the keeper's.
	as int

	pieces []piece
	trial  bool // nothing is written inside: nobody's directories need not be root's
}

// attr of a directory as it is inside.
type attr struct{ mode, uid, gid uint32 }

// ownDirs are the directories of each root.
var ownDirs = []struct {
	path string
	mode uint32
}{
	{"", 0o755}, {"/proc", 0o555}, {"/sys", 0o555}, {"/dev", 0o755}, {"/run", 0o755}, {"/tmp", 0o1777}, {"/home", 0o755}, {"/root", 0o700},
	{"/etc", 0o755}, {"/boot", 0o755}, {"/media", 0o755}, {"/mnt", 0o755}, {"/opt", 0o755}, {"/srv", 0o755}, {"/var", 0o755},
	{"/var/tmp", 0o1777}, {"/var/log", 0o755}, {"/var/cache", 0o755}, {"/var/lib", 0o755}, {"/var/mail", 0o755}, {"/var/spool", 0o755},
}

// packageDirs are those that programs of a database of packages look for.
var packageDirs = map[string][]string{
	"/var/lib/apt": {"/var/cache/apt/archives/partial", "/var/log/apt"},
}

// mostSettings bounds what is copied, in bytes.
const mostSettings = 64 << 20

func newSkeleton(at string, first int, rootless bool) *skeleton {
	return &skeleton{at: at, first: first, rootless: rootless, made: map[string]attr{}, room: mostSettings}
}

// fill writes a skeleton whole. It sets the pieces of the stage.
func (k *skeleton) fill(state string, st *stage, attach func(p *piece, i int) error) error {
	t, err := place.Read()
	if err != nil {
		return err
	}
	if k.hidden, err = hiddenOf(t, state, st.hide); err != nil {
		return err
	}
	k.trial = st.trial
	write := func() error {
		if err := k.write(); err != nil {
			return fmt.Errorf("the skeleton of sandboxes: %w", err)
		}
		if err := k.show(t, st.show, attach); err != nil {
			return fmt.Errorf("the directories that sandboxes see: %w", err)
		}
		return nil
	}
	if k.as == 0 {
		err = write()
	} else {
		err = asUser(k.as, write)
	}
	if err != nil {
		return err
	}
	st.pieces = k.pieces
	st.nobody = slices.ContainsFunc(k.pieces, func(p piece) bool { return p.nobody })
	return nil
}

// write writes all but what is in pieces.
func (k *skeleton) write() error {
	for _, d := range ownDirs {
		if err := k.mkdir(d.path, attr{mode: d.mode}); err != nil {
			return err
		}
	}
	for p, to := range map[string]string{"/var/run": "/run", "/var/lock": "/run/lock", "/var/spool/mail": "../mail"} {
		if err := k.link(to, p); err != nil {
			return err
		}
	}
	for _, p := range container.Programs {
		if to, err := os.Readlink(p); err == nil {
			if err := k.link(to, p); err != nil {
				return err
			}
		}
	}
	for p, dirs := range packageDirs {
		if fi, err := os.Lstat(p); err != nil || !fi.IsDir() {
			continue
		}
		for _, d := range dirs {
			if err := k.mkdirs(d, attr{mode: 0o755}); err != nil {
				return err
			}
		}
	}
	if err := k.copy("/var/cache/debconf", "/var/cache/debconf", false); err != nil {
		return err
	}
	return k.settings()
}

// mkdir makes a directory, and those above are there.
func (k *skeleton) mkdir(p string, a attr) error {
	if _, ok := k.made[p]; ok {
		return nil
	}
	k.made[p] = a
	at := k.at + p
	if err := os.Mkdir(at, 0o700); err != nil && !os.IsExist(err) {
		return err
	}
	return k.change(at, a)
}

// change gives what is in the skeleton its owner and mode.
func (k *skeleton) change(at string, a attr) error {
	if k.rootless {
		a.mode |= 0o600 // who has no capabilities writes it, too
		if fi, err := os.Lstat(at); err == nil && fi.IsDir() {
			a.mode |= 0o700
		}
	} else if err := unix.Lchown(at, k.outside(a.uid), k.outside(a.gid)); err != nil {
		return err
	}
	return unix.Chmod(at, a.mode&0o7777)
}

// outside is the id outside of an id inside; who has none inside is nobody there.
func (k *skeleton) outside(id uint32) int {
	const nobody = 65534
	if id >= container.IDs {
		id = nobody
	}
	return k.first + int(id)
}

// mkdirs is mkdir with those above: below a piece as the machine has them, and else root's.
func (k *skeleton) mkdirs(p string, a attr) error {
	for i := 1; i < len(p); i++ {
		if _, ok := k.made[p[:i]]; ok || p[i] != '/' { // the machine is asked only about those that are new
			continue
		}
		if err := k.mkdir(p[:i], k.asSeen(p[:i])); err != nil {
			return err
		}
	}
	return k.mkdir(p, a)
}

// asSeen is what a directory of a piece is like on the machine.
func (k *skeleton) asSeen(p string) attr {
	for _, q := range slices.Backward(k.pieces) { // the innermost is behind
		if rest, ok := strings.CutPrefix(p, q.path); ok && (rest == "" || rest[0] == '/') {
			var st unix.Stat_t
			if unix.Stat(q.from+rest, &st) == nil {
				a := attr{mode: st.Mode & 0o7777}
				if !q.nobody {
					a.uid, a.gid = st.Uid, st.Gid
				}
				return a
			}
		}
	}
	return attr{mode: 0o755}
}

func (k *skeleton) link(to, p string) error {
	if err := os.Symlink(to, k.at+p); err != nil && !os.IsExist(err) {
		return err
	}
	if k.rootless {
		return nil
	}
	return unix.Lchown(k.at+p, k.outside(0), k.outside(0))
}

// put writes a file of the container's own.
func (k *skeleton) put(p, text string, a attr) error {
	if err := k.mkdirs(path.Dir(p), k.asSeen(path.Dir(p))); err != nil {
		return err
	}
	if err := os.WriteFile(k.at+p, []byte(text), 0o600); err != nil {
		return err
	}
	return k.change(k.at+p, a)
}

// isHidden reports whether a file or directory of the machine is hidden, by whatever name.
func (k *skeleton) isHidden(p string, st *unix.Stat_t) bool {
	return slices.ContainsFunc(k.hidden, func(h hidden) bool { return p == h.name || p == h.Real || h.Is(st) })
}

// copy copies a file or directory of the machine, as far as everybody may read it. Links stay what
// they are, unless follow is set.
func (k *skeleton) copy(from, to string, follow bool) error {
	var st unix.Stat_t
	flags := unix.AT_SYMLINK_NOFOLLOW
	if follow {
		flags = 0
	}
	if err := unix.Fstatat(unix.AT_FDCWD, from, &st, flags); err != nil || k.isHidden(from, &st) {
		return nil // there is nothing
	}
	if err := k.mkdirs(path.Dir(to), attr{mode: 0o755}); err != nil {
		return err
	}
	a := attr{st.Mode & 0o7777, st.Uid, st.Gid}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		target, err := os.Readlink(from)
		if err != nil {
			return nil
		}
		return k.link(target, to)
	case unix.S_IFDIR:
		if st.Mode&0o005 != 0o005 {
			return nil
		}
		entries, err := os.ReadDir(from)
		if err != nil {
			return nil
		}
		if err := k.mkdir(to, a); err != nil {
			return err
		}
		for _, e := range entries {
			if slices.Contains(withheld, from+"/"+e.Name()) {
				continue
			}
			if err := k.copy(from+"/"+e.Name(), to+"/"+e.Name(), false); err != nil {
				return err
			}
		}
	case unix.S_IFREG:
		if st.Mode&0o004 == 0 {
			return nil
		}
		return k.copyFile(from, to, a)
	}
	return nil
}

func (k *skeleton) copyFile(from, to string, a attr) error {
	in, err := os.Open(from)
	if err != nil {
		return nil
	}
	defer in.Close()
	out, err := os.OpenFile(k.at+to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	n, err := io.Copy(out, io.LimitReader(in, k.room+1))
	if k.room -= n; k.room < 0 && err == nil {
		err = fmt.Errorf("%s: what sandboxes have copies of is more than %d MiB", from, mostSettings>>20)
	}
	if err != nil {
		return err
	}
	return k.change(k.at+to, a)
}

// hide makes a path in a piece one that is not there.
func (k *skeleton) hide(p string) error {
	if err := k.mkdirs(path.Dir(p), k.asSeen(path.Dir(p))); err != nil {
		return err
	}
	if err := unix.Mknod(k.at+p, unix.S_IFCHR, 0); err != nil && err != unix.EEXIST {
		return fmt.Errorf("%s: %w", p, err)
	}
	return nil
}

// localBin is where administrators put programs. It comes first in PATH.
const localBin = "/usr/local/bin"

// python makes the link of that name, if there is to be one.
func (k *skeleton) python() error {
	to := pythonLink("/")
	in := func(p piece) bool { return p.path == "/usr" || p.path == localPrograms || p.path == localBin }
	if to == "" || !slices.ContainsFunc(k.pieces, in) {
		return nil
	}
	return errors.Join(k.mkdirs(localBin, k.asSeen(localBin)), k.link(to, localBin+"/python"))
}

// pythonLink returns what the link python leads to, and "" for no link: many programs call python, and Debian
// has python3 alone. root is the machine's. A directory of the skeleton in place of a link of the machine would
// hide what is behind the link.
func pythonLink(root string) string {
	local := filepath.Join(root, localBin)
	for { // a machine may lack it: what is above counts then
		fi, err := os.Lstat(local)
		if errors.Is(err, os.ErrNotExist) && local != root {
			local = filepath.Dir(local)
			continue
		}
		if real, lerr := filepath.EvalSymlinks(local); err != nil || lerr != nil || real != local || !fi.IsDir() {
			return ""
		}
		break
	}
	found := ""
	for _, dir := range []string{localBin, "/usr/bin", "/bin"} {
		if _, err := os.Stat(filepath.Join(root, dir, "python")); err == nil {
			return ""
		}
		if _, err := os.Stat(filepath.Join(root, dir, "python3")); err == nil && found == "" {
			found = dir + "/python3"
		}
	}
	return found
}
