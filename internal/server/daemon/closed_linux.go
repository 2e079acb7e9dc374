package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/rundir"
	"github.com/tend-run/tend/internal/lib/owner"
)

// held are the directories in a state directory that belong to [owner.NoSandbox], and heldFiles
// the files. Each directory that is made there is one of them, or one of roots; each file that is
// none of them has no secret, for it may be read by a name that is known.
var (
	held = []string{
		"boxes", "builds", "cells", "distant", "e2b", "envd", "exits", "gateway", "healing", "langsmith", "sandboxes", "services", "telemetry",
		"usage",
	}
	heldFiles = []string{"daemon.log", "secret"}
)

// roots are those that an older tend refuses if they are not root's: the state directory too. Their
// group is one that no sandbox has, and these bits of their owner are taken away. The child that
// makes the stage of sandboxes in an older keeper has no powers, and passes through as their owner.
var roots = []struct {
	name string
	bits uint32
}{{".", 0o600}, {"run", 0o600}, {rundir.SpoolDir, 0o700}}

// powers are what root needs to use what is closed so.
const powers = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_FOWNER

// closeToSandboxes makes the content of a state directory unreadable for root inside of a
// sandbox, by whatever path it is seen there: a directory may have another one, by a bind mount.
// The kernel lets root inside pass over the mode of a file only if both its owner and its group are
// ids of the sandbox. The daemon is root of the machine, and passes.
//
// A daemon without the powers leaves everything as it is. So does one in a user namespace that
// lacks the id: its own root is not that of a sandbox there.
func closeToSandboxes(stateDir string) error {
	if os.Geteuid() != 0 || !mayClose() {
		return nil
	}
	for _, name := range held { // before there is anything in it, and not with the next server
		if err := os.Mkdir(filepath.Join(stateDir, name), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("close the state directory to sandboxes: %w", err)
		}
	}
	for _, name := range slices.Concat(held, heldFiles) {
		if err := closeOne(filepath.Join(stateDir, name), owner.NoSandbox, -1, 0o007); err != nil {
			return leftOpen(err)
		}
	}
	for _, r := range roots {
		if err := closeOne(filepath.Join(stateDir, r.name), -1, owner.NoSandbox, r.bits); err != nil {
			return leftOpen(err)
		}
	}
	return nil
}

// leftOpen is nil where the filesystem or the user namespace has no such owners.
func leftOpen(err error) error {
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.EOVERFLOW) {
		return nil
	}
	return fmt.Errorf("close the state directory to sandboxes: %w", err)
}

// closeOne changes what is root's, takes bits from its mode, and leaves the other bits: where a
// list of access is, those of the group are its mask. What somebody gave to a group stays so.
func closeOne(path string, uid, gid int, bits uint32) error {
	var st unix.Stat_t
	switch err := unix.Lstat(path, &st); {
	case err == unix.ENOENT:
		return nil
	case err != nil:
		return &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if kind := st.Mode & unix.S_IFMT; kind != unix.S_IFDIR && kind != unix.S_IFREG {
		return nil // a link to elsewhere
	}
	if uid >= 0 && st.Uid != 0 && st.Uid != owner.NoSandbox || gid >= 0 && st.Gid != 0 && st.Gid != owner.NoSandbox {
		return nil
	}
	if err := os.Lchown(path, uid, gid); err != nil {
		return err
	}
	return os.Chmod(path, fs.FileMode(st.Mode&0o777&^bits))
}

// mayClose reports whether this process has the powers.
func mayClose() bool {
	var data [2]unix.CapUserData
	err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &data[0])
	return err == nil && data[0].Effective&powers == powers
}
