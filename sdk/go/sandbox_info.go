package tend

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/tendpb"
	"github.com/tend-run/tend/process"
)

// SandboxSpec describes a sandbox to create. The zero value has all defaults.
type SandboxSpec struct {
	// Name is unique on the server: 1 to 128 letters, digits, '.', '_' or '-', the first a
	// letter or digit, and not of the form of an ID. Empty: the server generates one.
	Name string
	// Snapshot, Template or Image whose files it starts with; one of them at most. An image
	// is named by its ID or a name, such as "python:3".
	Snapshot, Template, Image string
	Isolation                 SandboxIsolation
	// User, Dir and Env are the defaults for commands. Dir is absolute.
	User, Dir string
	Env       map[string]string
	// Disposable: Stop removes the files.
	Disposable bool
	// IdleTTL stops the sandbox when nobody has used it and no process ran for this
	// long; DeleteAfterStop destroys it this long after it was stopped. 0: never.
	IdleTTL, DeleteAfterStop time.Duration
	// Timeout from now until the sandbox is destroyed, or paused with PauseAtTimeout.
	// 0: never.
	Timeout        time.Duration
	PauseAtTimeout bool
	// Wake: traffic for it resumes it while it is paused.
	Wake    bool
	Size    SandboxSize
	Network SandboxNetwork
	Shares  []SandboxShare
	// Metadata is kept for the caller: 64 entries of at most 64 KiB.
	Metadata map[string]string
}

// SandboxIsolation from the server's machine.
type SandboxIsolation uint8

const (
	IsolationDefault SandboxIsolation = iota // the server's
	IsolationNone                            // programs see the machine itself
	IsolationFull                            // all layers that the server has
)

func (i SandboxIsolation) String() string { return word("unknown", i, "default", "none", "full") }

// SandboxState is what a sandbox is doing.
type SandboxState uint8

const (
	SandboxStarting SandboxState = iota
	SandboxReady
	SandboxStopped
	SandboxFailed
	SandboxPaused
)

func (s SandboxState) String() string {
	return word("unknown", s, "starting", "ready", "stopped", "failed", "paused")
}

// NetworkMode is what programs in a sandbox can reach.
type NetworkMode uint8

const (
	NetworkDefault NetworkMode = iota // the server's
	NetworkNone                       // only each other
	NetworkHost                       // the machine, and everything that it reaches
	NetworkOwn                        // addresses that Allow and Deny permit; never the machine
)

func (m NetworkMode) String() string { return word("unknown", m, "default", "none", "host", "own") }

// word names a value; one of a later version is kind(NUMBER).
func word[T ~uint8](kind string, v T, words ...string) string {
	if int(v) < len(words) {
		return words[v]
	}
	return fmt.Sprintf("%s(%d)", kind, uint8(v))
}

// SandboxSize is what a sandbox may use; 0 is no limit.
type SandboxSize struct {
	CPUs         float64
	Memory, Disk int64 // bytes
	Tasks        int64 // processes and threads together
}

// SandboxNetwork of a sandbox.
type SandboxNetwork struct {
	Mode NetworkMode
	// Allow and Deny are for outgoing connections of NetworkOwn: host names, "*." and a
	// domain, addresses or CIDRs, each with ":port" or without. A destination that neither
	// names is allowed if Allow is empty.
	Allow, Deny []string
	// Public: ports inside are served without a token of the sandbox.
	Public bool
}

// SandboxShare is a directory of the server's machine that is visible inside.
type SandboxShare struct {
	Source, Target string // absolute; Target "": the Source
	ReadOnly       bool
	// Copy: programs inside may change it, and Source stays as it is: what they change is the
	// sandbox's alone, and Files.Changes tells it.
	Copy bool
}

