package confine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/tend-run/tend/internal/lib/atomicfile"
)

// Bounds of what is collected of one command.
const (
	MaxChanges      = 2000     // files and directories
	MaxChangedBytes = 32 << 20 // of all files together
	maxEncoded      = 2*MaxChangedBytes + MaxChanges*8192
)

// Changed says what happened to a path.
type Changed string

// What may have become of one.
const (
	// Gone: it was removed with its content. If something replaced it, that follows.
	Gone Changed = "gone"
	// File is a file that is new, or whose content or mode changed.
	File Changed = "file"
	// Directory is a new directory.
	Directory Changed = "directory"
	// Other is a link, or another kind of file that is not collected.
	Other Changed = "other"
)

// Change is a change of a command to a path.
type Change struct {
	// Path is below the root, with slashes; any bytes.
	Path []byte      `json:"path"`
	Kind Changed     `json:"kind"`
	Mode fs.FileMode `json:"mode,omitempty"` // permissions of a file
	Data []byte      `json:"data,omitempty"` // of a file
}

// collected is the file of changes.
type collected struct {
	Changes []Change `json:"changes"`
	// Over names the exceeded bound. Then there are no changes.
	Over string `json:"over,omitempty"`
}

// ErrKilled is the error of Read if the command did not end normally.
var ErrKilled = errors.New("the command was killed, and nothing of what it has changed is known")

// OverError: a command changed more than can be collected.
type OverError struct{ What string }

func (e *OverError) Error() string { return "it has changed more than " + e.What }

// Read returns the changes in the file of a command. A directory comes before its entries.
func Read(file string) ([]Change, error) {
	data, err := Encoded(file)
	if err != nil {
		return nil, err
	}
	return Decode(data)
}

// Encoded returns the file of changes of a command as it is, for [Decode].
func Encoded(file string) ([]byte, error) { return atomicfile.Read(file, maxEncoded) }

// Decode returns the changes in a file of changes.
func Decode(data []byte) ([]Change, error) {
	if len(data) == 0 {
		return nil, ErrKilled
	}
	var c collected
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, fmt.Errorf("what a command has changed: %w", err)
	}
	if c.Over != "" {
		return nil, &OverError{c.Over}
	}
	for _, one := range c.Changes {
		if !filepath.IsLocal(string(one.Path)) || len(one.Path) == 1 && one.Path[0] == '.' {
			return nil, fmt.Errorf("what a command has changed: %q is no path below the root", one.Path)
		}
	}
	return c.Changes, nil
}
