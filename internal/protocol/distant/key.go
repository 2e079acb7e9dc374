package distant

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/internal/protocol/distant/secure"
)

// keyName is the file with the key, in the directory of the sessions.
const keyName = "key"

// LoadKey returns the key that is kept in the directory, and makes one if there
// is none. The directory is made for its owner alone, and so is the file.
func LoadKey(dir string) (secure.Key, error) {
	path := filepath.Join(dir, keyName)
	text, err := atomicfile.Read(path, 1<<10)
	if errors.Is(err, fs.ErrNotExist) {
		var key secure.Key
		rand.Read(key[:]) // never fails
		return key, SaveKey(dir, key)
	}
	if err != nil {
		return secure.Key{}, fmt.Errorf("read the key: %w", err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return secure.Key{}, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return secure.Key{}, fmt.Errorf("the key in %s may be read by others (mode %v); remove the file, and a new key is made",
			path, info.Mode().Perm())
	}
	key, err := secure.ParseKey(strings.TrimSpace(string(text)))
	if err != nil {
		return secure.Key{}, fmt.Errorf("%s holds no key of 64 hexadecimal digits; remove the file, and a new one is made", path)
	}
	return key, nil
}

// SaveKey keeps a key in the directory.
func SaveKey(dir string, key secure.Key) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the directory of the key: %w", err)
	}
	if err := atomicfile.Synced(filepath.Join(dir, keyName), []byte(key.String()+"\n"), 0o600); err != nil {
		return fmt.Errorf("keep the key: %w", err)
	}
	return nil
}

// URI is what clients connect to. It holds the key: it is a secret.
func URI(a net.Addr, key secure.Key) string {
	return fmt.Sprintf("distant://:%s@%s", key, a)
}
