package files

import (
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// chmod works on files that may not be opened, too: a descriptor that is only
// a path needs no permission, and /proc leads back to it.
func chmod(path string, change func(fs.FileMode) fs.FileMode) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	self := fmt.Sprintf("/proc/self/fd/%d", fd)
	info, err := os.Stat(self)
	if err != nil {
		return err
	}
	return os.Chmod(self, change(info.Mode().Perm()).Perm())
}
