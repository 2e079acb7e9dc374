//go:build unix

package files

import (
	"io/fs"
	"syscall"
)

// openDirectory are the flags that open a directory and follow no link.
const openDirectory = syscall.O_DIRECTORY | syscall.O_NOFOLLOW

func idsOf(info fs.FileInfo) (uid, gid uint32) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Uid, st.Gid
	}
	return 0, 0
}
