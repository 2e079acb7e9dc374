// Package payload carries the small binary of the roles inside tend, so that
// one file is the whole program. `make build` puts tend-keeper here before it
// builds tend; a tend built without it looks for tend-keeper beside itself.
package payload

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
)

//go:embed all:*
var files embed.FS

// Name of the binary.
const Name = "tend-keeper"

// Open returns an executable file that holds the binary.
func Open() (*os.File, error) {
	if f, err := files.Open(Name); err == nil {
		defer f.Close()
		return inMemory(f)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	f, err := os.Open(filepath.Join(filepath.Dir(self), Name))
	if err != nil {
		return nil, fmt.Errorf("this tend was built without %s, and there is none beside it; build with `make build`: %w", Name, err)
	}
	return f, nil
}

// Bytes returns the binary, for an upgrade.
func Bytes() ([]byte, error) {
	if b, err := files.ReadFile(Name); err == nil {
		return b, nil
	}
	f, err := Open()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return os.ReadFile(f.Name())
}
