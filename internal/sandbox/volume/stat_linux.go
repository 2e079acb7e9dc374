package volume

import (
	"io/fs"
	"syscall"
	"time"
)

const noWait, onlyDir = syscall.O_NONBLOCK, syscall.O_DIRECTORY

// more is what the system says beside: the owner, when it was read last, and when anything
// about it changed.
func more(info fs.FileInfo) (uid, gid uint32, accessed, changed time.Time) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nobody, nobody, info.ModTime(), info.ModTime()
	}
	return st.Uid, st.Gid, time.Unix(st.Atim.Unix()), time.Unix(st.Ctim.Unix())
}
