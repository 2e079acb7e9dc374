package distant

import (
	"io/fs"
	"syscall"
)

// timesOf returns what stat(2) tells; it knows no time of creation.
func timesOf(info fs.FileInfo) fileTimes {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return fileTimes{accessed: max(0, int64(st.Atim.Sec)), created: -1}
	}
	return fileTimes{-1, -1}
}
