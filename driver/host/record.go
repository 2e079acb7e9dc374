package host

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"github.com/tend-run/tend/driver"
	"github.com/tend-run/tend/internal/replace"
)

const (
	recordName = "box.json"
	workName   = "work"
)

// record is what is kept of a sandbox. The JSON names are the format on disk.
type record struct {
	ID              driver.ID         `json:"id"`
	Name            string            `json:"name"`
	User            string            `json:"user,omitempty"`
	Dir             string            `json:"dir,omitempty"`
	Env             map[string]string `json:"env,omitempty"`
	OverEnv         map[string]string `json:"over_env,omitempty"` // over Env
	Disposable      bool              `json:"disposable,omitempty"`
	Work            string            `json:"work"`
	IdleTTL         time.Duration     `json:"idle_ttl,omitempty"`
	DeleteAfterStop time.Duration     `json:"delete_after_stop,omitempty"`
	Deadline        time.Time         `json:"deadline,omitzero"`
	PauseAtDeadline bool              `json:"pause_at_deadline,omitempty"`
	Wake            bool              `json:"wake,omitempty"`
	Metadata        map[string]string `json:"metadata,omitempty"`
	Notes           map[string]string `json:"notes,omitempty"`
	Public          bool              `json:"public,omitempty"` // Network.Public
	Created         time.Time         `json:"created"`
	Updated         time.Time         `json:"updated"`
	StoppedAt       time.Time         `json:"stopped_at,omitzero"`
	// Destroying: the destruction has begun and must come to its end.
	Destroying bool `json:"destroying,omitempty"`
}

func readRecord(dir string) (*record, error) {
	b, err := replace.Read(filepath.Join(dir, recordName), 16<<20)
	if err != nil {
		return nil, err
	}
	rec := new(record)
	if err := json.Unmarshal(b, rec); err != nil {
		return nil, fmt.Errorf("%s: %w", recordName, err)
	}
	return rec, nil
}

func (r *record) write(dir string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := replace.Synced(filepath.Join(dir, recordName), append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("record of sandbox %s: %w", r.ID, err)
	}
	return nil
}
