package parts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tend-run/tend/internal/lib/atomicfile"
)

// maxSettings bounds the file of settingsName in bytes: /init takes 4 MiB.
const maxSettings = 16 << 20

// settingsName is the file that keeps what envd's /init set, below the state directory. Its
// directory is closed to sandboxes (package daemon). formerSettings is where it was before: in the
// state directory itself, whose second path may be seen in a sandbox. Older servers look there, and
// find a link.
const (
	settingsName   = "envd/settings.json"
	formerSettings = "envd-settings.json"
)

// settingsFile implements envd.Store: it keeps the settings over a restart of
// the server. They hold a secret, so only the server's user may read them.
type settingsFile struct{ path, former string }

func settingsIn(stateDir string) settingsFile {
	return settingsFile{filepath.Join(stateDir, settingsName), filepath.Join(stateDir, formerSettings)}
}

// Load implements envd.Store.
func (f settingsFile) Load() ([]byte, error) {
	if info, err := os.Lstat(f.former); err == nil && info.Mode().IsRegular() { // an older server has written it
		if err := errors.Join(os.MkdirAll(filepath.Dir(f.path), 0o700), os.Rename(f.former, f.path)); err != nil {
			return nil, err
		}
		f.link()
	}
	data, err := atomicfile.Read(f.path, maxSettings)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// Save implements envd.Store. The file is replaced as a whole.
func (f settingsFile) Save(data []byte) error {
	err := os.MkdirAll(filepath.Dir(f.path), 0o700)
	if err == nil {
		err = atomicfile.Synced(f.path, data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", f.path, err)
	}
	f.link()
	return nil
}

// link leads older servers to the file. Without it these know no settings, and nothing else is lost.
func (f settingsFile) link() { _ = os.Symlink(settingsName, f.former) }
