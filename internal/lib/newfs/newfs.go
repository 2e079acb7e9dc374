//go:build linux

// Package newfs makes filesystems that are mounted nowhere (fsopen(2)).
package newfs

import (
	"strings"

	"golang.org/x/sys/unix"
)

// Mount returns a detached mount of a new filesystem, with these MOUNT_ATTR_*. Each option is a
// name, or a name and a value: "size=1m".
func Mount(kind string, attr int, options ...string) (int, error) {
	fs, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fs)
	for _, o := range options {
		if name, value, ok := strings.Cut(o, "="); ok {
			err = unix.FsconfigSetString(fs, name, value)
		} else {
			err = unix.FsconfigSetFlag(fs, name)
		}
		if err != nil {
			return -1, err
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, err
	}
	return unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attr)
}
