package files

import (
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/eintr"
)

// stamp is what changes when a file does.
type stamp struct {
	dev, ino     uint64
	size         int64
	mtime, ctime unix.Timespec
}

// stampOf is the zero stamp of a file that is not read.
func (r *Root) stampOf(file string) stamp {
	fd, err := r.openat2(file, unix.O_PATH, unix.RESOLVE_NO_MAGICLINKS)
	if err != nil {
		return stamp{}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if eintr.Do(func() error { return unix.Fstat(fd, &st) }) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return stamp{}
	}
	return stamp{uint64(st.Dev), st.Ino, st.Size, st.Mtim, st.Ctim}
}

// readAccounts reads what there is of a file of accounts, if it is one; nothing is
// read of what the kernel makes up or of another machine's.
func (r *Root) readAccounts(file string) string {
	var text strings.Builder
	path, err := r.openat2(file, unix.O_PATH, unix.RESOLVE_NO_MAGICLINKS)
	if err != nil {
		return ""
	}
	defer unix.Close(path)
	var st unix.Stat_t
	if eintr.Do(func() error { return unix.Fstat(path, &st) }) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || r.isForeign(path) {
		return ""
	}
	in, err := os.OpenFile(fdPath(path), os.O_RDONLY|openFlags, 0)
	if err != nil {
		return ""
	}
	defer in.Close()
	if _, err := io.Copy(&text, io.LimitReader(in, maxAccounts)); err != nil {
		return ""
	}
	return text.String()
}
