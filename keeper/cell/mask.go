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
)

// A mask is a filesystem in memory that lies over the root of this machine: where it
// has an opaque directory, that directory is empty inside; where it has a whiteout,
// there is nothing. It is written once and not changed. What does not exist when it
// is written is hidden all the same, should it come to be.
type mask struct {
	dir  int    // of the mask
	at   string // its path, by the descriptor
	root string // of the machine, by a descriptor that shows no other mounts
	// rootless: it is written by an ordinary user, whose own all in it is, for overlays of
	// that user's.
	rootless bool
	// done are the paths that are hidden or there; true: hidden, and all below.
	done map[string]bool
}

// own are the directories that are there inside, empty, whatever the machine has.
var own = map[string]uint32{"/proc": 0o555, "/sys": 0o555, "/dev": 0o755, "/run": 0o755, "/tmp": 0o1777, "/var/tmp": 0o1777, "/home": 0o755, "/root": 0o700}

// skeletons are hidden directories in which programs look for others: those are
// there, and empty.
var skeletons = []string{"/var/log", "/var/spool"}

// hostKeys have these names from the day they are made.
var hostKeys = []string{"/etc/ssh/ssh_host_rsa_key", "/etc/ssh/ssh_host_dsa_key", "/etc/ssh/ssh_host_ecdsa_key", "/etc/ssh/ssh_host_ed25519_key"}

// newMask returns a descriptor of a detached mount that hides these paths of the root
// tree: absolute and clean, the last part may be a pattern.
func newMask(root int, hide []string) (fd int, err error) {
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("mask: %w", err)
	}
	defer unix.Close(fs)
	if err := unix.FsconfigSetString(fs, "mode", "755"); err != nil {
		return -1, fmt.Errorf("mask: %w", err)
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, fmt.Errorf("mask: %w", err)
	}
	if fd, err = unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0); err != nil {
		return -1, fmt.Errorf("mask: %w", err)
	}
	m := &mask{dir: fd, at: fmt.Sprintf("/proc/self/fd/%d", fd), root: fmt.Sprintf("/proc/self/fd/%d", root), done: map[string]bool{}}
	if err := m.write(hide); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("mask: %w", err)
	}
	return fd, nil
}

func (m *mask) write(hide []string) error {
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
	if err := unix.Mkdir(m.at+p, 0o700); err == unix.EEXIST {
		return nil
	} else if err != nil {
		return err
	}
	if m.rootless {
		mode |= 0o700 // who has no capabilities writes more below it, and its attributes
	} else if err := unix.Lchown(m.at+p, int(uid), int(gid)); err != nil {
		return err
	}
	return unix.Chmod(m.at+p, mode&0o7777)
}

func (m *mask) opaque(p string, mode, uid, gid uint32) error {
	if err := m.mkdir(p, mode, uid, gid); err != nil {
		return err
	}
	m.done[p] = true
	return unix.Setxattr(m.at+p, m.opaqueName(), []byte("y"), 0)
}

// opaqueName is the attribute of a directory that hides those below it.
func (m *mask) opaqueName() string {
	if m.rootless {
		return userOpaque
	}
	return "trusted.overlay.opaque"
}

const userOpaque = "user.overlay.opaque"

func (m *mask) whiteout(p string) error {
	m.done[p] = true
	if err := unix.Mknod(m.at+p, unix.S_IFCHR, 0); err != nil && err != unix.EEXIST {
		return err
	}
	return nil
}

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
