package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/eintr"
)

// patience is how long Open waits for a loop device that somebody else attaches, or that the
// kernel takes away: that may have to write what was in memory first.
const patience = time.Minute

const control = "/dev/loop-control"

var errBusy = errors.New("it is locked, and no loop device has it: another program uses it")

// Lock opens and locks a file that holds a disk, so that it cannot be mounted until all
// processes that got the file have closed it. false: it is mounted, or locked.
func Lock(path string) (f *os.File, ok bool, err error) {
	f, err = os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, false, err
	}
	err = eintr.Do(func() error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) })
	if err == nil {
		return f, true, nil
	}
	f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, false, nil
	}
	return nil, false, os.NewSyscallError("flock", err)
}

// device returns the loop device of a file, opened: as long as it is open, it stays.
func device(path string) (*os.File, error) {
	for begin, pause := time.Now(), time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		f, ok, err := Lock(path)
		if err != nil {
			return nil, err
		}
		if ok {
			dev, err := attach(f)
			f.Close() // the device has it open
			return dev, err
		}
		if dev, err := attached(path); dev != nil || err != nil {
			return dev, err
		}
		// A device that is being attached, or cleared.
		if time.Since(begin) > patience {
			return nil, errBusy
		}
		time.Sleep(pause)
	}
}

// attach makes a loop device of a file that is locked.
func attach(f *os.File) (*os.File, error) {
	c, err := os.OpenFile(control, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	for {
		n, err := eintr.Get(func() (int, error) { return unix.IoctlRetInt(int(c.Fd()), unix.LOOP_CTL_GET_FREE) })
		if err != nil {
			return nil, os.NewSyscallError("loop_ctl_get_free", err)
		}
		dev, err := node(n)
		if err != nil {
			return nil, err
		}
		conf := unix.LoopConfig{Fd: uint32(f.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}}
		copy(conf.Info.File_name[:len(conf.Info.File_name)-1], f.Name())
		err = eintr.Do(func() error { return unix.IoctlLoopConfigure(int(dev.Fd()), &conf) })
		if err == nil {
			return dev, nil
		}
		dev.Close()
		if !errors.Is(err, unix.EBUSY) { // somebody else was faster
			return nil, os.NewSyscallError("loop_configure", err)
		}
	}
}

func nodePath(n int) string { return fmt.Sprintf("/dev/loop%d", n) }

// node opens loop device n. In a container /dev has the devices that it was started with, and
// none that came later: the node is made then. Programs of sandboxes have a /dev of their own.
func node(n int) (*os.File, error) {
	path := nodePath(n)
	dev, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		if err := makeNode(n, path); err != nil {
			return nil, fmt.Errorf("%s is not there, and cannot be made: %w (%s)", path, err, allowLoops)
		}
		dev, err = os.OpenFile(path, os.O_RDWR, 0)
	}
	if errors.Is(err, os.ErrPermission) {
		err = fmt.Errorf("%w (%s)", err, allowLoops)
	}
	return dev, err
}

const allowLoops = "a container needs --device-cgroup-rule='b 7:* rmw' and the capability MKNOD, or the machine's own /dev"

// makeNode makes the node of loop device n, whose numbers depend on how the module was loaded.
func makeNode(n int, path string) error {
	b, err := os.ReadFile(fmt.Sprintf("/sys/block/loop%d/dev", n))
	if err != nil {
		return err
	}
	var major, minor uint32
	if _, err := fmt.Sscanf(string(b), "%d:%d", &major, &minor); err != nil {
		return fmt.Errorf("its number is %.20q: %w", b, err)
	}
	err = unix.Mknod(path, unix.S_IFBLK|0o600, int(unix.Mkdev(major, minor)))
	if errors.Is(err, os.ErrExist) { // somebody else was faster
		return nil
	}
	return os.NewSyscallError("mknod", err)
}

// attached finds the loop device of a file; nil: there is none.
func attached(path string) (*os.File, error) {
	var file unix.Stat_t
	if err := unix.Stat(path, &file); err != nil {
		return nil, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	// /dev need not have all, and has those that are bound to nothing.
	bound, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, err
	}
	for _, name := range bound {
		dev, err := bearer(name, filepath.Base(path))
		if err != nil {
			return nil, err
		}
		if dev == nil {
			continue
		}
		// A device that is open and bound now stays so until it is closed.
		if in, err := unix.IoctlLoopGetStatus64(int(dev.Fd())); err == nil && in.Device == uint64(file.Dev) && in.Inode == file.Ino {
			return dev, nil
		}
		dev.Close()
	}
	return nil, nil
}

// bearer opens the loop device with this backing_file in /sys; nil: it went, or is of no use.
// Where it takes a node to be made, or cannot be opened, only one of a file of this name counts.
func bearer(backing, name string) (*os.File, error) {
	var n int
	if _, err := fmt.Sscanf(backing, "/sys/block/loop%d/", &n); err != nil {
		return nil, nil
	}
	dev, err := os.OpenFile(nodePath(n), os.O_RDWR, 0)
	if err == nil {
		return dev, nil
	}
	if !errors.Is(err, os.ErrNotExist) && !errors.Is(err, os.ErrPermission) {
		return nil, nil
	}
	if b, err := os.ReadFile(backing); err != nil || filepath.Base(strings.TrimSuffix(string(b), "\n")) != name {
		return nil, nil
	}
	if dev, err = node(n); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return dev, err
}
