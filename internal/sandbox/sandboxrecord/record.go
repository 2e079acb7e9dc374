package sandboxrecord

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"time"

	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/internal/sandbox/driver"
)

// RecordName is the file in a sandbox's directory that holds its record.
const RecordName = "box.json"

// Record is what every driver keeps of a sandbox. The JSON names are the format on
// disk.
type Record struct {
	ID              driver.ID         `json:"id"`
	Name            string            `json:"name"`
	User            string            `json:"user,omitempty"`
	Dir             string            `json:"dir,omitempty"`
	Env             map[string]string `json:"env,omitempty"`
	OverEnv         map[string]string `json:"over_env,omitempty"` // over Env
	Disposable      bool              `json:"disposable,omitempty"`
	IdleTTL         time.Duration     `json:"idle_ttl,omitempty"`
	DeleteAfterStop time.Duration     `json:"delete_after_stop,omitempty"`
	Deadline        time.Time         `json:"deadline,omitzero"`
	PauseAtDeadline bool              `json:"pause_at_deadline,omitempty"`
	FilesAlone      bool              `json:"files_alone,omitempty"` // of that pause
	Wake            bool              `json:"wake,omitempty"`
	E2BTemplate     string            `json:"e2b_template,omitempty"`
	Metadata        map[string]string `json:"metadata,omitempty"`
	Notes           map[string]string `json:"notes,omitempty"`
	Public          bool              `json:"public,omitempty"` // Network.Public
	Created         time.Time         `json:"created"`
	Updated         time.Time         `json:"updated"`
	StoppedAt       time.Time         `json:"stopped_at,omitzero"`
	// Destroying: the destruction has begun and must come to its end.
	Destroying bool `json:"destroying,omitempty"`
}

// NewRecord returns the record of a new sandbox. One without a name is called after its ID.
func NewRecord(id driver.ID, spec *driver.Spec) Record {
	name := spec.Name
	if name == "" {
		name = "box-" + string(id[:8])
	}
	now := time.Now().UTC()
	return Record{
		ID: id, Name: name, User: spec.Run.User, Dir: spec.Run.Dir, Env: spec.Run.Env, OverEnv: spec.Env, Disposable: spec.Disposable,
		IdleTTL: spec.IdleTTL, DeleteAfterStop: spec.DeleteAfterStop, Deadline: spec.Deadline,
		PauseAtDeadline: spec.AtDeadline == driver.ActionPause,
		FilesAlone:      spec.FilesAlone, Wake: spec.Wake, E2BTemplate: spec.E2BTemplate, Metadata: spec.Metadata,
		Notes: spec.Notes, Public: spec.Network.Public, Created: now, Updated: now,
	}
}

// texts is the size of what the record has of its creator's texts, in bytes.
func (r *Record) texts() (n int) {
	for _, m := range []map[string]string{r.Env, r.OverEnv, r.Metadata} {
		for k, v := range m {
			n += len(k) + len(v)
		}
	}
	return n
}

// Info is what the record says; State is Ready or Stopped.
func (r *Record) Info() driver.Info {
	info := driver.Info{
		ID: r.ID, Name: r.Name, State: driver.Ready,
		Run: driver.RunConfig{User: r.User, Dir: r.Dir, Env: maps.Clone(r.Env)},
		Env: maps.Clone(r.OverEnv), Disposable: r.Disposable,
		IdleTTL: r.IdleTTL, DeleteAfterStop: r.DeleteAfterStop, Deadline: r.Deadline, FilesAlone: r.FilesAlone, Wake: r.Wake,
		Network: driver.Network{Public: r.Public}, E2BTemplate: r.E2BTemplate,
		Created: r.Created, Updated: r.Updated, StoppedAt: r.StoppedAt,
		Metadata: maps.Clone(r.Metadata), Notes: maps.Clone(r.Notes),
	}
	if r.PauseAtDeadline {
		info.AtDeadline = driver.ActionPause
	}
	if !r.StoppedAt.IsZero() {
		info.State = driver.Stopped
	}
	return info
}

