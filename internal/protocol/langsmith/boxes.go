package langsmith

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/sandbox/driver"
)

// maxBody bounds the body of a control plane request in bytes.
const maxBody = 4 << 20

// box is a sandbox object of the control plane (§2).
type box struct {
	ID                     string            `json:"id"`
	Name                   string            `json:"name"`
	Status                 string            `json:"status"`
	DataplaneURL           string            `json:"dataplane_url"`
	StatusMessage          string            `json:"status_message,omitempty"`
	CreatedAt              string            `json:"created_at"`
	UpdatedAt              string            `json:"updated_at"`
	StoppedAt              *string           `json:"stopped_at,omitempty"`
	IdleTTLSeconds         int64             `json:"idle_ttl_seconds"`
	DeleteAfterStopSeconds int64             `json:"delete_after_stop_seconds"`
	SnapshotID             string            `json:"snapshot_id,omitempty"`
	VCPUs                  float64           `json:"vcpus,omitempty"`
	MemBytes               int64             `json:"mem_bytes,omitempty"`
	FSCapacityBytes        int64             `json:"fs_capacity_bytes,omitempty"`
	Persistent             bool              `json:"persistent"`
	PreserveMemoryOnStop   bool              `json:"preserve_memory_on_stop"`
	Labels                 map[string]string `json:"labels,omitempty"`
	TagValueIDs            []string          `json:"tag_value_ids,omitempty"`
	ProxyConfig            *proxyConfig      `json:"proxy_config,omitempty"`
	RunConfig              *runConfig        `json:"run_config,omitempty"`
}

// controlPlane serves the paths behind the prefix.
func (f *Face) controlPlane() http.Handler {
	mux := http.NewServeMux()
	for path, h := range map[string]func(http.ResponseWriter, *http.Request) error{
		"POST /boxes":                       f.createBox,
		"GET /boxes":                        f.listBoxes,
		"GET /boxes/{box}":                  f.inBox(f.getBox),
		"PATCH /boxes/{box}":                f.updateBox,
		"DELETE /boxes/{box}":               f.inBox(f.deleteBox),
		"GET /boxes/{box}/status":           f.inBox(f.boxStatus),
		"POST /boxes/{box}/start":           f.inBox(f.startBox),
		"POST /boxes/{box}/stop":            f.inBox(f.stopBox),
		"POST /boxes/{box}/snapshot":        f.inBox(f.snapshotBox),
		"POST /boxes/{box}/service-url":     f.serviceURL,
		"/boxes/{box}/service-urls":         noServiceURLs,
		"POST /boxes/{box}/download-url":    f.downloadURL,
		"POST /snapshots":                   f.createSnapshot,
		"GET /snapshots":                    f.listSnapshots,
		"GET /snapshots/{snapshot}":         f.getSnapshot,
		"DELETE /snapshots/{snapshot}":      f.deleteSnapshot,
		"GET /snapshots-by-name/{snapshot}": f.snapshotsByName,
		"/usage/":                           noUsage,
		"/registries":                       noRegistries,
		"/registries/":                      noRegistries,
		"/":                                 noPath,
	} {
		mux.Handle(path, f.handler(func(w http.ResponseWriter, r *http.Request) error {
			r.Body = http.MaxBytesReader(w, r.Body, maxBody)
			return h(w, r)
		}))
	}
	return mux
}

func noPath(_ http.ResponseWriter, r *http.Request) error {
	return &problem{http.StatusNotFound, kindNoResource, r.Method + " " + r.URL.Path + " is no path of this API"}
}

func noServiceURLs(http.ResponseWriter, *http.Request) error {
	return unsupported("the list of service URLs", "each link ends by itself at its time, and none is kept here")
}

func noUsage(http.ResponseWriter, *http.Request) error {
	return unsupported("usage", "nothing is charged here")
}

func noRegistries(http.ResponseWriter, *http.Request) error {
	return &problem{http.StatusNotImplemented, kindUnsupported, "registries are not supported: this server's sandboxes are not made of images"}
}

// decode reads a JSON body; none at all is an empty object.
func decode(r *http.Request, v any) error {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return &problem{http.StatusRequestEntityTooLarge, kindInvalid, "the body is larger than " +
				strconv.FormatInt(large.Limit, 10) + " bytes"}
		}
		if busy, ok := errors.AsType[*budget.BusyError](err); ok {
			return busy
		}
		return requestErrorf("the body could not be read: %v", err)
	}
	if len(b) == 0 {
		return nil
	}
	if err := protocol.DecodeJSON(b, v); err != nil {
		return requestErrorf("the body is not what this path takes: %v", err)
	}
	return nil
}

