//go:build linux

package crashtest

import (
	"os"

	"golang.org/x/sys/unix"
)

// topDir is the attribute T of a directory (chattr(1)).
const topDir = 0x20000

// spread has the tests make their directories in dir, each in another part of the disk. ext4
// without a journal gives the number of a file that was deleted to no other for a
// minute, and looks at each such number of a part when a file is made there: where thousands
// were deleted, for a millisecond. A filesystem that knows no such attribute does without.
func spread(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS); err == nil {
		_ = unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags|topDir)
	}
	if err := f.Chmod(0o777 | os.ModeSticky); err != nil { // other users work in it, too
		return err
	}
	return os.Setenv("TMPDIR", dir)
}
