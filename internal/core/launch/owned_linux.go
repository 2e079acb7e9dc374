package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/tend-run/tend/internal/lib/owner"
)

// Owned reports why a state directory must not be trusted: it, or its content, belongs
// to another user, or others can write to it. A user who can write there has the rights
// of all users whose processes run from there. A directory that does not exist is
// trusted. For root, all that is above it must be root's, too: whoever owns that puts another
// directory in its place.
func Owned(stateDir string) error {
	if os.Geteuid() == 0 {
		if err := owner.CheckOwners(stateDir, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("state directory %s: %w, or choose another with --state-dir", stateDir, err)
		}
	}
	for _, path := range []string{stateDir, filepath.Join(stateDir, "run"), filepath.Join(stateDir, "spool")} {
		fi, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("state directory: %w (choose another with --state-dir)", err)
		}
		st, ok := fi.Sys().(*syscall.Stat_t)
		if !ok {
			return fmt.Errorf("the owner of %s is not known (choose another with --state-dir)", path)
		}
		me := uint32(os.Geteuid())
		if st.Uid != me && st.Uid != 0 {
			return fmt.Errorf("state directory: %s belongs to uid %d, and tend runs as uid %d: give it to uid %d (chown -R %d %s), after a look at what is in it, or choose another with --state-dir", path, st.Uid, me, me, me, stateDir)
		}
		if fi.Mode().Perm()&0o022 != 0 {
			return fmt.Errorf("state directory: others can write to %s (mode %04o): take that from them (chmod go-w %s), after a look at what is in it, or choose another with --state-dir", path, fi.Mode().Perm(), path)
		}
	}
	return nil
}