func (c *runConfig) driver() driver.RunConfig {
	if c == nil {
		return driver.RunConfig{}
	}
	return driver.RunConfig{User: c.User, Dir: c.WorkDir, Env: c.EnvVars}
}

// boxOf finds the box that a path names, by name or by ID.
func (f *Face) boxOf(r *http.Request) (driver.Sandbox, error) {
	return f.driver.Get(r.Context(), r.PathValue("box"))
}

func (f *Face) writeBox(w http.ResponseWriter, r *http.Request, status int, s driver.Sandbox) error {
	info, err := s.Info(r.Context())
	if err != nil {
		return err
	}
	writeJSON(w, status, f.boxJSON(r, &info))
	return nil
}

func (f *Face) boxJSON(r *http.Request, info *driver.Info) *box {
	b := &box{
		ID: string(info.ID), Name: info.Name, Status: statusOf(info.State), StatusMessage: info.Reason,
		DataplaneURL: protocol.Origin(f.publicURL, r) + dataPath + string(info.ID),
		CreatedAt:    stamp(info.Created), UpdatedAt: stamp(info.Updated),
		IdleTTLSeconds: int64(info.IdleTTL / time.Second), DeleteAfterStopSeconds: int64(info.DeleteAfterStop / time.Second),
		SnapshotID: info.Snapshot, VCPUs: info.Size.CPUs, MemBytes: info.Size.Memory, FSCapacityBytes: info.Size.Disk,
		Persistent: !info.Disposable, PreserveMemoryOnStop: info.Notes[noteMemory] != "", Labels: info.Metadata,
		TagValueIDs: tagValues(info.Notes),
		ProxyConfig: egress(&info.Network),
		RunConfig:   &runConfig{User: info.Run.User, WorkDir: cmp.Or(info.Run.Dir, info.Dir), EnvVars: info.Run.Env},
	}
	if at := cmp.Or(info.StoppedAt, info.PausedAt); !at.IsZero() {
		at := stamp(at)
		b.StoppedAt = &at
	}
	return b
}

func statusOf(s driver.State) string {
	switch s {
	case driver.Starting:
		return "provisioning"
	case driver.Paused: // a stop that keeps the memory; a start continues with it
		return driver.Stopped.String()
	}
	return s.String()
}

// noteMemory is set on a box whose stop keeps its processes as they are.
const noteMemory = "langsmith.memory"

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

func (f *Face) getBox(w http.ResponseWriter, r *http.Request, s driver.Sandbox) error {
	return f.writeBox(w, r, http.StatusOK, s)
}

func (f *Face) boxStatus(w http.ResponseWriter, r *http.Request, s driver.Sandbox) error {
	info, err := s.Info(r.Context())
	if err != nil {
		return err
	}
	answer := map[string]string{"status": statusOf(info.State)}
	if info.Reason != "" {
		answer["status_message"] = info.Reason
	}
	writeJSON(w, http.StatusOK, answer)
	return nil
}

func (f *Face) deleteBox(w http.ResponseWriter, r *http.Request, s driver.Sandbox) error {
	// A call that has begun continues although the client leaves.
	if err := s.Destroy(context.WithoutCancel(r.Context())); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (f *Face) startBox(w http.ResponseWriter, r *http.Request, s driver.Sandbox) error {
	if err := s.Start(r.Context()); err != nil {
		return err
	}
	return f.writeBox(w, r, http.StatusOK, s)
}

func (f *Face) stopBox(w http.ResponseWriter, r *http.Request, s driver.Sandbox) error {
	if err := f.stop(context.WithoutCancel(r.Context()), s); err != nil {
		return err
	}
	return f.writeBox(w, r, http.StatusOK, s)
}

func (f *Face) stop(ctx context.Context, s driver.Sandbox) error {
	info, err := s.Info(ctx)
	if err != nil {
		return err
	}
	pauser, can := f.driver.(driver.Pauser)
	if info.Notes[noteMemory] == "" || !can {
		return s.Stop(ctx)
	}
	err = pauser.Pause(ctx, info.ID, driver.PauseSpec{Memory: true})
	if errors.Is(err, driver.ErrPaused) || errors.Is(err, driver.ErrStopped) {
		return nil
	}
	return err
}
