package distant

import (
	"io/fs"
	"syscall"
)

// accessedAt is the last access in seconds since 1970; negative: not known.
func accessedAt(info fs.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return max(0, int64(st.Atim.Sec))
	}
	return -1
}
