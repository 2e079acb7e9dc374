package langsmith

import (
	"io/fs"
	"syscall"
)

// identity is the file's inode, and when its content or attributes changed, in
// nanoseconds.
func identity(info fs.FileInfo) (inode uint64, changed int64) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ino, st.Ctim.Nano()
	}
	return 0, 0
}
