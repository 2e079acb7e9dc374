//go:build unix

package atomicfile

import (
	"io/fs"
	"syscall"
)

// Theirs reports whether a file belongs to a user or to root: its owner reads and writes it,
// whatever its mode says of others.
func Theirs(info fs.FileInfo, uid int) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && (int(st.Uid) == uid || st.Uid == 0)
}
