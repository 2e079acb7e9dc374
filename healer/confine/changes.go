package confine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/tend-run/tend/internal/replace"
)

// Bounds of what is collected of one command.
const (
	MaxChanges      = 2000     // files and directories
	MaxChangedBytes = 32 << 20 // of all files together
	maxEncoded      = 2*MaxChangedBytes + MaxChanges*8192
)

// Changed is what has become of a path.
type Changed string

// What may have become of one.
const (
	// Gone: it was removed, with all that was in it. What was made in its place follows.
	Gone Changed = "gone"
	// File is one that is new or was changed, in its content or its mode.
	File Changed = "file"
	// Directory is one that is new.
	Directory Changed = "directory"
	// Other is a link, or something else that is not collected.
	Other Changed = "other"
)

// Change is what a command has done to a path.
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
	// Over says which bound was exceeded. There are no changes then.
	Over string `json:"over,omitempty"`
}

// ErrKilled is the error of Read where the command did not come to its end.
var ErrKilled = errors.New("the command was killed, and nothing of what it has changed is known")

// OverError says that a command has changed more than is collected.
type OverError struct{ What string }

func (e *OverError) Error() string { return "it has changed more than " + e.What }

// Read returns what is in the file of changes of a command. A directory comes before what is
// in it.
func Read(file string) ([]Change, error) {
	data, err := Encoded(file)
	if err != nil {
		return nil, err
	}
	return Decode(data)
}

// Encoded returns the file of changes of a command as it is, for [Decode].
func Encoded(file string) ([]byte, error) { return replace.Read(file, maxEncoded) }

// Decode returns what is in a file of changes.
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
