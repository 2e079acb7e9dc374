//go:build linux

// Package dirpool prepares directories for future processes.
//
// Creating a directory and its journal can cost more than the fork, because the
// filesystem searches for two free inodes. So a separate goroutine creates some in
// advance (Fill). A start only takes one (Take) and renames it to the ID of its process
// (Settle). They are created in batches, each batch in its own parent (".spare-PID-N"
// in the spool), because creating a directory holds the lock of its parent for long,
// and a rename needs that lock.
//
// Between Take and Settle the process already runs, and its spec is in the journal of
// the spare directory. So a keeper that takes over also looks there (Dirs).
package dirpool

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/spool"
	"github.com/tend-run/tend/process"
)

const (
	maxBatch = 16 // directories
	prefix   = ".spare-"
)

type directory struct {
	path    string
	journal int
}

// Pool holds directories that are ready.
type Pool struct {
	root  string
	size  int            // of a batch
	ready chan directory // capacity: two batches
	want  chan struct{}  // capacity 1: there is less than one batch

	// Of Fill alone.
	batches int
	parents []string // of batches; those that are empty go with the next batch
}

// New makes a pool below the directory of the spools. It holds a 32nd of files,
// the limit of descriptors, at most. Nothing is made before Fill.
func New(root string, files uint64) *Pool {
	size := int(max(1, min(maxBatch, files/64)))
	return &Pool{root: root, size: size, ready: make(chan directory, 2*size), want: make(chan struct{}, 1)}
}

// Fill keeps the pool filled, and does not return. It first removes what former
// keepers did not use. An error (a full disk) is left to the start that meets it.
func (p *Pool) Fill() {
	p.RemoveAll() // of a former keeper
	p.spread()
	for {
		p.fill()
		<-p.want
	}
}

// fill makes batches until one is ready, or cannot be made.
func (p *Pool) fill() {
	for len(p.ready) < p.size && p.batch() {
	}
}

// topdir is ext4's FS_TOPDIR_FL (chattr +T).
const topdir = 0x20000

// spread asks the filesystem to place each batch in a group of blocks of its
// own. Without a journal ext4 gives an inode that was freed in the last minutes to
// nobody, and looks at each of them on the way to a free one: where many finished
// processes were just removed, a directory cost as much as a fork. It is a hint
// that other filesystems refuse.
func (p *Pool) spread() {
	fd, err := unix.Open(p.root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	flags, err := unix.IoctlGetUint32(fd, unix.FS_IOC_GETFLAGS)
	if err == nil && flags&topdir == 0 {
		unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, int(flags|topdir))
	}
}

// batch makes one batch and then offers all of it. The parents of former batches go
// once they are empty: a start that is still under way has its directory there.
func (p *Pool) batch() bool {
	p.parents = slices.DeleteFunc(p.parents, func(dir string) bool {
		err := unix.Rmdir(dir)
		return err == nil || err == unix.ENOENT
	})
	parent := filepath.Join(p.root, fmt.Sprintf("%s%d-%d", prefix, os.Getpid(), p.batches))
	p.batches++
	if err := unix.Mkdir(parent, 0o700); err != nil {
		return false
	}
	p.parents = append(p.parents, parent)
	made := make([]directory, p.size)
	for i := range made {
		d, err := create(filepath.Join(parent, fmt.Sprint(i)))
		if err != nil {
			for _, d := range made[:i] {
				d.remove()
			}
			return false
		}
		made[i] = d
	}
	for _, d := range made {
		p.ready <- d
	}
	return true
}

func create(dir string) (directory, error) {
	if err := unix.Mkdir(dir, 0o700); err != nil {
		return directory{}, err
	}
	fd, err := unix.Open(filepath.Join(dir, spool.JournalName), unix.O_RDWR|unix.O_CREAT|unix.O_APPEND|unix.O_CLOEXEC, 0o600)
	if err != nil {
		unix.Rmdir(dir)
		return directory{}, err
	}
	return directory{dir, fd}, nil
}

func (d directory) remove() {
	unix.Close(d.journal)
	spool.RemoveDir(d.path)
}

// Take returns a directory for a process, which has its final name only after
// Settle, and its open journal, or -1 for a journal that is still to be opened.
// Both are the caller's. process.ErrExists: the id has a directory.
func (p *Pool) Take(id process.ID) (dir string, journal int, err error) {
	select {
	case d := <-p.ready:
		p.refill()
		var st unix.Stat_t
		if unix.Lstat(filepath.Join(p.root, string(id)), &st) == nil {
			d.remove()
			return "", -1, process.ErrExists
		}
		return d.path, d.journal, nil
	default:
	}
	p.refill() // what kept it from being filled may have passed
	dir, err = spool.CreateDir(p.root, id)
	return dir, -1, err
}

func (p *Pool) refill() {
	if len(p.ready) >= p.size {
		return
	}
	select {
	case p.want <- struct{}{}:
	default:
	}
}

// Settle gives a directory that Take returned its final name, and returns that.
// Renaming takes a tenth of the time of a start, so it is done while the program
// already loads.
func (p *Pool) Settle(dir string, id process.ID) (string, error) {
	final := filepath.Join(p.root, string(id))
	if dir == final {
		return dir, nil
	}
	return final, unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, final, unix.RENAME_NOREPLACE)
}

// RemoveAll removes what was not used, at shutdown.
func (p *Pool) RemoveAll() {
	entries, _ := os.ReadDir(p.root)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			os.RemoveAll(filepath.Join(p.root, e.Name()))
		}
	}
}

// Dirs lists the spare directories below root, of all keepers.
func Dirs(root string) (dirs []string) {
	parents, _ := os.ReadDir(root)
	for _, parent := range parents {
		if !strings.HasPrefix(parent.Name(), prefix) {
			continue
		}
		entries, _ := os.ReadDir(filepath.Join(root, parent.Name()))
		for _, e := range entries {
			dirs = append(dirs, filepath.Join(root, parent.Name(), e.Name()))
		}
	}
	return dirs
}
