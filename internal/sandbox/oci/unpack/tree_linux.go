package unpack

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/eintr"
)

const (
	// own is the index of the layer that is written; those below are 0 and up, topmost first.
	own = -1
	// maxFDs is how many directories are kept open, of each tree.
	maxFDs = 128
	// maxMemo bounds what is remembered of directories, in bytes, once for where paths lead and
	// once for the layers below; more begins anew.
	maxMemo  = 16 << 20
	maxLinks = 40
	maxPath  = 4095
	// maxDepth is how deep directories may be.
	maxDepth = 1000

	attrOpaque = "user.overlay.opaque"
	attrOrigin = "user.overlay.origin"
)

// tree is a layer and those below it, as an overlay would show them. Paths are relative to the
// root, without a slash at the beginning, and "" is the root. A real path has no link among its
// directories.
type tree struct {
	tops map[int]int // descriptors of the layers' directories
	n    int         // layers below

	fds     map[place]int       // of directories
	stacks  map[string][]int    // of a directory: the layers below that it is merged from
	cuts    map[string]struct{} // directories of the layer that hide those below
	walked  map[string]string   // where a path of directories leads
	visited map[string]struct{} // real paths that walks came through
	paths   int                 // bytes of walked and visited
	stacked int                 // bytes of stacks
}

type place struct {
	layer int
	dir   string
}

// node is what is at a path.
type node struct {
	there bool
	layer int
	st    unix.Stat_t
}

func (n *node) is(kind uint32) bool { return n.there && n.st.Mode&unix.S_IFMT == kind }

func isWhiteout(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0 }

