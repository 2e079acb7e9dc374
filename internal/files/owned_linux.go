package files

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/eintr"
)

// ownGroup gives the user's group to a directory that was just made: in one with the
// setgid bit it has that one's. Another directory that has its name meanwhile, if it is
// not the user's, stays as it is.
func (a *Actor) ownGroup(parent *handle, name string) error {
	return control(parent.file, func(dir int) error {
		how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_XDEV}
		fd, err := eintr.Get(func() (int, error) { return unix.Openat2(dir, name, &how) })
		if err != nil {
			return ignoreGone(err)
		}
		defer unix.Close(fd)
		var st unix.Stat_t
		if err := eintr.Do(func() error { return unix.Fstat(fd, &st) }); err != nil {
			return err
		}
		if int(st.Uid) != a.outside.UID || int(st.Gid) == a.outside.GID {
			return nil
		}
		err = eintr.Do(func() error { return unix.Fchownat(fd, "", -1, a.outside.GID, unix.AT_EMPTY_PATH) })
		if errors.Is(err, unix.EPERM) { // of a file system that is not the sandbox's own
			return nil
		}
		return err
	})
}
