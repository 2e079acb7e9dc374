package image

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/disk"
)

// Least and Most bytes of a disk.
const (
	Least = 16 << 20
	Most  = 8 << 40 // a file of ext4 ends at 16 TiB, and has as much beside the bytes
)

// A file inside takes an inode, of which there is one for so many bytes, as on most
// machines, and never fewer than leastFiles.
const (
	bytesPerFile = 16 << 10
	leastFiles   = 4096
	inodeSize    = 256
)

// Able says what this machine lacks to make disks, and what to do; nil: nothing.
func Able() error {
	for _, name := range []string{mkfs, fsck} {
		if _, err := program(name); err != nil {
			return err
		}
	}
	return nil
}

const mkfs, fsck = "mkfs.ext4", "e2fsck"

// program finds a program, also where an ordinary PATH does not look.
func program(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin", "/sbin", "/usr/local/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not installed: install e2fsprogs", name)
}

// Files is how many files fit on a disk of so many bytes.
func Files(bytes int64) int64 { return max(bytes/bytesPerFile, leastFiles) }

// FileSize is how large the file is for a disk on which a sandbox can use so many bytes: the
// filesystem needs some itself.
func FileSize(bytes int64) int64 {
	const group = 128 << 20 // has two blocks of bitmaps, and its descriptor
	reserve := min(bytes/50, 16<<20)
	size := bytes + Files(bytes)*inodeSize + (bytes/group+1)*(16<<10) + reserve + 1<<20
	return (size + 4095) &^ 4095
}

// features of the filesystem: all but what only the quota, the journal and a change of its
// size need. They are named one by one, because each machine has defaults of its own.
const features = "none,ext_attr,dir_index,filetype,extent,64bit,flex_bg,sparse_super,large_file,huge_file,dir_nlink,extra_isize,metadata_csum"

// A program of e2fsprogs that takes longer than this is killed: a hung one would hold a sandbox
// for ever. mkfs.ext4 takes less than a second for any size, and e2fsck some seconds for
// each GiB that a file takes of the machine's disk.
const (
	mostTime   = 10 * time.Minute
	mostPerGiB = time.Minute
)

// makeWait is how long Make waits for the end of a mkfs.ext4 that another server has left.
const makeWait = 10 * time.Second

// Make makes a file with an empty disk of so many bytes. It gets its name when it is whole.
func Make(ctx context.Context, path string, bytes int64) error {
	half := path + ".new"
	f, err := os.OpenFile(half, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	f.Close()
	f, free, err := locked(ctx, half, makeWait)
	if err == nil && !free {
		err = fmt.Errorf("%s: the %s of a tend that was killed still writes to it; end it, or try again", half, mkfs)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err = errors.Join(f.Truncate(0), f.Truncate(FileSize(bytes))); err == nil {
		_, err = run(ctx, f, mostTime, mkfs, "-q", "-F", "-b", "4096", "-m", "0", "-I", strconv.Itoa(inodeSize), "-N",
			strconv.FormatInt(Files(bytes), 10),
			"-O", features, "-E", "lazy_itable_init=1,nodiscard,root_owner=0:0", half)
	}
	if err == nil {
		err = os.Rename(half, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(half))
	}
	return nil
}

// locked waits so long for the lock of a file.
func locked(ctx context.Context, path string, wait time.Duration) (f *os.File, free bool, err error) {
	f, free, err = disk.Lock(path)
	for begin, pause := time.Now(), time.Millisecond; err == nil && !free && time.Since(begin) < wait; pause = min(2*pause,
		50*time.Millisecond) {
		select {
		case <-ctx.Done():
			return nil, false, ctx.Err()
		case <-time.After(pause):
		}
		f, free, err = disk.Lock(path)
	}
	return f, free, err
}

// Used is how many bytes a file takes of the machine's disk. There is none: 0.
func Used(path string) int64 {
	var st unix.Stat_t
	if unix.Lstat(path, &st) != nil {
		return 0
	}
	return st.Blocks * 512
}

// Repair looks whether the disk in a file was left as it should be, and repairs it if not.
// It reports whether it had to. One that is mounted is waited for, for so long: the kernel may
// be taking it away. After that it is left as it is, because it was looked at when that began.
func Repair(ctx context.Context, path string, wait time.Duration) (repaired bool, err error) {
	f, free, err := locked(ctx, path, wait)
	if err != nil || !free {
		return false, err
	}
	defer f.Close()
	if clean, err := clean(path); err != nil || clean {
		return false, err
	}
	most := mostTime + time.Duration(Used(path)>>30)*mostPerGiB
	code, err := run(ctx, f, most, fsck, "-p", path)
	if code > 0 && code&uncorrected != 0 && code < serious {
		code, err = run(ctx, f, most, fsck, "-y", path) // what it would ask a person about
	}
	if code >= 0 && code < uncorrected {
		err = nil
	}
	return true, err
}

// Exit statuses of e2fsck are sums: 1 and 2 say that it has repaired. -1 is no status: it
// could not be started, or was killed.
const uncorrected, serious = 4, 8

// The superblock (ext4: Disk Layout): where it is, its magic, and its state.
const (
	superblock = 1024
	offMagic   = 0x38
	offState   = 0x3a
	magic      = 0xef53
	stateClean = 1 // it was unmounted, and no error (2) was found
)

func clean(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	b := make([]byte, 64)
	if _, err := f.ReadAt(b, superblock); err != nil {
		return false, fmt.Errorf("%s: %w", path, err)
	}
	return binary.LittleEndian.Uint16(b[offMagic:]) == magic && binary.LittleEndian.Uint16(b[offState:]) == stateClean, nil
}

// run runs a program to its end, and returns its status. A call that is given up ends it, as
// does the end of this process, and the time. It has file, which is locked, as its descriptor 3:
// should it live on nevertheless, nobody else has the file meanwhile.
func run(ctx context.Context, file *os.File, most time.Duration, name string, args ...string) (code int, err error) {
	path, err := program(name)
	if err != nil {
		return -1, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("it has not ended in %v: does the machine's disk answer?", most))
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	// the machine's settings are for its own disks
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "MKE2FS_CONFIG=/dev/null", "E2FSCK_CONFIG=/dev/null"}
	cmd.ExtraFiles = []*os.File{file}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // the program ends with the thread that made it
	out, err := cmd.CombinedOutput()
	runtime.UnlockOSThread()
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		err = fmt.Errorf("%s: %w: %.500s", name, err, strings.TrimSpace(string(out)))
	}
	return cmd.ProcessState.ExitCode(), err
}