// openTree opens the layers; dir "": there is none that is written.
func openTree(dir string, below []string) (*tree, error) {
	t := &tree{tops: map[int]int{}, n: len(below), fds: map[place]int{}, stacks: map[string][]int{}, cuts: map[string]struct{}{}}
	t.forget()
	open := func(i int, dir string) error {
		fd, err := eintr.Get(func() (int, error) {
			return unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
		})
		if err != nil {
			return &os.PathError{Op: "open", Path: dir, Err: err}
		}
		t.tops[i] = fd
		return nil
	}
	var err error
	if dir != "" {
		err = open(own, dir)
	}
	for i, b := range below {
		if err == nil {
			err = open(i, b)
		}
	}
	if err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

func (t *tree) close() {
	t.closeDirs()
	for _, fd := range t.tops {
		_ = unix.Close(fd)
	}
}

func (t *tree) closeDirs() {
	for at, fd := range t.fds {
		_ = unix.Close(fd)
		delete(t.fds, at)
	}
}

// forget begins anew with what walks have found.
func (t *tree) forget() {
	t.walked, t.visited, t.paths = map[string]string{}, map[string]struct{}{}, 0
}

// dir opens a directory of one layer, by a real path. The tree keeps the descriptor.
func (t *tree) dir(layer int, at string) (int, error) {
	top, ok := t.tops[layer]
	if !ok {
		return -1, unix.ENOENT
	}
	if at == "" {
		return top, nil
	}
	if fd, ok := t.fds[place{layer, at}]; ok {
		return fd, nil
	}
	how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := eintr.Get(func() (int, error) { return unix.Openat2(top, at, &how) })
	if err != nil {
		return -1, err
	}
	if len(t.fds) >= maxFDs {
		t.closeDirs()
	}
	t.fds[place{layer, at}] = fd
	return fd, nil
}

// stat looks at a name in a directory of one layer.
func (t *tree) stat(layer int, dir, name string) (st unix.Stat_t, err error) {
	fd, err := t.dir(layer, dir)
	if err == nil {
		err = eintr.Do(func() error { return unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	}
	return st, err
}

// stack returns the layers below that a directory is merged from, topmost first.
func (t *tree) stack(at string) ([]int, error) {
	if s, ok := t.stacks[at]; ok {
		return s, nil
	}
	s, err := t.merged(at)
	if err != nil {
		return nil, err
	}
	if t.stacked += len(at) + 8*len(s) + 64; t.stacked > maxMemo {
		t.stacks, t.stacked = map[string][]int{}, 0
	}
	t.stacks[at] = s
	return s, nil
}

func (t *tree) merged(at string) (s []int, err error) {
	if at == "" {
		for i := range t.n {
			s = append(s, i)
		}
		return s, nil
	}
	if _, cut := t.cuts[at]; cut {
		return nil, nil
	}
	above, err := t.stack(parent(at))
	if err != nil {
		return nil, err
	}
	for _, i := range above {
		st, err := t.stat(i, parent(at), path.Base(at))
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
			return s, err
		}
		s = append(s, i)
		if fd, err := t.dir(i, at); err != nil || isOpaque(fd) {
			return s, err
		}
	}
	return s, nil
}

// cut hides what the layers below have in a directory that the layer has.
func (t *tree) cut(at string) error {
	fd, err := t.dir(own, at)
	if err != nil {
		return err
	}
	t.cuts[at] = struct{}{}
	t.stacks, t.stacked = map[string][]int{}, 0
	return eintr.Do(func() error { return unix.Fsetxattr(fd, attrOpaque, []byte("y"), 0) })
}

func isOpaque(fd int) bool {
	value := make([]byte, 2)
	n, err := eintr.Get(func() (int, error) { return unix.Fgetxattr(fd, attrOpaque, value) })
	return err == nil && n == 1 && value[0] == 'y'
}

// below finds a name of a directory in the layers below.
func (t *tree) below(dir, name string) (node, error) {
	layers, err := t.stack(dir)
	if err != nil {
		return node{}, err
	}
	for _, i := range layers {
		st, err := t.stat(i, dir, name)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return node{}, err
		}
		return node{!isWhiteout(&st), i, st}, nil
	}
	return node{}, nil
}

// find finds a name of a directory.
func (t *tree) find(dir, name string) (node, error) {
	st, err := t.stat(own, dir, name)
	switch {
	case err == nil:
		return node{!isWhiteout(&st), own, st}, nil
	case errors.Is(err, unix.ENOENT):
		return t.below(dir, name)
	case errors.Is(err, unix.ENOTDIR): // the layer has something else in its place
		return node{}, nil
	}
	return node{}, err
}

// walk follows a path of directories; what is missing of it stays as it is written.
func (t *tree) walk(dir string) (string, error) {
	if t.paths > maxMemo { // only here: what is remembered of a walk belongs together
		t.forget()
	}
	return t.follow(dir)
}

func (t *tree) follow(dir string) (real string, err error) {
	if dir == "" {
		return "", nil
	}
	if real, ok := t.walked[dir]; ok {
		return real, nil
	}
	if real, err = t.follow(parent(dir)); err != nil {
		return "", err
	}
	links := 0
	if real, err = t.step(real, path.Base(dir), &links); err != nil {
		return "", err
	}
	t.paths += len(dir) + len(real) + 128
	t.walked[dir] = real
	return real, nil
}

// step goes to a name in a directory, and on if that is a link.
func (t *tree) step(real, name string, links *int) (string, error) {
	at := join(real, name)
	t.visited[at] = struct{}{}
	t.paths += len(at) + 64
	n, err := t.find(real, name)
	switch {
	case err != nil:
		return "", err
	case n.is(unix.S_IFLNK):
	case !n.there || n.is(unix.S_IFDIR) || n.layer != own: // a file below is replaced by a directory
		return at, nil
	default:
		return "", bad("%.200q is no directory, and something is said to be in it", at)
	}
	if *links++; *links > maxLinks {
		return "", bad("there are more than %d links on the way, or they lead to each other", maxLinks)
	}
	to, err := t.readlink(&n, real, name)
	if err != nil {
		return "", err
	}
	if strings.HasPrefix(to, "/") {
		real = ""
	}
	for part := range strings.SplitSeq(to, "/") {
		switch part {
		case "", ".":
		case "..":
			real = parent(real)
		default:
			if real, err = t.step(real, part, links); err != nil {
				return "", err
			}
		}
	}
	return real, nil
}

func (t *tree) readlink(n *node, dir, name string) (string, error) {
	fd, err := t.dir(n.layer, dir)
	if err != nil {
		return "", err
	}
	buf := make([]byte, unix.PathMax)
	k, err := eintr.Get(func() (int, error) { return unix.Readlinkat(fd, name, buf) })
	if err != nil {
		return "", fmt.Errorf("read the link %.200q: %w", join(dir, name), err)
	}
	return string(buf[:k]), nil
}

// parent is the directory of a path; that of the root is the root.
func parent(at string) string {
	if i := strings.LastIndexByte(at, '/'); i >= 0 {
		return at[:i]
	}
	return ""
}

func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}
