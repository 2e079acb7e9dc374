// Package embedded carries the small binary of the roles inside tend, so that
// one file is the whole program. `make build` puts tend-keeper here before it
// builds tend, packed by cmd/tend-keeper/pack. A tend built without it looks for
// tend-keeper beside itself; if there is none, as after `go install` or `go run`, tend
// plays the roles itself: the same promises, with three times the memory for the roles.
package embedded

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/pierrec/lz4/v4"
)

//go:embed *.*
var files embed.FS

// Name of the binary. A program started under this name is a role.
const Name = "tend-keeper"

const packed = Name + ".lz4"

// Open returns an executable file that plays the roles if it is started under
// the name Name.
func Open() (*os.File, error) {
	if f, err := files.Open(packed); err == nil {
		defer f.Close()
		return inMemory(lz4.NewReader(f))
	}
	if self, err := os.Executable(); err == nil {
		f, err := os.Open(filepath.Join(filepath.Dir(self), Name))
		if !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
	}
	f, err := os.Open("/proc/self/exe") // also when its file was replaced or removed
	if err != nil {
		return nil, fmt.Errorf("open the running program: %w", err)
	}
	return f, nil
}

// Carried returns the small binary; nil: this tend was built without it.
func Carried() ([]byte, error) {
	f, err := files.Open(packed)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(lz4.NewReader(f))
}

// Bytes returns the binary, for an upgrade.
func Bytes() ([]byte, error) {
	if f, err := files.Open(packed); err == nil {
		defer f.Close()
		return io.ReadAll(lz4.NewReader(f))
	}
	f, err := Open()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}
