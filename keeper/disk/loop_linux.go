package disk

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/eintr"
)

// patience is how long Open waits for a loop device that somebody else attaches, or that the
// kernel takes away: that may have to write what was in memory first.
const patience = time.Minute

const control = "/dev/loop-control"

var errBusy = errors.New("it is locked, and no loop device has it: another program uses it")

// Lock opens and locks a file that holds a disk, so that nobody mounts it until the file is
// closed, by all processes that were given it. false: it is mounted, or locked.
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

// node opens loop device n. In a container /dev has the devices that it was started with, and
// none that came later: the node is made then. Programs of sandboxes have a /dev of their own.
func node(n int) (*os.File, error) {
	path := fmt.Sprintf("/dev/loop%d", n)
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
	dir, err := os.Open("/dev")
	if err != nil {
		return nil, err
	}
	names, err := dir.Readdirnames(-1)
	dir.Close()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		n, ok := strings.CutPrefix(name, "loop")
		if !ok || strings.Trim(n, "0123456789") != "" {
			continue
		}
		dev, err := os.OpenFile("/dev/"+name, os.O_RDWR, 0)
		if err != nil {
			continue // it went, or is another's
		}
		// A device that is open and bound now stays so until it is closed.
		if in, err := unix.IoctlLoopGetStatus64(int(dev.Fd())); err == nil && in.Device == uint64(file.Dev) && in.Inode == file.Ino {
			return dev, nil
		}
		dev.Close()
	}
	return nil, nil
}
