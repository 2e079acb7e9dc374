//go:build linux && (amd64 || arm64)

package cell

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/box"
	"github.com/tend-run/tend/internal/lib/newfs"
)

// A mask is a filesystem in memory that lies over the root of this machine. It is written
// once and not changed. What does not exist when it is written is hidden all the same, should
// it come to be.
//
// It has two directories, each a layer of an overlay:
//
//	top   whiteouts of what is not there inside, and the directories that are empty there,
//	      with those above
//	cut   below it: a whiteout for each empty directory, so that the kernel looks no further
//
// One layer would do with an attribute that makes a directory opaque. But an ordinary user can
// write none to a filesystem in memory before Linux 6.6.
type mask struct {
	at   string // its path
	root string // of the machine, by a descriptor that shows no other mounts
	// rootless: it is written by an ordinary user, whose own all in it is, for overlays of
	// that user's.
	rootless bool
	// first is the id outside of root inside: all in the mask has ids from there on.
	first int
	// done are the paths that are hidden or there; true: hidden, and all below.
	done map[string]bool
}

const (
	maskTop = "/t"
	maskCut = "/c"
)

// maskLayers are those of a mask at a path, the topmost first.
func maskLayers(at string) []string { return []string{at + maskTop, at + maskCut} }

// own are the directories that are there inside, empty, whatever the machine has.
var own = map[string]uint32{"/proc": 0o555, "/sys": 0o555, "/dev": 0o755, "/run": 0o755, "/tmp": 0o1777, "/var/tmp": 0o1777,
	"/home": 0o755, "/root": 0o700}

// skeletons are hidden directories in which programs look for others: those are
// there, and empty.
var skeletons = []string{"/var/log", "/var/spool"}

// hostKeys have these names from the day they are made.
var hostKeys = []string{"/etc/ssh/ssh_host_rsa_key", "/etc/ssh/ssh_host_dsa_key", "/etc/ssh/ssh_host_ecdsa_key",
	"/etc/ssh/ssh_host_ed25519_key"}

// newMask returns a descriptor of a detached mount that hides these paths of the root
// tree: absolute and clean, the last part may be a pattern. first is the id outside of root
// inside.
func newMask(root, first int, hide []string) (fd int, err error) {
	if fd, err = newfs.Mount("tmpfs", 0, "mode=755"); err != nil {
		return -1, fmt.Errorf("mask: %w", err)
	}
	m := &mask{at: fmt.Sprintf("/proc/self/fd/%d", fd), root: fmt.Sprintf("/proc/self/fd/%d", root), done: map[string]bool{}, first: first}
	if err := m.write(hide); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("mask: %w", err)
	}
	return fd, nil
}

func (m *mask) write(hide []string) error {
	if err := errors.Join(m.mkdir("", 0o755, 0, 0), os.Mkdir(m.at+maskCut, 0o755)); err != nil {
		return err
	}
	paths := slices.Concat(hide, hostKeys)
	for p := range own {
		paths = append(paths, p)
	}
	for _, p := range hide {
		if strings.ContainsAny(path.Base(p), "*?[") {
			found, _ := filepath.Glob(m.root + p)
			for _, f := range found {
				paths = append(paths, strings.TrimPrefix(f, m.root))
			}
		}
	}
	paths = append(paths, m.closed("/etc", mostConfig)...)
	paths = append(paths, m.closed("/var/lib", 1)...)
	slices.Sort(paths) // a directory comes before what is in it
	for _, p := range slices.Compact(paths) {
		if err := m.hide(p, 0); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
	}
	return m.shadows()
}

// mostConfig is how deep the machine's configuration is looked through.
const mostConfig = 16

// needed are files that not everybody may read, and that programs inside need.
var needed = []string{"/etc/sudoers"}

