//go:build unix

package files

import (
	"io/fs"
	"syscall"
)

func idsOf(info fs.FileInfo) (uid, gid uint32) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Uid, st.Gid
	}
	return 0, 0
}
