package checkpoint

import (
	"io/fs"
	"os"
	"syscall"
)

// openFlags keep an open from following a link and from waiting.
const openFlags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

func (e *entry) stat(info fs.FileInfo) {
	e.Size, e.MTime = info.Size(), info.ModTime().UnixNano()
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		e.UID, e.GID = int(st.Uid), int(st.Gid)
		e.Inode, e.CTime = st.Ino, st.Ctim.Nano()
	}
}

// mayGive reports whether files can be given to their owners.
func mayGive() bool { return os.Geteuid() == 0 }

// give gives a file the owner of another.
func give(path string, like fs.FileInfo) error {
	if st, ok := like.Sys().(*syscall.Stat_t); ok && mayGive() {
		return os.Lchown(path, int(st.Uid), int(st.Gid))
	}
	return nil
}
