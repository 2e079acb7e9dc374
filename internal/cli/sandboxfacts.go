package cli

import (
	"cmp"
	"time"

	"github.com/tend-run/tend/sdk/go"
)

// The JSON of the verbs about sandboxes. It is API as that of facts.go is.

type sandboxFacts struct {
	ID             string              `json:"id"`
	Name           string              `json:"name"`
	State          string              `json:"state"`            // starting, ready, stopped, failed, paused
	Reason         string              `json:"reason,omitempty"` // of a failed one
	Isolation      string              `json:"isolation"`        // full, none
	Template       string              `json:"template"`
	Snapshot       string              `json:"snapshot"`
	Image          string              `json:"image"` // its ID
	User           string              `json:"user"`
	Cwd            string              `json:"cwd"`
	Disposable     bool                `json:"disposable"`
	Deadline       *time.Time          `json:"deadline"` // null: none
	OnTimeout      string              `json:"on_timeout"`
	IdleSeconds    float64             `json:"idle_seconds"`       // 0: never
	StoppedSeconds float64             `json:"rm_stopped_seconds"` // 0: never
	Wake           bool                `json:"wake"`
	Size           sandboxSizeFacts    `json:"size"`
	Network        sandboxNetworkFacts `json:"network"`
	Shares         []sandboxShareFacts `json:"shares"`
	Labels         map[string]string   `json:"labels"`
	Created        time.Time           `json:"created"`
	Updated        time.Time           `json:"updated"`
	Stopped        *time.Time          `json:"stopped"` // null unless it is
	Paused         *time.Time          `json:"paused"`  // null unless it is
}

// sandboxSizeFacts: 0 is no limit.
type sandboxSizeFacts struct {
	CPUs   float64 `json:"cpus"`
	Memory int64   `json:"memory"` // bytes
	Disk   int64   `json:"disk"`   // bytes
	Tasks  int64   `json:"tasks"`
}

type sandboxNetworkFacts struct {
	Mode   string   `json:"mode"`
	Allow  []string `json:"allow"`
	Deny   []string `json:"deny"`
	Public bool     `json:"public"`
}

type sandboxShareFacts struct {
	Source   string `json:"source"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"read_only"`
	Copy     bool   `json:"copy,omitempty"`
}

// sandboxInspectFacts has what may hold secrets, too.
type sandboxInspectFacts struct {
	sandboxFacts
	Env map[string]string `json:"env"`
}

type snapshotFacts struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	State   string    `json:"state"`
	Reason  string    `json:"reason,omitempty"`
	Sandbox string    `json:"sandbox"` // ID of what it was made of
	Bytes   int64     `json:"bytes"`
	Created time.Time `json:"created"`
}

type metricFacts struct {
	ID         string    `json:"id"`
	Name       string    `json:"name"`
	Time       time.Time `json:"time"`
	CPUs       float64   `json:"cpus"`        // that it may use
	CPUPercent float64   `json:"cpu_percent"` // 100 is one CPU
	MemUsed    int64     `json:"mem_used"`    // bytes, as all below
	MemCache   int64     `json:"mem_cache"`
	MemTotal   int64     `json:"mem_total"`
	DiskUsed   int64     `json:"disk_used"`
	DiskTotal  int64     `json:"disk_total"`
	Tasks      int64     `json:"tasks"`
	OOMKills   int64     `json:"oom_kills"`
}

func sandboxFactsOf(i *tend.SandboxInfo) sandboxFacts {
	f := sandboxFacts{
		ID: i.ID, Name: i.Name, State: i.State.String(), Reason: i.Reason, Isolation: i.Isolation.String(), Template: i.Template,
		Snapshot: i.Snapshot, Image: i.Image,
		User: i.User, Cwd: i.Dir, Disposable: i.Disposable, Deadline: timeOrNull(i.Deadline), OnTimeout: "rm",
		IdleSeconds: i.IdleTTL.Seconds(), StoppedSeconds: i.DeleteAfterStop.Seconds(), Wake: i.Wake,
		Size:    sandboxSizeFacts(i.Size),
		Network: sandboxNetworkFacts{i.Network.Mode.String(), notNull(i.Network.Allow), notNull(i.Network.Deny), i.Network.Public},
		Shares:  mapped(i.Shares, func(s *tend.SandboxShare) sandboxShareFacts { return sandboxShareFacts(*s) }),
		Labels:  noNull(i.Metadata), Created: i.Created.UTC(), Updated: i.Updated.UTC(),
		Stopped: timeOrNull(i.Stopped), Paused: timeOrNull(i.Paused),
	}
	if i.PauseAtTimeout {
		f.OnTimeout = "pause"
	}
	return f
}

func snapshotFactsOf(s *tend.SandboxSnapshot) snapshotFacts {
	return snapshotFacts{ID: s.ID, Name: s.Name, State: s.State.String(), Reason: s.Reason, Sandbox: s.Sandbox, Bytes: s.Bytes,
		Created: s.Created.UTC()}
}

func timeOrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// noNull is notNull for a map.
func noNull(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

func notNull(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

// nameOfSandbox is how people call a sandbox.
func nameOfSandbox(i *tend.SandboxInfo) string { return cmp.Or(i.Name, i.ID) }