// SandboxInfo is the state of a sandbox at one moment.
type SandboxInfo struct {
	ID, Name string
	State    SandboxState
	Reason   string // of SandboxFailed
	User     string
	// Dir is the working directory of commands that name none.
	Dir                      string
	Env                      map[string]string
	Disposable               bool
	Snapshot, Template       string
	Image                    string           // its ID
	Isolation                SandboxIsolation // never IsolationDefault
	IdleTTL, DeleteAfterStop time.Duration
	Deadline                 time.Time // zero: none
	PauseAtTimeout           bool
	Wake                     bool
	Size                     SandboxSize // as it is enforced
	Network                  SandboxNetwork
	Shares                   []SandboxShare
	Metadata                 map[string]string
	Created, Updated         time.Time
	Stopped, Paused          time.Time // zero unless it is
	// Copied of ToCopy bytes of its files are there while they are copied, for a snapshot or a fork. Both are
	// 0 while none are: where nothing runs in it they are moved. ToCopy is an estimate; 0: not known yet.
	Copied, ToCopy int64
}

// SandboxChange says what to change; nil or empty fields change nothing.
type SandboxChange struct {
	Name                     *string
	IdleTTL, DeleteAfterStop *time.Duration
	// Timeout from now replaces the deadline; 0 removes it. Extend moves it only to a
	// later time. One of them at most.
	Timeout, Extend *time.Duration
	PauseAtTimeout  *bool
	Network         *SandboxNetwork
	User, Dir       string
	Env, Metadata   map[string]string // entries are added
}

// SandboxFilter says which sandboxes to list. The zero value is all.
type SandboxFilter struct {
	States   []SandboxState    // one of these; none: any
	Metadata map[string]string // all of these entries
}

// SandboxSnapshot is a saved copy of a sandbox's files.
type SandboxSnapshot struct {
	ID, Name string
	State    SandboxState
	Reason   string // of SandboxFailed
	Sandbox  string // ID of what it was made of
	Bytes    int64
	Created  time.Time
}

// SandboxMetric is one sample. A total is what the sandbox may use: its limit, or the
// machine's total.
type SandboxMetric struct {
	Time                        time.Time
	CPUs                        float64 // that it may use
	CPUPercent                  float64 // used; 100 is one CPU
	MemUsed, MemCache, MemTotal int64   // bytes
	DiskUsed, DiskTotal         int64   // bytes
	Tasks                       int64   // processes and threads
	OOMKills                    int64   // since the start
}

// sendable reports text that a message cannot hold.
func sendable(field string, m proto.Message) error {
	if _, err := proto.Marshal(m); err != nil {
		return &process.InvalidError{Field: field, Reason: "has text that is not valid UTF-8"}
	}
	return nil
}

func action(pause bool) tendv1.SandboxAction {
	if pause {
		return tendv1.SandboxAction_SANDBOX_ACTION_PAUSE
	}
	return tendv1.SandboxAction_SANDBOX_ACTION_DESTROY
}

func (s SandboxSize) message() *tendv1.SandboxSize {
	return &tendv1.SandboxSize{Cpus: s.CPUs, Memory: s.Memory, Disk: s.Disk, Tasks: s.Tasks}
}

func toSize(m *tendv1.SandboxSize) SandboxSize {
	return SandboxSize{m.GetCpus(), m.GetMemory(), m.GetDisk(), m.GetTasks()}
}

func (n *SandboxNetwork) message() *tendv1.SandboxNetwork {
	return &tendv1.SandboxNetwork{Mode: tendv1.SandboxNetworkMode(n.Mode), Allow: n.Allow, Deny: n.Deny, Public: n.Public}
}

func (s *SandboxSpec) message() *tendv1.SandboxSpec {
	m := &tendv1.SandboxSpec{
		Name: s.Name, Snapshot: s.Snapshot, Template: s.Template, Image: s.Image,
		Isolation: tendv1.SandboxIsolation(s.Isolation),
		Run:       &tendv1.SandboxRun{User: s.User, Dir: s.Dir, Env: s.Env}, Disposable: s.Disposable,
		IdleTtl: durationpb.New(s.IdleTTL), DeleteAfterStop: durationpb.New(s.DeleteAfterStop), Timeout: durationpb.New(s.Timeout),
		AtTimeout: action(s.PauseAtTimeout), Wake: s.Wake,
		Size: s.Size.message(), Network: s.Network.message(), Metadata: s.Metadata,
	}
	for _, v := range s.Shares {
		m.Shares = append(m.Shares, &tendv1.SandboxShare{Source: v.Source, Target: v.Target, ReadOnly: v.ReadOnly, Copy: v.Copy})
	}
	return m
}

