package langsmith

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/sandbox/driver"
)

// boxRequest is the body of a creation or change. What no driver here can do
// is kept as it came, to be refused by name: nothing that an SDK sends is
// dropped in silence. Fields that no SDK sends are ignored, as the original
// does.
type boxRequest struct {
	Name                   *string           `json:"name"`
	Snapshot               string            `json:"snapshot"`
	SnapshotID             string            `json:"snapshot_id"`
	SnapshotName           string            `json:"snapshot_name"`
	IdleTTLSeconds         *int64            `json:"idle_ttl_seconds"`
	DeleteAfterStopSeconds *int64            `json:"delete_after_stop_seconds"`
	VCPUs                  float64           `json:"vcpus"`
	CPUMillicores          int64             `json:"cpu_millicores"`
	MemBytes               int64             `json:"mem_bytes"`
	FSCapacityBytes        int64             `json:"fs_capacity_bytes"`
	Persistent             *bool             `json:"persistent"`
	PreserveMemoryOnStop   bool              `json:"preserve_memory_on_stop"`
	RestoreMemory          bool              `json:"restore_memory"` // false is how it is here
	Labels                 map[string]string `json:"labels"`
	TagValueIDs            []string          `json:"tag_value_ids"`
	EnvVars                map[string]string `json:"env_vars"`
	RunConfig              *runConfig        `json:"run_config"`
	WaitForReady           bool              `json:"wait_for_ready"`
	Timeout                float64           `json:"timeout"`      // seconds; 0: none
	ProxyConfig            json.RawMessage   `json:"proxy_config"` // see network
	foreignFields
}

// foreignFields are what only the original does.
type foreignFields struct {
	MountConfig      json.RawMessage `json:"mount_config"`
	AccessDelegation json.RawMessage `json:"access_delegation"`
	Volumes          json.RawMessage `json:"volumes"`
}

// asks reports whether a field of any form asks for anything.
func asks(raw json.RawMessage) bool {
	switch string(raw) {
	case "", "null", "false", "{}", "[]", `""`, "0":
		return false
	}
	return true
}

// unsupported refuses a field by name.
func unsupported(field, instead string) error {
	return &problem{http.StatusNotImplemented, kindUnsupported, field + " is not supported by this server; " + instead}
}

// refuse refuses what no driver here can do.
func (b *boxRequest) refuse() error {
	for _, field := range []struct {
		name string
		raw  json.RawMessage
	}{
		{"mount_config", b.MountConfig}, {"access_delegation", b.AccessDelegation},
		{"volumes", b.Volumes},
	} {
		if asks(field.raw) {
			return unsupported(field.name, "leave it out")
		}
	}
	if b.RestoreMemory {
		return unsupported("restore_memory", "no memory is kept")
	}
	return nil
}

// snapshot is what the box starts with: an ID, or a name in one of two fields.
func (b *boxRequest) snapshot() (string, error) {
	if b.Snapshot != "" && b.SnapshotName != "" && b.Snapshot != b.SnapshotName {
		return "", requestErrorf("snapshot and snapshot_name differ; give one")
	}
	name := cmp.Or(b.Snapshot, b.SnapshotName)
	if name != "" && b.SnapshotID != "" {
		return "", requestErrorf("snapshot_id is given together with snapshot or snapshot_name; give one")
	}
	return name + b.SnapshotID, nil
}

// size is the largest of what is asked for: whole processors, or thousandths,
// which go before.
func (b *boxRequest) size() driver.Size {
	s := driver.Size{CPUs: b.VCPUs, Memory: b.MemBytes, Disk: b.FSCapacityBytes}
	if b.CPUMillicores != 0 {
		s.CPUs = float64(b.CPUMillicores) / 1000
	}
	return s
}

// seconds translates a TTL; the driver knows its bounds.
func (b *boxRequest) seconds(n *int64) *time.Duration {
	if n == nil {
		return nil
	}
	d := time.Duration(max(min(*n, int64(driver.MaxTTL/time.Second)+1), -1)) * time.Second
	return &d
}

// wireName is what the wire calls a field of the driver.
func wireName(field string) string {
	switch field {
	case "idle_ttl", "delete_after_stop":
		return field + "_seconds"
	case "run.user":
		return "run_config.user"
	case "run.dir":
		return "run_config.work_dir"
	case "run.env":
		return "run_config.env_vars"
	case "env":
		return "env_vars"
	case "metadata":
		return "labels"
	case "network.allow":
		return "proxy_config.access_control.allow_list"
	case "network.deny":
		return "proxy_config.access_control.deny_list"
	case "size.cpus":
		return "vcpus or cpu_millicores"
	case "size.memory":
		return "mem_bytes"
	case "size.disk":
		return "fs_capacity_bytes"
	}
	return field
}

