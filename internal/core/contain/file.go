//go:build linux

package contain

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/core/wire"
	"github.com/tend-run/tend/internal/lib/eintr"
	"github.com/tend-run/tend/internal/lib/procfs"
)

// The file of a container is below the state directory: cells/ID. It is for the next keeper
// on this boot of the machine, and so is never forced to the disk.
//
//	 0  "tendcell"
//	 8  u32 LE  version
//	12  u32 LE  state
//	16  u32 LE  pid of pid 1; the kernel writes it before pid 1 runs
//	24  u64 LE  start time of pid 1, clock ticks since boot
//	32  text    name of the boot, zeros behind it
//	72  text    name of the cgroup nest, zeros behind it
//	136 ...     the encoded spec (wire.CellSpec)
const (
	fileMagic   = "tendcell"
	fileVersion = 1
	offState    = 12
	offPID      = 16
	offStarted  = 24
	offBoot     = 32
	offNest     = 72
	offSpec     = 136
)

// State of a container's file.
type state uint32

const (
	making state = 1 + iota // a keeper that finds it so undoes it
	made
	ending // a keeper that finds it so continues
)

// maxFile bounds a file, in bytes: a spec with all paths at their longest.
const maxFile = 2 << 20

// record is a file's content.
type record struct {
	state   state
	pid     int
	started int64
	boot    string
	nest    string
	spec    container.Spec
}

func (r *record) encode() []byte {
	b := make([]byte, offSpec)
	copy(b, fileMagic)
	binary.LittleEndian.PutUint32(b[8:], fileVersion)
	binary.LittleEndian.PutUint32(b[offState:], uint32(r.state))
	binary.LittleEndian.PutUint32(b[offPID:], uint32(r.pid))
	binary.LittleEndian.PutUint64(b[offStarted:], uint64(r.started))
	copy(b[offBoot:offNest-1], r.boot)
	copy(b[offNest:offSpec-1], r.nest)
	e := wire.Enc{B: b}
	(&wire.ContainerSpec{Spec: r.spec}).Append(&e)
	return e.B
}

var errFile = errors.New("this is no file of a sandbox")

func decode(b []byte) (r record, err error) {
	if len(b) < offSpec || string(b[:8]) != fileMagic || binary.LittleEndian.Uint32(b[8:]) != fileVersion {
		return r, errFile
	}
	r.state, r.pid = state(binary.LittleEndian.Uint32(b[offState:])), int(int32(binary.LittleEndian.Uint32(b[offPID:])))
	r.started = int64(binary.LittleEndian.Uint64(b[offStarted:]))
	r.boot, _, _ = strings.Cut(string(b[offBoot:offNest]), "\x00")
	r.nest, _, _ = strings.Cut(string(b[offNest:offSpec]), "\x00")
	if r.nest != filepath.Base(r.nest) || r.state < making || r.state > ending {
		return r, errFile
	}
	s, err := wire.ParseContainerSpec(b[offSpec:])
	if err != nil {
		return r, err
	}
	r.spec = s.Spec
	return r, r.spec.Validate()
}

// file is an open one, mapped.
type file struct {
	path string
	mem  []byte
}

// createFile writes a file whole, and gives it its name.
func createFile(dir string, r *record) (*file, error) {
	path, next := dir+"/"+string(r.spec.ID), dir+"/."+string(r.spec.ID)
	b := r.encode()
	fd, err := unix.Open(next, unix.O_RDWR|unix.O_CREAT|unix.O_TRUNC|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", next, err)
	}
	defer unix.Close(fd)
	if _, err := eintr.Write(fd, b); err != nil {
		return nil, fmt.Errorf("%s: %w", next, err)
	}
	mem, err := unix.Mmap(fd, 0, len(b), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", next, err)
	}
	if err := unix.Rename(next, path); err != nil {
		unix.Munmap(mem)
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &file{path, mem}, nil
}

// pid is where the kernel is to write the pid.
func (f *file) pid() *uint32 { return (*uint32)(unsafe.Pointer(&f.mem[offPID])) }

func (f *file) made(started int64) {
	binary.LittleEndian.PutUint64(f.mem[offStarted:], uint64(started))
	binary.LittleEndian.PutUint32(f.mem[offState:], uint32(made))
}

func (f *file) close() { unix.Munmap(f.mem) }

// setState changes the state of a file that is not mapped.
func setState(path string, s state) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteAt(binary.LittleEndian.AppendUint32(nil, uint32(s)), offState)
	return err
}

// rewrite replaces a file by another content.
func rewrite(dir string, r *record) error {
	f, err := createFile(dir, r)
	if err != nil {
		return err
	}
	f.close()
	return nil
}

// bootName fits into a file.
func bootName() string {
	name := procfs.BootID()
	return name[:min(len(name), offNest-offBoot-1)]
}

// removeAll is os.RemoveAll of what an ordinary user owns, whatever the modes are.
func removeAll(path string) error {
	err := os.RemoveAll(path)
	if err == nil {
		return nil
	}
	filepath.WalkDir(path, func(p string, e os.DirEntry, err error) error {
		if e != nil && e.IsDir() {
			os.Chmod(p, 0o700)
		}
		return nil
	})
	return os.RemoveAll(path)
}
