//go:build linux

package failpoint

import (
	"fmt"
	"path/filepath"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Table is the mapped file.
type Table struct{ mem []byte }

// Create makes the file of a state directory in which no role runs yet, for a
// test to arm points in.
func Create(stateDir string) (*Table, error) {
	if err := unix.Mkdir(filepath.Join(stateDir, "run"), 0o700); err != nil && err != unix.EEXIST {
		return nil, fmt.Errorf("failpoints: %w", err)
	}
	return open(stateDir, unix.O_CREAT|unix.O_TRUNC)
}

func open(stateDir string, flags int) (*Table, error) {
	fd, err := unix.Open(filepath.Join(stateDir, "run", File), unix.O_RDWR|unix.O_CLOEXEC|flags, 0o600)
	if err != nil {
		return nil, fmt.Errorf("failpoints: %w", err)
	}
	defer unix.Close(fd)
	const size = int(count) * recordSize
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		return nil, fmt.Errorf("failpoints: %w", err)
	}
	mem, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("failpoints: %w", err)
	}
	return &Table{mem}, nil
}

// Close unmaps the file.
func (t *Table) Close() error { return unix.Munmap(t.mem) }

func (t *Table) word(p Point, w int) *uint32 {
	return (*uint32)(unsafe.Pointer(&t.mem[int(p)*recordSize+w*4]))
}

// Arm has the role die that comes by for the nth time from now; hold: it stops
// there instead, until Release.
func (t *Table) Arm(p Point, n int, stop bool) {
	var h uint32
	if stop {
		h = 1
	}
	atomic.StoreUint32(t.word(p, hold), h)
	atomic.StoreUint32(t.word(p, armed), uint32(n))
}

// Disarm takes it back. A role that stopped there continues when it is continued.
func (t *Table) Disarm(p Point) {
	atomic.StoreUint32(t.word(p, armed), 0)
	atomic.StoreUint32(t.word(p, hold), 0)
}

// Passed is how often roles came by.
func (t *Table) Passed(p Point) int { return int(atomic.LoadUint32(t.word(p, passed))) }

// Struck is how often a role died or stopped there, and the last one's pid; 0
// when that one has gone on.
func (t *Table) Struck(p Point) (times, role int) {
	return int(atomic.LoadUint32(t.word(p, struck))), int(atomic.LoadUint32(t.word(p, pid)))
}
