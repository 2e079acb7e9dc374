//go:build linux

package keeper

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/spool"
)

// Making a directory and its journal costs more than half as much as the fork:
// the filesystem looks for two free inodes. So some are made beforehand, by a
// goroutine of their own, and a start only renames one.
const (
	spares      = 16
	sparePrefix = ".spare-"
)

type spare struct {
	dir     string
	journal int
}

// sparePool holds directories that are ready.
type sparePool struct {
	root  string
	ready chan spare
	want  chan struct{} // capacity 1: the pool is below half
}

func newSparePool(root string) *sparePool {
	return &sparePool{root: root, ready: make(chan spare, spares), want: make(chan struct{}, 1)}
}

// fill keeps the pool filled for ever. Trouble (a full disk) is left to the
// start that meets it.
func (s *sparePool) fill() {
	entries, _ := os.ReadDir(s.root)
	for _, e := range entries { // of a former keeper
		if strings.HasPrefix(e.Name(), sparePrefix) {
			os.RemoveAll(filepath.Join(s.root, e.Name()))
		}
	}
	for n := 0; ; {
		for len(s.ready) < spares {
			sp, err := s.make(n)
			if err != nil {
				break
			}
			n++
			s.ready <- sp
		}
		<-s.want
	}
}

func (s *sparePool) make(n int) (spare, error) {
	dir := filepath.Join(s.root, fmt.Sprintf("%s%d-%d", sparePrefix, os.Getpid(), n))
	if err := unix.Mkdir(dir, 0o700); err != nil {
		return spare{}, err
	}
	fd, err := unix.Open(filepath.Join(dir, spool.JournalName), unix.O_RDWR|unix.O_CREAT|unix.O_APPEND|unix.O_CLOEXEC, 0o600)
	if err != nil {
		os.RemoveAll(dir)
		return spare{}, err
	}
	return spare{dir, fd}, nil
}

// take makes the directory of a process and returns it with its open journal,
// or -1 for a journal still to be opened.
func (s *sparePool) take(id process.ID) (dir string, journal int, err error) {
	select {
	case sp := <-s.ready:
		if len(s.ready) < spares/2 {
			select {
			case s.want <- struct{}{}:
			default:
			}
		}
		dir = filepath.Join(s.root, string(id))
		err := unix.Renameat2(unix.AT_FDCWD, sp.dir, unix.AT_FDCWD, dir, unix.RENAME_NOREPLACE)
		if err == nil {
			return dir, sp.journal, nil
		}
		unix.Close(sp.journal)
		os.RemoveAll(sp.dir)
		if errors.Is(err, unix.EEXIST) {
			return "", -1, process.ErrExists
		}
	default:
	}
	dir, err = spool.CreateDir(s.root, id)
	return dir, -1, err
}

// removeAll removes what was not used, at shutdown.
func (s *sparePool) removeAll() {
	for {
		select {
		case sp := <-s.ready:
			unix.Close(sp.journal)
			os.RemoveAll(sp.dir)
		default:
			return
		}
	}
}
