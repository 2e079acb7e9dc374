package files

import (
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/eintr"
)

// identity returns what tells this file and its content from others.
func identity(info fs.FileInfo) (inode uint64, changed int64) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Ino), int64(st.Ctim.Sec)*1e9 + int64(st.Ctim.Nsec)
	}
	return 0, 0
}

// nameless makes a file in a directory that no name leads to: nothing is left of it
// if the daemon dies.
func nameless(dir *handle) (*os.File, error) {
	return os.OpenFile(dir.at("."), os.O_WRONLY|unix.O_TMPFILE, 0o666)
}

// linkNameless gives a file its first name, which must be free.
func linkNameless(file *os.File, dir *handle, name string) error {
	return control(file, func(fd int) error {
		return eintr.Do(func() error {
			return unix.Linkat(unix.AT_FDCWD, fdPath(fd), unix.AT_FDCWD, dir.at(name), unix.AT_SYMLINK_FOLLOW)
		})
	})
}
