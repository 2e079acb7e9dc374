//go:build unix

package guard

import (
	"io/fs"
	"os"
	"syscall"
)

// openFlags keep an open from following a last link, and from waiting for the other
// end of a FIFO.
const openFlags = syscall.O_NOFOLLOW | waitForNobody

// waitForNobody is for a path that the healer's owner names, who may use links.
const waitForNobody = syscall.O_NONBLOCK

// links is the number of names that a file has.
func links(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Nlink)
	}
	return 1
}

// giveTo gives a new file the owner of the one that it replaces, or of its
// directory. Root alone can, and only root's file would have another owner.
func giveTo(f *os.File, like fs.FileInfo) error {
	st, ok := like.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 {
		return nil
	}
	return f.Chown(int(st.Uid), int(st.Gid))
}
