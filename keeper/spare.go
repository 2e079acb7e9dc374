//go:build linux

package keeper

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/spool"
)

// Making a directory and its journal can cost more than the fork: the
// filesystem looks for two free inodes. So some are made beforehand, by a
// goroutine of their own, and a start only renames one. They are made in
// batches, each in a parent of its own: making a directory holds its parent's
// lock for long, and a rename needs that lock.
const (
	mostSpares  = 16 // in one batch
	sparePrefix = ".spare-"
)

type spare struct {
	dir     string
	journal int
}

// sparePool holds directories that are ready.
type sparePool struct {
	root  string
	size  int           // of a batch
	ready chan spare    // capacity: two batches
	want  chan struct{} // capacity 1: there is less than one batch
}

// newSparePool makes a pool that holds a 32nd of the descriptors at most.
func newSparePool(root string, files uint64) *sparePool {
	size := int(max(1, min(mostSpares, files/64)))
	return &sparePool{root: root, size: size, ready: make(chan spare, 2*size), want: make(chan struct{}, 1)}
}

// fill keeps the pool filled for ever. Trouble (a full disk) is left to the
// start that meets it.
func (s *sparePool) fill() {
	s.removeAll() // of a former keeper
	s.spread()
	for n := 0; ; n++ {
		for len(s.ready) < s.size {
			if !s.batch(n) {
				break
			}
			n++
		}
		<-s.want
	}
}

// topdir is ext4's FS_TOPDIR_FL (chattr +T).
const topdir = 0x20000

// spread asks the filesystem to place each batch in a group of blocks of its
// own. Without a journal ext4 gives an inode that was freed in the last minutes to
// nobody, and looks at each of them on the way to a free one: where many finished
// processes were just removed, a directory cost as much as a fork. It is a hint
// that other filesystems refuse.
func (s *sparePool) spread() {
	fd, err := unix.Open(s.root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	flags, err := unix.IoctlGetUint32(fd, unix.FS_IOC_GETFLAGS)
	if err == nil && flags&topdir == 0 {
		unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, int(flags|topdir))
	}
}

// batch makes one batch and then offers all of it. The parents of former
// batches go when they are empty.
func (s *sparePool) batch(n int) bool {
	unix.Rmdir(s.parent(n - 2))
	unix.Rmdir(s.parent(n - 3))
	parent := s.parent(n)
	if err := unix.Mkdir(parent, 0o700); err != nil {
		return false
	}
	made := make([]spare, s.size)
	for i := range made {
		sp, err := makeSpare(filepath.Join(parent, fmt.Sprint(i)))
		if err != nil {
			for _, sp := range made[:i] {
				sp.remove()
			}
			unix.Rmdir(parent)
			return false
		}
		made[i] = sp
	}
	for _, sp := range made {
		s.ready <- sp
	}
	return true
}

func (s *sparePool) parent(n int) string {
	return filepath.Join(s.root, fmt.Sprintf("%s%d-%d", sparePrefix, os.Getpid(), n))
}

func makeSpare(dir string) (spare, error) {
	if err := unix.Mkdir(dir, 0o700); err != nil {
		return spare{}, err
	}
	fd, err := unix.Open(filepath.Join(dir, spool.JournalName), unix.O_RDWR|unix.O_CREAT|unix.O_APPEND|unix.O_CLOEXEC, 0o600)
	if err != nil {
		unix.Rmdir(dir)
		return spare{}, err
	}
	return spare{dir, fd}, nil
}

func (sp spare) remove() {
	unix.Close(sp.journal)
	spool.RemoveDir(sp.dir)
}

// take returns a directory for a process, which has its final name only after
// settle, with its open journal, or -1 for a journal still to be opened.
func (s *sparePool) take(id process.ID) (dir string, journal int, err error) {
	select {
	case sp := <-s.ready:
		s.refill()
		var st unix.Stat_t
		if unix.Lstat(filepath.Join(s.root, string(id)), &st) == nil {
			sp.remove()
			return "", -1, process.ErrExists
		}
		return sp.dir, sp.journal, nil
	default:
	}
	s.refill() // what kept it from being filled may have passed
	dir, err = spool.CreateDir(s.root, id)
	return dir, -1, err
}

func (s *sparePool) refill() {
	if len(s.ready) >= s.size {
		return
	}
	select {
	case s.want <- struct{}{}:
	default:
	}
}

// settle gives a directory that take returned its final name. Renaming takes as
// long as a tenth of a start, so it is done while the program already loads.
func (s *sparePool) settle(dir string, id process.ID) (string, error) {
	final := filepath.Join(s.root, string(id))
	if dir == final {
		return dir, nil
	}
	return final, unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, final, unix.RENAME_NOREPLACE)
}

// removeAll removes what was not used, at shutdown.
func (s *sparePool) removeAll() {
	entries, _ := os.ReadDir(s.root)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), sparePrefix) {
			os.RemoveAll(filepath.Join(s.root, e.Name()))
		}
	}
}