func (c *SandboxChange) message(id string) *tendv1.UpdateSandboxRequest {
	m := &tendv1.UpdateSandboxRequest{Sandbox: id, Name: c.Name, Metadata: c.Metadata}
	for _, v := range []struct {
		d  *time.Duration
		to **durationpb.Duration
	}{{c.IdleTTL, &m.IdleTtl}, {c.DeleteAfterStop, &m.DeleteAfterStop}, {c.Timeout, &m.Timeout}, {c.Extend, &m.Extend}} {
		if v.d != nil {
			*v.to = durationpb.New(*v.d)
		}
	}
	if c.PauseAtTimeout != nil {
		m.AtTimeout = action(*c.PauseAtTimeout).Enum()
	}
	if c.Network != nil {
		m.Network = c.Network.message()
	}
	if c.User != "" || c.Dir != "" || len(c.Env) > 0 {
		m.Run = &tendv1.SandboxRun{User: c.User, Dir: c.Dir, Env: c.Env}
	}
	return m
}

// toSandboxInfo reads what the server reports. Its ID becomes a header.
func toSandboxInfo(m *tendv1.Sandbox) (SandboxInfo, error) {
	if err := process.ID(m.GetId()).Validate(); err != nil {
		return SandboxInfo{}, strange("a sandbox whose %v", err)
	}
	n := m.GetNetwork()
	i := SandboxInfo{
		ID: m.GetId(), Name: tendpb.CleanName(m.GetName()), State: SandboxState(m.GetState()), Reason: tendpb.CleanText(m.GetReason()),
		User: tendpb.CleanName(m.GetRun().GetUser()), Dir: m.GetDir(), Env: m.GetRun().GetEnv(), Disposable: m.GetDisposable(),
		Snapshot: tendpb.CleanName(m.GetSnapshot()), Template: tendpb.CleanName(m.GetTemplate()), Image: tendpb.CleanName(m.GetImage()),
		Isolation: SandboxIsolation(m.GetIsolation()),
		IdleTTL:   m.GetIdleTtl().AsDuration(), DeleteAfterStop: m.GetDeleteAfterStop().AsDuration(), Deadline: tendpb.ToTime(m.GetDeadline()),
		PauseAtTimeout: m.GetAtTimeout() == tendv1.SandboxAction_SANDBOX_ACTION_PAUSE, Wake: m.GetWake(),
		Size:     toSize(m.GetSize()),
		Network:  SandboxNetwork{NetworkMode(n.GetMode()), n.GetAllow(), n.GetDeny(), n.GetPublic()},
		Metadata: m.GetMetadata(), Created: tendpb.ToTime(m.GetCreated()), Updated: tendpb.ToTime(m.GetUpdated()),
		Stopped: tendpb.ToTime(m.GetStopped()), Paused: tendpb.ToTime(m.GetPaused()), Copied: m.GetCopied(), ToCopy: m.GetToCopy(),
	}
	for _, v := range m.GetShares() {
		i.Shares = append(i.Shares, SandboxShare{v.GetSource(), v.GetTarget(), v.GetReadOnly(), v.GetCopy()})
	}
	return i, nil
}

func toMetric(m *tendv1.SandboxMetric) SandboxMetric {
	return SandboxMetric{
		Time: tendpb.ToTime(m.GetTime()), CPUs: m.GetCpus(), CPUPercent: m.GetCpuPercent(),
		MemUsed: m.GetMemUsed(), MemCache: m.GetMemCache(), MemTotal: m.GetMemTotal(),
		DiskUsed: m.GetDiskUsed(), DiskTotal: m.GetDiskTotal(), Tasks: m.GetTasks(), OOMKills: m.GetOomKills(),
	}
}

func toSnapshot(m *tendv1.SandboxSnapshot) SandboxSnapshot {
	return SandboxSnapshot{
		ID: tendpb.CleanName(m.GetId()), Name: tendpb.CleanName(m.GetName()), State: SandboxState(m.GetState()),
		Reason:  tendpb.CleanText(m.GetReason()),
		Sandbox: tendpb.CleanName(m.GetSandbox()), Bytes: m.GetBytes(), Created: tendpb.ToTime(m.GetCreated()),
	}
}
