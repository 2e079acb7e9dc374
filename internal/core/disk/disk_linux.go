package disk

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/newfs"
)

// Mount is the filesystem of a file, mounted nowhere.
type Mount struct{ fd int }

// The kernel is told not to
//   - keep what the sandbox has removed: what is free inside is free in the file again
//     (discard);
//   - fill the tables of inodes in the background (noinit_itable): the file is sparse;
//   - wait for the machine's disk (nobarrier): nothing of a sandbox is forced there.
//
// A filesystem that finds itself damaged is not written to any more.
var options = []string{"discard", "noinit_itable", "nobarrier", "errors=remount-ro"}

// Able says what this machine lacks for disks, and what to do; nil: nothing.
func Able() error {
	c, err := unix.Open(control, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("loop devices are needed: %s: %w (modprobe loop; a container needs --device /dev/loop-control and those that it names)",
			control, err)
	}
	unix.Close(c)
	fs, err := unix.Fsopen("ext4", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return fmt.Errorf("the kernel has no ext4: %w", err)
	}
	unix.Close(fs)
	return nil
}

// Open mounts the filesystem in a file. If it is already mounted, the mount is shared:
// all users see each other's writes.
func Open(path string) (*Mount, error) {
	dev, err := device(path)
	if err != nil {
		return nil, fmt.Errorf("disk %s: %w", path, err)
	}
	defer dev.Close() // the filesystem holds it, or it goes
	fd, err := newfs.Mount("ext4", unix.MOUNT_ATTR_NODEV, append([]string{"source=" + dev.Name()}, options...)...)
	if err != nil {
		return nil, fmt.Errorf("disk %s: mount %s: %w", path, dev.Name(), err)
	}
	return &Mount{fd}, nil
}

// Take returns the descriptor, which is the caller's to close from now on.
func (m *Mount) Take() int {
	fd := m.fd
	m.fd = -1
	return fd
}

// Path is the root directory, as long as the mount is open.
func (m *Mount) Path() string { return fmt.Sprintf("/proc/self/fd/%d", m.fd) }

// Close ends the mount. What others have mounted stays.
func (m *Mount) Close() error {
	if m.fd < 0 {
		return nil
	}
	return os.NewSyscallError("close", unix.Close(m.Take()))
}
