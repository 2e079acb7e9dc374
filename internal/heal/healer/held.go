package healer

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"path/filepath"

	"github.com/tend-run/tend/internal/lib/atomicfile"
)

// Held is a change by a model that waits for a person, in the HeldFile of its episode.
type Held struct {
	// Hash is that of Set. A person names it, and so nothing is applied that nobody has looked at.
	Hash string `json:"hash"`
	Why  string `json:"why"` // it waits
	Text string `json:"text,omitempty"`
	Diff string `json:"diff,omitempty"` // for people, with secrets hidden
	// Set is what is applied, as the worker has it.
	Set json.RawMessage `json:"set"`
}

// HashOf is the hash of what is applied.
func HashOf(set []byte) string {
	s := sha256.Sum256(set)
	return hex.EncodeToString(s[:])[:20]
}

// maxHeld bounds the file: 32 MiB of changes, as text.
const maxHeld = 64 << 20

// ReadHeld reads what is held of the episode in a directory; fs.ErrNotExist: nothing is.
func ReadHeld(dir string) (*Held, error) {
	data, err := atomicfile.Read(filepath.Join(dir, HeldFile), maxHeld)
	if err != nil {
		return nil, err
	}
	h := new(Held)
	return h, json.Unmarshal(data, h)
}

// Write writes it for the episode in a directory.
func (h *Held) Write(dir string) error {
	data, err := json.Marshal(h)
	if err != nil {
		return err
	}
	return atomicfile.Synced(filepath.Join(dir, HeldFile), data, 0o600)
}
