package parts

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/tend-run/tend/internal/lib/atomicfile"
)

// maxSettings bounds the file of settingsName in bytes: /init takes 4 MiB.
const maxSettings = 16 << 20

// settingsName is the file in the state directory that keeps what envd's
// /init set.
const settingsName = "envd-settings.json"

// settingsFile implements envd.Store: it keeps the settings over a restart of
// the server. They hold a secret, so only the server's user may read them.
type settingsFile struct{ path string }

func settingsIn(stateDir string) settingsFile {
	return settingsFile{filepath.Join(stateDir, settingsName)}
}

// Load implements envd.Store.
func (f settingsFile) Load() ([]byte, error) {
	data, err := atomicfile.Read(f.path, maxSettings)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// Save implements envd.Store. The file is replaced as a whole.
func (f settingsFile) Save(data []byte) error {
	if err := atomicfile.Synced(f.path, data, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", f.path, err)
	}
	return nil
}
