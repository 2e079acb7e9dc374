//go:build linux && (amd64 || arm64)

package contain

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/core/spawn"
	"github.com/tend-run/tend/internal/lib/eintr"
)

// A keeper that is root without CAP_SYS_ADMIN, as in a container, may mount nothing outside of a user
// namespace of its own, but may give that one ids of nobody. Its stage is that of an ordinary user's
// keeper (rootless.go), in the user namespace of the containers. What is the container's own it gets from a child
// that takes a copy of the machine's mounts into that namespace: the way to the state directory is closed
// to root inside, so the child goes there before. No mount shows other ids: on the disk the container's files have
// the ids that it has outside.

// boundTree returns a detached mount, as root of a user namespace, of a directory or file. plain: no
// link may be on the way.
func boundTree(ns int, path string, plain bool) (fd int, isDir bool, err error) {
	open := func(p string) (int, error) { return unix.Open(p, unix.O_PATH|unix.O_CLOEXEC, 0) }
	if plain {
		open = openPlain
	}
	at, err := open(path)
	if err != nil {
		return -1, false, err
	}
	defer func() { unix.Close(at) }()
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil {
		return -1, false, err
	}
	isDir = st.Mode&unix.S_IFMT == unix.S_IFDIR
	name, flags := "", uintptr(unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if !isDir {
		dir, err := open(filepath.Dir(path))
		if err != nil {
			return -1, false, err
		}
		unix.Close(at)
		at, name, flags = dir, filepath.Base(path), unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW
	}
	l, err := spawn.NewSharingList(8, 256+len(name))
	if err != nil {
		return -1, false, err
	}
	defer l.Close()
	l.Call("go there", unix.SYS_FCHDIR, uintptr(at))
	l.Call("enter the user namespace", unix.SYS_SETNS, uintptr(ns), unix.CLONE_NEWUSER)
	l.Call("make a mount namespace", unix.SYS_UNSHARE, unix.CLONE_NEWNS)
	l.Call("copy the mount", unix.SYS_OPEN_TREE, spawn.Here, l.Text(name), flags)
	result := l.Keep()
	l.Call("end", unix.SYS_EXIT, 0)
	if err := l.Run(-1); err != nil {
		return -1, false, fmt.Errorf("%s: %w", path, err)
	}
	return int(*result), isDir, nil
}

// gatherBound is the end of gather for such a keeper.
func (m *Maker) gatherBound(s *container.Spec, h *sources) (err error) {
	if h.own.fd, _, err = boundTree(h.kit.ns, s.Dir, false); err != nil {
		return err
	}
	for i, l := range s.Layers {
		fd, _, err := boundTree(h.kit.ns, l, false)
		if os.IsNotExist(err) {
			return noLayer(i)
		}
		if err != nil {
			return err
		}
		h.layers = append(h.layers, source{fd: fd})
	}
	for i, b := range s.Binds {
		fd, isDir, err := boundTree(h.kit.ns, b.Source, true)
		if err != nil {
			return bindError(i, err)
		}
		h.binds = append(h.binds, bind{source{fd: fd}, isDir, b.ReadOnly, b.Target})
	}
	return nil
}

// giveAway makes what the keeper has made in the directory of a container root's inside. Nothing that was
// written inside belongs to the keeper's own id, and no link is followed: it may be a program's.
func giveAway(s *container.Spec, pieces []piece) error {
	dir, err := unix.Open(s.Dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	paths := []string{"up", "wk", "up/etc", "up/etc/hosts", "up/proc", "up/sys", "up/dev", "up/run"}
	for i := range len(pieces) + 1 {
		paths = append(paths, workDir(".", i))
	}
	for _, p := range pieces {
		for n := 1; n <= len(p.path); n++ {
			if n == len(p.path) || p.path[n] == '/' {
				paths = append(paths, "up"+p.path[:n])
			}
		}
	}
	for _, p := range paths {
		how := unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS}
		fd, err := eintr.Get(func() (int, error) { return unix.Openat2(dir, p, &how) })
		if err != nil {
			continue // there is nothing, or something that the keeper has not made
		}
		var st unix.Stat_t
		if err = unix.Fstat(fd, &st); err == nil && st.Uid == uint32(os.Geteuid()) {
			err = unix.Fchownat(fd, "", int(s.UIDBase), int(s.UIDBase), unix.AT_EMPTY_PATH)
		}
		unix.Close(fd)
		if err != nil {
			return err
		}
	}
	return unix.Chmod(s.Dir, 0o711) // what is above is closed
}

// asUser calls write with the rights of a user to files, and no others.
func asUser(id int, write func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	was, group := os.Geteuid(), os.Getegid()
	unix.SetfsgidRetGid(id)
	unix.SetfsuidRetUid(id)
	defer func() {
		unix.SetfsuidRetUid(was)
		unix.SetfsgidRetGid(group)
	}()
	return write()
}
