//go:build linux

package keeper

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/support/proctest"
)

// A keeper starts whatever lies where its identity should, and a later one comes
// to the same identity.
func TestAnIdentityThatIsNoFileIsMadeAnew(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"fifo": func(path string) error { return unix.Mkfifo(path, 0o600) },
		"link": func(path string) error { return os.Symlink("/dev/zero", path) },
		"hole": func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<40))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			proctest.Must(t, put(filepath.Join(dir, identityName)))
			id, err := openIdentity(dir, false)
			if err != nil || id.number == 0 {
				t.Fatalf("%+v, %v", id, err)
			}
			if again, err := openIdentity(dir, true); err != nil || again != id {
				t.Errorf("%+v, %v; want %+v again", again, err, id)
			}
		})
	}
}
