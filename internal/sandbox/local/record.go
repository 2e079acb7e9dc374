package local

import (
	"slices"
	"time"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/layer"
	"github.com/tend-run/tend/internal/sandbox/sandboxrecord"
)

// record is what is kept of a sandbox. The JSON names are the format on disk.
type record struct {
	sandboxrecord.Record
	// Home of the sandbox's user, if Dir is empty.
	Home     string      `json:"home"`
	Size     driver.Size `json:"size,omitzero"`     // as asked for
	Enforced driver.Size `json:"enforced,omitzero"` // of the container that was made last
	// Disk is the size of the sandbox's own disk, in bytes; 0: it writes to the machine's
	// disk without a limit. It never changes.
	Disk       int64              `json:"disk,omitempty"`
	Network    driver.NetworkMode `json:"network"`
	Allow      []string           `json:"allow,omitempty"` // of Network, as Deny is
	Deny       []string           `json:"deny,omitempty"`
	Shares     []driver.Share     `json:"shares,omitempty"`
	Volumes    []mounted          `json:"volumes,omitempty"`
	Snapshot   string             `json:"snapshot,omitempty"`
	Template   string             `json:"template,omitempty"`
	TemplateID string             `json:"template_id,omitempty"`
	Image      string             `json:"image,omitempty"` // its ID
	// Layer is the topmost layer, which may have been sealed since the creation; Origin is
	// the one that it was created from.
	Layer  layer.ID `json:"layer,omitempty"`
	Origin layer.ID `json:"origin,omitempty"`
	// StartCommand runs whenever the sandbox starts, and it is ready when
	// ReadyCommand ends with 0: those of its template.
	StartCommand string `json:"start_command,omitempty"`
	ReadyCommand string `json:"ready_command,omitempty"`
	// Build: it is the sandbox of a build, which is in no list.
	Build driver.BuildID `json:"build,omitempty"`
	// UIDBase is the outer id of root inside, the first of the sandbox's range (ids.go); 0: the daemon's own.
	UIDBase uint32 `json:"uid_base,omitempty"`
	// Way in which its first container was made, in a line.
	Way      string    `json:"way,omitempty"`
	PausedAt time.Time `json:"paused_at,omitzero"`
	// Memory: while it is paused, its container is frozen; without it, it has no container then.
	Memory bool `json:"memory,omitempty"`
	// Boot in which the container was created.
	Boot string `json:"boot,omitempty"`
	// Reason why it is stopped, if that was not requested.
	Reason string `json:"reason,omitempty"`
}

// live reports whether there has to be a container.
func (r *record) live() bool {
	return !r.Destroying && r.StoppedAt.IsZero() && (r.PausedAt.IsZero() || r.Memory)
}

func (r *record) info() driver.Info {
	info := r.Record.Info()
	info.Dir = r.Home
	info.Isolation = driver.IsolationFull
	info.Network.Mode, info.Network.Allow, info.Network.Deny = r.Network, slices.Clone(r.Allow), slices.Clone(r.Deny)
	info.Size, info.Shares = r.size(), slices.Clone(r.Shares)
	info.Volumes = r.volumeMounts()
	info.Snapshot, info.Template, info.TemplateID = r.Snapshot, r.Template, r.TemplateID
	info.Image = r.Image
	info.PausedAt, info.Reason = r.PausedAt, r.Reason
	if !r.PausedAt.IsZero() {
		info.State = driver.Paused
	}
	return info
}

// size is what is enforced. A server of before kept it as what was asked for.
func (r *record) size() driver.Size {
	if r.Enforced != (driver.Size{}) {
		return r.Enforced
	}
	size := r.Size
	size.Disk = r.Disk
	return size
}

// ready notes that the sandbox runs again.
func (r *record) ready() {
	r.Started()
	r.PausedAt, r.Memory, r.Reason = time.Time{}, false, ""
}

// stopped notes that nothing runs any more.
func (r *record) stopped(reason string) {
	r.PausedAt, r.Memory, r.Reason = time.Time{}, false, reason
	if r.StoppedAt.IsZero() {
		r.StoppedAt = time.Now().UTC()
	}
}