// closed are the files and directories below dir, so deep, that this machine shows not to
// everybody: root inside would read what is for root outside, and who knows what secrets
// there are. What cannot be read now is left out.
func (m *mask) closed(dir string, deep int) (paths []string) {
	f, err := os.Open(m.root + dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	entries, _ := f.ReadDir(-1)
	for _, e := range entries {
		if t := e.Type(); !t.IsDir() && !t.IsRegular() {
			continue
		}
		p := dir + "/" + e.Name()
		var st unix.Stat_t
		// By its name alone: the way to the directory takes ten times as long.
		if unix.Fstatat(int(f.Fd()), e.Name(), &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
			continue
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFDIR:
			if st.Mode&0o005 != 0o005 {
				paths = append(paths, p)
			} else if deep > 1 {
				paths = append(paths, m.closed(p, deep-1)...)
			}
		case unix.S_IFREG:
			if st.Mode&0o004 == 0 && !slices.Contains(needed, p) {
				paths = append(paths, p)
			}
		}
	}
	return paths
}

// maxLinks bounds a chain of symbolic links, as the kernel does.
const maxLinks = 40

// hide hides a path. One that leads over symbolic links is hidden where they lead.
func (m *mask) hide(p string, links int) error {
	if links > maxLinks {
		return unix.ELOOP
	}
	parts := strings.Split(p[1:], "/")
	at := ""
	for i, part := range parts {
		dir := at
		at += "/" + part
		last := i == len(parts)-1
		if hidden, ok := m.done[at]; hidden {
			return nil
		} else if ok && !last {
			continue
		}
		var st unix.Stat_t
		switch err := unix.Fstatat(unix.AT_FDCWD, m.root+at, &st, unix.AT_SYMLINK_NOFOLLOW); {
		case err == unix.ENOENT:
			if mode, ok := own[p]; ok {
				return m.ownPath(p, mode)
			}
			if strings.ContainsAny(path.Base(at), "*?[") {
				return nil // what it matched is hidden by its names
			}
			return m.whiteout(at)
		case err == unix.EACCES && m.rootless:
			return nil // and so it cannot be read inside
		case err != nil:
			return err
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFLNK:
			to, err := os.Readlink(m.root + at)
			if err != nil {
				return err
			}
			if !path.IsAbs(to) {
				to = dir + "/" + to
			}
			if _, ok := own[at]; ok && last { // it is a directory inside
				if err := m.opaque(at, own[at], 0, 0); err != nil {
					return err
				}
			}
			if to = path.Clean("/" + path.Join(to, path.Join(parts[i+1:]...))); to == "/" {
				return nil
			}
			return m.hide(to, links+1)
		case unix.S_IFDIR:
			if !last {
				if err := m.mkdir(at, st.Mode, st.Uid, st.Gid); err != nil {
					return err
				}
				m.done[at] = false
				continue
			}
			if err := m.opaque(at, st.Mode, st.Uid, st.Gid); err != nil {
				return err
			}
			if slices.Contains(skeletons, at) {
				return m.skeleton(at)
			}
			return nil
		default:
			if !last {
				return nil // no directory: there is nothing below
			}
			return m.whiteout(at)
		}
	}
	return nil
}

// ownPath makes a directory that the machine lacks, with those above.
func (m *mask) ownPath(p string, mode uint32) error {
	for i := 1; i < len(p); i++ {
		if p[i] == '/' {
			if err := m.mkdir(p[:i], 0o755, 0, 0); err != nil {
				return err
			}
		}
	}
	return m.opaque(p, mode, 0, 0)
}

func (m *mask) mkdir(p string, mode, uid, gid uint32) error {
	at := m.at + maskTop + p
	if err := unix.Mkdir(at, 0o700); err == unix.EEXIST {
		return nil
	} else if err != nil {
		return err
	}
	if m.rootless {
		mode |= 0o700 // who has no capabilities writes more below it
	} else if err := unix.Lchown(at, m.outside(uid), m.outside(gid)); err != nil {
		return err
	}
	return unix.Chmod(at, mode&0o7777)
}

// outside is the id outside of an id inside; who has none inside is nobody there.
func (m *mask) outside(id uint32) int {
	const nobody = 65534
	if id >= box.IDs {
		id = nobody
	}
	return m.first + int(id)
}

func (m *mask) opaque(p string, mode, uid, gid uint32) error {
	if err := m.mkdir(p, mode, uid, gid); err != nil {
		return err
	}
	m.done[p] = true
	if err := os.MkdirAll(m.at+maskCut+path.Dir(p), 0o755); err != nil {
		return err
	}
	err := whiteout(m.at + maskCut + p)
	if err == unix.EEXIST { // over a link something below it was hidden before
		if err = os.RemoveAll(m.at + maskCut + p); err == nil {
			err = whiteout(m.at + maskCut + p)
		}
	}
	return err
}

// cuts reports whether there is an empty directory below p.
func (m *mask) cuts(p string) bool {
	var st unix.Stat_t
	return unix.Lstat(m.at+maskCut+p, &st) == nil
}

func (m *mask) whiteout(p string) error {
	m.done[p] = true
	if err := whiteout(m.at + maskTop + p); err != nil && err != unix.EEXIST {
		return err
	}
	return nil
}

func whiteout(at string) error { return unix.Mknod(at, unix.S_IFCHR, 0) }

// skeleton makes the directories that a hidden one has.
func (m *mask) skeleton(p string) error {
	entries, err := os.ReadDir(m.root + p)
	if err != nil && !(m.rootless && errors.Is(err, os.ErrPermission)) {
		return err
	}
	for _, e := range entries {
		var st unix.Stat_t
		if !e.IsDir() || unix.Lstat(m.root+p+"/"+e.Name(), &st) != nil {
			continue
		}
		if err := m.mkdir(p+"/"+e.Name(), st.Mode, st.Uid, st.Gid); err != nil {
			return err
		}
	}
	return nil
}
