package langsmith

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/tend-run/tend/internal/sandbox/driver"
)

// snapshot is a snapshot object of the control plane.
type snapshot struct {
	ID              string   `json:"id"`
	Name            string   `json:"name"`
	Tags            []string `json:"tags"`
	Status          string   `json:"status"`
	StatusMessage   string   `json:"status_message,omitempty"`
	FSUsedBytes     int64    `json:"fs_used_bytes,omitempty"`
	SourceSandboxID string   `json:"source_sandbox_id,omitempty"`
	CreatedAt       string   `json:"created_at"`
}

// snapshotRequest is the body of POST /boxes/{name}/snapshot.
type snapshotRequest struct {
	Name            string          `json:"name"`
	DockerImage     string          `json:"docker_image"`
	RunConfig       *runConfig      `json:"run_config"`
	Tag             string          `json:"tag"`
	Description     json.RawMessage `json:"description"`
	Labels          json.RawMessage `json:"labels"`
	Checkpoint      json.RawMessage `json:"checkpoint"`
	Include         json.RawMessage `json:"include"`
	IncludeMemory   json.RawMessage `json:"include_memory"`
	ImageConfig     json.RawMessage `json:"image_config"`
	FSCapacityBytes json.RawMessage `json:"fs_capacity_bytes"`
	ConfirmSecrets  json.RawMessage `json:"confirm_allow_snapshot_secret_values"`
}

// refuse refuses what no driver here can do.
func (q *snapshotRequest) refuse() error {
	if q.DockerImage != "" {
		return unsupported("docker_image", "a sandbox has no container engine whose images could be exported")
	}
	for _, field := range []struct {
		name string
		raw  json.RawMessage
	}{
		{"description", q.Description}, {"labels", q.Labels}, {"checkpoint", q.Checkpoint}, {"include", q.Include},
		{"include_memory", q.IncludeMemory}, {"image_config", q.ImageConfig}, {"fs_capacity_bytes", q.FSCapacityBytes},
		{"confirm_allow_snapshot_secret_values", q.ConfirmSecrets},
	} {
		if asks(field.raw) {
			return unsupported(field.name, "leave it out")
		}
	}
	return nil
}

// snapshotter is the driver's ability, or a typed error.
func (f *Face) snapshotter() (driver.Snapshotter, error) {
	if s, ok := f.driver.(driver.Snapshotter); ok {
		return s, nil
	}
	return nil, &problem{http.StatusNotImplemented, kindUnsupported, "snapshots are not supported by the sandbox driver " +
		strconv.Quote(f.driver.Capabilities().Name)}
}

func snapshotJSON(s *driver.Snapshot) *snapshot {
	status := statusOf(s.State)
	if s.State == driver.Starting {
		status = "building"
	}
	tags := []string{}
	if s.Tag != "" {
		tags = append(tags, s.Tag)
	}
	return &snapshot{
		ID: string(s.ID), Name: s.Name, Tags: tags, Status: status, StatusMessage: s.Reason,
		FSUsedBytes: s.Bytes, SourceSandboxID: string(s.Sandbox), CreatedAt: stamp(s.Created),
	}
}

func (f *Face) snapshotBox(w http.ResponseWriter, r *http.Request, box driver.Sandbox) error {
	sn, err := f.snapshotter()
	if err != nil {
		return err
	}
	var req snapshotRequest
	if err := decode(r, &req); err != nil {
		return err
	}
	if err := req.refuse(); err != nil {
		return err
	}
	info, err := box.Info(r.Context())
	if err != nil {
		return err
	}
	s, err := sn.Snapshot(r.Context(), info.ID, driver.SnapshotSpec{Name: req.Name, Tag: cmp.Or(req.Tag, driver.LatestTag),
		Run: req.RunConfig.driver()})
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, snapshotJSON(&s))
	return nil
}

func (f *Face) listSnapshots(w http.ResponseWriter, r *http.Request) error {
	sn, err := f.snapshotter()
	if err != nil {
		return err
	}
	all, err := sn.Snapshots(r.Context())
	if err != nil {
		return err
	}
	q := r.URL.Query()
	limit, offset := 50, 0
	if n, err := strconv.Atoi(q.Get("limit")); err == nil {
		limit = min(max(n, 1), 500)
	}
	if n, err := strconv.Atoi(q.Get("offset")); err == nil {
		offset = max(n, 0)
	}
	list := []*snapshot{}
	for i := range all {
		if !strings.Contains(all[i].Name, q.Get("name_contains")) {
			continue
		}
		if offset > 0 {
			offset--
			continue
		}
		if len(list) == limit {
			break
		}
		list = append(list, snapshotJSON(&all[i]))
	}
	writeJSON(w, http.StatusOK, map[string]any{"snapshots": list})
	return nil
}

func (f *Face) getSnapshot(w http.ResponseWriter, r *http.Request) error {
	sn, err := f.snapshotter()
	if err != nil {
		return err
	}
	s, err := sn.GetSnapshot(r.Context(), r.PathValue("snapshot"))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, snapshotJSON(&s))
	return nil
}

// tagOf is a tag below a name, and the snapshot that has it.
type tagOf struct {
	Tag        string `json:"tag"`
	SnapshotID string `json:"snapshot_id"`
}

// named is what there is of a name: the snapshot that it means alone, or the newest, and
// all tags.
type named struct {
	*snapshot
	Tags []tagOf `json:"tags"`
}

func (f *Face) snapshotsByName(w http.ResponseWriter, r *http.Request) error {
	sn, err := f.snapshotter()
	if err != nil {
		return err
	}
	name := r.PathValue("snapshot")
	if strings.Contains(name, ":") {
		return requestErrorf("%.200q has a tag; a name alone is wanted, or GET /snapshots/NAME:TAG", name)
	}
	all, err := sn.Snapshots(r.Context())
	if err != nil {
		return err
	}
	answer := named{Tags: []tagOf{}}
	for i := range all { // oldest first
		if s := &all[i]; s.Name == name && s.State == driver.Ready {
			answer.snapshot = snapshotJSON(s)
			if s.Tag != "" {
				answer.Tags = append(answer.Tags, tagOf{s.Tag, string(s.ID)})
			}
		}
	}
	switch meant, err := sn.GetSnapshot(r.Context(), name); {
	case err == nil:
		answer.snapshot = snapshotJSON(&meant)
	case answer.snapshot == nil:
		return err
	}
	writeJSON(w, http.StatusOK, &answer)
	return nil
}

func (f *Face) deleteSnapshot(w http.ResponseWriter, r *http.Request) error {
	sn, err := f.snapshotter()
	if err != nil {
		return err
	}
	if err := sn.DeleteSnapshot(r.Context(), r.PathValue("snapshot")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
