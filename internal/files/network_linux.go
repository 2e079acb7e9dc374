package files

import (
	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/eintr"
)

// onNetwork reports whether the file is on a file system whose changes may be
// made by other machines (linux/magic.h).
func (h *handle) onNetwork() (bool, error) {
	var st unix.Statfs_t
	if err := eintr.Do(func() error { return unix.Fstatfs(int(h.file.Fd()), &st) }); err != nil {
		return false, err
	}
	switch uint32(st.Type) {
	case unix.NFS_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.FUSE_SUPER_MAGIC:
		return true, nil
	}
	return false, nil
}