// Apply applies a change, except the name. The new record shares no memory with the old
// one.
func (r *Record) Apply(c *driver.Change) {
	if c.IdleTTL != nil {
		r.IdleTTL = *c.IdleTTL
	}
	if c.DeleteAfterStop != nil {
		r.DeleteAfterStop = *c.DeleteAfterStop
	}
	switch {
	case c.Deadline != nil:
		r.Deadline = *c.Deadline
	case c.Extend != nil && !r.Deadline.IsZero() && c.Extend.After(r.Deadline):
		r.Deadline = *c.Extend
	}
	if c.AtDeadline != nil {
		r.PauseAtDeadline = *c.AtDeadline == driver.ActionPause
	}
	if c.Network != nil {
		r.Public = c.Network.Public
	}
	r.Metadata = merge(r.Metadata, c.Metadata)
	if len(c.Notes) > 0 {
		r.Notes = merge(r.Notes, c.Notes)
		maps.DeleteFunc(r.Notes, func(_, v string) bool { return v == "" })
	}
	if c.Run == nil {
		return
	}
	if c.Run.User != "" {
		r.User = c.Run.User
	}
	if c.Run.Dir != "" {
		r.Dir = c.Run.Dir
	}
	r.Env = merge(r.Env, c.Run.Env)
}

// merge returns old with the entries of change.
func merge(old, change map[string]string) map[string]string {
	if len(change) == 0 {
		return old
	}
	merged := make(map[string]string, len(old)+len(change))
	maps.Copy(merged, old)
	maps.Copy(merged, change)
	return merged
}

// Started records a start: a deadline that has passed is removed.
func (r *Record) Started() {
	r.StoppedAt = time.Time{}
	if !r.Deadline.After(time.Now()) {
		r.Deadline = time.Time{}
	}
}

// Told is what programs of the sandbox are told of it.
func (r *Record) Told() map[string]string { return driver.Told(r.ID, r.E2BTemplate) }

// Environ is the environment of a process that brings env.
func (r *Record) Environ(env map[string]string) map[string]string {
	return merge(merge(merge(r.Told(), r.Env), r.OverEnv), env)
}

// Due returns the due action for a sandbox that is ready or stopped, according to its
// record.
func (r *Record) Due(now time.Time) Due {
	switch {
	case r.Destroying:
		return DueDestroy
	case !r.StoppedAt.IsZero() && r.DeleteAfterStop > 0 && now.Sub(r.StoppedAt) >= r.DeleteAfterStop:
		return DueDestroy
	case r.Ends().IsZero() || now.Before(r.Deadline):
		return DueNothing
	case r.PauseAtDeadline:
		return DuePause
	}
	return DueDestroy
}

// Ends is when its deadline ends or pauses it; zero: that does nothing. A sandbox that is
// stopped, by somebody or with its daemon, is destroyed at its deadline all the same.
func (r *Record) Ends() time.Time {
	if !r.StoppedAt.IsZero() && r.PauseAtDeadline {
		return time.Time{}
	}
	return r.Deadline
}

// Due is a due action.
type Due uint8

const (
	DueNothing Due = iota
	DuePause
	DueDestroy
)

// Read reads the record of the sandbox in dir into rec, which has a Record in it.
func Read(dir string, rec any) error {
	b, err := atomicfile.Read(filepath.Join(dir, RecordName), 16<<20)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, rec); err != nil {
		return fmt.Errorf("%s: %w", RecordName, err)
	}
	return nil
}

// Write replaces the record of the sandbox in dir as a whole. synced: it is on the
// disk when Write returns, also if the machine loses power then.
func Write(dir string, rec any, synced bool) error {
	b, err := json.MarshalIndent(rec, "", "  ")
	if err != nil {
		return err
	}
	write := atomicfile.File
	if synced {
		write = atomicfile.Synced
	}
	if err := write(filepath.Join(dir, RecordName), append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("record of sandbox %s: %w", filepath.Base(dir), err)
	}
	return nil
}