func (f *Face) createBox(w http.ResponseWriter, r *http.Request) error {
	var req boxRequest
	if err := decode(r, &req); err != nil {
		return err
	}
	if err := req.refuse(); err != nil {
		return err
	}
	snapshot, err := req.snapshot()
	if err != nil {
		return err
	}
	if req.Timeout < 0 {
		return &driver.InvalidError{Field: "timeout", Reason: fmt.Sprintf("is %v; a number of seconds is wanted", req.Timeout)}
	}
	spec := driver.Spec{
		Snapshot: snapshot, Run: req.RunConfig.driver(), Env: req.EnvVars, Size: req.size(), Metadata: req.Labels,
		Disposable: req.Persistent != nil && !*req.Persistent,
	}
	if d := req.seconds(req.IdleTTLSeconds); d != nil {
		spec.IdleTTL = *d
	}
	if d := req.seconds(req.DeleteAfterStopSeconds); d != nil {
		spec.DeleteAfterStop = *d
	}
	if req.Name != nil && *req.Name != "" {
		spec.Name = *req.Name
	}
	note := func(name, text string) {
		if spec.Notes == nil {
			spec.Notes = map[string]string{}
		}
		spec.Notes[name] = text
	}
	if text, err := noteOfTagValues(req.TagValueIDs); err != nil {
		return err
	} else if text != "" {
		note(noteTagValues, text)
	}
	if req.PreserveMemoryOnStop {
		if _, ok := f.driver.(driver.Pauser); !ok {
			return unsupported("preserve_memory_on_stop", "a stop ends all processes")
		}
		note(noteMemory, "yes")
	}
	if rules, err := req.network(); err != nil {
		return err
	} else if rules != nil {
		spec.Network = *rules
	}
	ctx := r.Context()
	if req.WaitForReady && req.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, seconds(req.Timeout).duration())
		defer cancel()
	}
	s, err := f.create(ctx, spec)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) && r.Context().Err() == nil {
			return &problem{http.StatusRequestTimeout, "ResourceTimeout", fmt.Sprintf("the sandbox is not ready after %v seconds", req.Timeout)}
		}
		return err
	}
	info, err := s.Info(r.Context())
	if err != nil {
		return err
	}
	b := f.boxJSON(r, &info)
	if left := notEnforced(req.size(), info.Size); left != "" && b.StatusMessage == "" {
		b.StatusMessage = left
	}
	writeJSON(w, http.StatusCreated, b)
	return nil
}

// sharedDir is where commands of an isolated box begin: every user of it may write there,
// and nobody of another.
const sharedDir = "/tmp"

// create makes a box that is isolated. Where nothing can be, it is the machine itself;
// but only what is isolated has snapshots, and can stand still.
func (f *Face) create(ctx context.Context, spec driver.Spec) (driver.Sandbox, error) {
	isolated := spec
	isolated.Isolation = driver.IsolationFull
	if spec.Snapshot == "" && spec.Run.Dir == "" {
		isolated.Run.Dir = sharedDir
	}
	s, err := f.driver.Create(ctx, isolated)
	not, refused := errors.AsType[*driver.UnsupportedError](err)
	// A driver that could, and does not answer now, has layers or another error.
	if !refused || not.Field != "isolation" || spec.Snapshot != "" || spec.Notes[noteMemory] != "" || len(f.driver.Capabilities().Layers) > 0 {
		return s, err
	}
	return f.driver.Create(ctx, spec)
}

// notEnforced says which sizes were asked for and not taken.
func notEnforced(asked, got driver.Size) string {
	beyond := asked.Beyond(got)
	if len(beyond) == 0 {
		return ""
	}
	words := strings.NewReplacer("cpus", "vcpus", "memory", "mem_bytes", "disk", "fs_capacity_bytes")
	return "not enforced by this sandbox driver: " + words.Replace(strings.Join(beyond, ", "))
}

func (f *Face) updateBox(w http.ResponseWriter, r *http.Request) error {
	var req boxRequest
	if err := decode(r, &req); err != nil {
		return err
	}
	if err := req.refuse(); err != nil {
		return err
	}
	switch {
	case req.size() != driver.Size{}:
		return unsupported("a change of vcpus, cpu_millicores, mem_bytes or fs_capacity_bytes", "make a new sandbox")
	case req.Snapshot != "" || req.SnapshotID != "" || req.SnapshotName != "":
		return unsupported("a change of snapshot, snapshot_id or snapshot_name", "make a new sandbox")
	case req.Persistent != nil:
		return unsupported("a change of persistent", "make a new sandbox")
	case req.PreserveMemoryOnStop:
		return unsupported("a change of preserve_memory_on_stop", "make a new sandbox")
	case len(req.TagValueIDs) > 0:
		return unsupported("a change of tag_value_ids", "give them when the sandbox is made")
	case len(req.Labels) > 0:
		return unsupported("a change of labels", "give them when the sandbox is made")
	case len(req.EnvVars) > 0:
		return unsupported("a change of env_vars", "put them into run_config")
	}
	s, err := f.boxOf(r)
	if err != nil {
		return err
	}
	c := driver.Change{Name: req.Name, IdleTTL: req.seconds(req.IdleTTLSeconds), DeleteAfterStop: req.seconds(req.DeleteAfterStopSeconds)}
	if c.Network, err = req.network(); err != nil {
		return err
	}
	if c.Network != nil { // who may reach its ports is not said here, and stays
		info, err := s.Info(r.Context())
		if err != nil {
			return err
		}
		c.Network.Public = info.Network.Public
	}
	if req.RunConfig != nil {
		run := req.RunConfig.driver()
		c.Run = &run
	}
	info, err := s.Update(r.Context(), c)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, f.boxJSON(r, &info))
	return nil
}
