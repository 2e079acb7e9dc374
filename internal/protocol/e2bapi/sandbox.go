package e2bapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/sandbox/driver"
)

// noteTemplate keeps with a sandbox what it was made from, as clients know it.
const noteTemplate = "e2b.template"

// noteRequest keeps a sum of the request that made a sandbox, if it had an idempotency
// key.
const noteRequest = "e2b.request"

// Timeouts of sandboxes for which a request has none, as the original has them.
const (
	defaultTimeout    = 300 * time.Second
	defaultTimeoutOld = 15 * time.Second // of the routes of old
	// noDeadline is what clients are told of a sandbox that has none: they need a time.
	noDeadline = 24 * time.Hour
)

// everything is what E2B denies where a sandbox has no access to the internet.
const everything = "0.0.0.0/0"

func (f *Face) sandboxPaths() map[string]handler {
	return map[string]handler{
		"POST /v2/sandboxes":              f.create(defaultTimeout),
		"POST /sandboxes":                 f.create(defaultTimeoutOld),
		"GET /v2/sandboxes":               f.list,
		"GET /sandboxes":                  f.listRunning,
		"GET /sandboxes/{id}":             f.detail,
		"DELETE /sandboxes/{id}":          f.kill,
		"POST /v2/sandboxes/{id}/connect": f.connect(defaultTimeout),
		"POST /sandboxes/{id}/connect":    f.connect(defaultTimeoutOld),
		"POST /sandboxes/{id}/resume":     f.resume,
		"POST /sandboxes/{id}/timeout":    f.setTimeout,
		"POST /sandboxes/{id}/refreshes":  f.refresh,
		"POST /sandboxes/{id}/pause":      f.pause,
		"PUT /sandboxes/{id}/network":     f.setNetwork,
		"POST /sandboxes/{id}/fork":       f.fork,
		"GET /sandboxes/metrics":          f.metricsOfMany,
		"GET /sandboxes/{id}/metrics":     f.metrics,
		"GET /sandboxes/{id}/logs":        f.logs,
		"GET /v2/sandboxes/{id}/logs":     f.logsV2,
		"POST /sandboxes/{id}/snapshots":  f.snapshot,
		"GET /snapshots":                  f.snapshots,
	}
}

// find returns the sandbox that a path names.
func (f *Face) find(r *http.Request) (driver.Sandbox, driver.Info, error) {
	id := strings.ToLower(r.PathValue("id"))
	if !driver.LikeID(id) {
		return nil, driver.Info{}, noSandbox(r.PathValue("id"))
	}
	s, err := f.driver.Get(r.Context(), id)
	if err == nil {
		var info driver.Info
		if info, err = s.Info(r.Context()); err == nil {
			return s, info, nil
		}
	}
	return nil, driver.Info{}, gone(id, err)
}

// gone words the error of a sandbox that is not there, or not any more.
func gone(id string, err error) error {
	if errors.Is(err, driver.ErrNotFound) {
		return noSandbox(id)
	}
	return err
}

// deadline is a time of seconds from now on.
func deadline(seconds int64) (time.Time, error) {
	if seconds < 0 || seconds > int64(driver.MaxTTL/time.Second) {
		return time.Time{}, badRequest("timeout is %d; 0 to %d seconds are allowed", seconds, int64(driver.MaxTTL/time.Second))
	}
	return time.Now().Add(time.Duration(seconds) * time.Second), nil
}

// until is the deadline that a request asks for.
func until(seconds *int64, otherwise time.Duration) (time.Time, error) {
	if seconds == nil {
		return time.Now().Add(otherwise), nil
	}
	return deadline(*seconds)
}

func (f *Face) create(timeout time.Duration) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		var req createRequest
		if err := decode(r, &req); err != nil {
			return err
		}
		spec, err := req.spec(timeout)
		if err != nil {
			return err
		}
		ctx := context.WithoutCancel(r.Context())
		if err := f.from(ctx, &spec, req.TemplateID); err != nil {
			return err
		}
		spec.E2BTemplate = spec.Notes[noteTemplate]
		key := r.Header.Get("Idempotency-Key")
		if spec.Name, err = nameFor(key); err != nil {
			return err
		}
		if key != "" {
			if spec.Notes[noteRequest], err = sumOf(&req); err != nil {
				return err
			}
		}
		s, err := f.driver.Create(ctx, spec)
		if errors.Is(err, driver.ErrExists) && key != "" {
			s, err = f.repeated(ctx, &spec)
		}
		if errors.Is(err, driver.ErrNotFound) { // it was deleted in between
			return noTemplate(req.TemplateID)
		}
		if err != nil {
			return err
		}
		info, err := s.Info(ctx)
		if err != nil {
			return gone("", err)
		}
		writeJSON(w, http.StatusCreated, f.sandboxJSON(r, &info))
		return nil
	}
}

// repeated finds the sandbox that was made by an earlier request with the same key. A
// sandbox that an older tend made says nothing of its request.
func (f *Face) repeated(ctx context.Context, spec *driver.Spec) (driver.Sandbox, error) {
	s, err := f.driver.Get(ctx, spec.Name)
	if err != nil {
		return nil, err
	}
	info, err := s.Info(ctx)
	if err != nil {
		return nil, err
	}
	if first := info.Notes[noteRequest]; first != "" && first != spec.Notes[noteRequest] {
		return nil, &problem{http.StatusUnprocessableEntity,
			"the Idempotency-Key was used for another request, whose sandbox is there; give each request a key of its own"}
	}
	return s, nil
}

// sumOf is by what two requests with one key are compared.
func sumOf(req *createRequest) (string, error) {
	text, err := json.Marshal(req)
	if err != nil { // impossible: it was JSON
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16]), nil
}

// nameFor is the name of a sandbox that is made by a request with an idempotency key:
// the driver gives a name once, so a repeated request finds what the first one made,
// for as long as that is there. No key, no name.
func nameFor(key string) (string, error) {
	if key == "" {
		return "", nil
	}
	if len(key) > 255 {
		return "", badRequest("the Idempotency-Key has %d bytes; the limit is 255", len(key))
	}
	sum := sha256.Sum256([]byte(key))
	return "e2b-" + hex.EncodeToString(sum[:16]), nil
}

// connect makes a sandbox ready, and lets it live for a time at least.
func (f *Face) connect(timeout time.Duration) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		var req struct {
			Timeout *int64 `json:"timeout"`
			Memory  *bool  `json:"memory"`
		}
		if err := decode(r, &req); err != nil {
			return err
		}
		at, err := until(req.Timeout, timeout)
		if err != nil {
			return err
		}
		s, info, err := f.find(r)
		if err != nil {
			return err
		}
		status := http.StatusOK
		if info.State == driver.Ready || info.State == driver.Starting {
			info, err = s.Update(context.WithoutCancel(r.Context()), driver.Change{Extend: &at})
		} else {
			status = http.StatusCreated
			info, err = f.wake(r, s, &info, at, req.Memory != nil && !*req.Memory)
		}
		if err != nil {
			return gone(r.PathValue("id"), err)
		}
		writeJSON(w, status, f.sandboxJSON(r, &info))
		return nil
	}
}

// wake makes a sandbox go on that is paused or stopped; reboot: without the
// processes that it has. The deadline comes first: the one of before may pass at any
// moment.
func (f *Face) wake(r *http.Request, s driver.Sandbox, info *driver.Info, at time.Time, reboot bool) (driver.Info, error) {
	ctx := context.WithoutCancel(r.Context())
	// A sandbox of another protocol may be meant to live for ever.
	if !info.Deadline.IsZero() || info.Notes[protocol.NoteSecure] != "" {
		if _, err := s.Update(ctx, driver.Change{Deadline: &at}); err != nil {
			return *info, err
		}
	}
	if reboot && info.State == driver.Paused {
		if err := s.Stop(ctx); err != nil {
			return *info, err
		}
	}
	if err := s.Start(ctx); err != nil {
		return *info, err
	}
	return s.Info(ctx)
}

// resume is what connect was before; it refuses a sandbox that runs.
func (f *Face) resume(w http.ResponseWriter, r *http.Request) error {
	var req struct {
		Timeout   *int64 `json:"timeout"`
		AutoPause *bool  `json:"autoPause"`
		Memory    *bool  `json:"memory"`
	}
	if err := decode(r, &req); err != nil {
		return err
	}
	at, err := until(req.Timeout, defaultTimeoutOld)
	if err != nil {
		return err
	}
	s, info, err := f.find(r)
	if err != nil {
		return err
	}
	if info.State == driver.Ready || info.State == driver.Starting {
		return &problem{http.StatusConflict, fmt.Sprintf("sandbox %q is running", info.ID)}
	}
	if req.AutoPause != nil {
		action := driver.ActionDestroy
		if *req.AutoPause {
			action = driver.ActionPause
		}
		if _, err := s.Update(context.WithoutCancel(r.Context()), driver.Change{AtDeadline: &action}); err != nil {
			return gone(r.PathValue("id"), err)
		}
	}
	if info, err = f.wake(r, s, &info, at, req.Memory != nil && !*req.Memory); err != nil {
		return gone(r.PathValue("id"), err)
	}
	writeJSON(w, http.StatusCreated, f.sandboxJSON(r, &info))
	return nil
}

func (f *Face) detail(w http.ResponseWriter, r *http.Request) error {
	_, info, err := f.find(r)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, f.detailJSON(r, &info))
	return nil
}

func (f *Face) kill(w http.ResponseWriter, r *http.Request) error {
	s, _, err := f.find(r)
	if err != nil {
		return err
	}
	if err := s.Destroy(context.WithoutCancel(r.Context())); err != nil {
		return gone(r.PathValue("id"), err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (f *Face) setTimeout(w http.ResponseWriter, r *http.Request) error {
	var req struct {
		Timeout *int64 `json:"timeout"`
	}
	if err := decode(r, &req); err != nil {
		return err
	}
	if req.Timeout == nil { // 0 would end the sandbox
		return badRequest("timeout is missing; 0 to %d seconds are allowed", int64(driver.MaxTTL/time.Second))
	}
	at, err := deadline(*req.Timeout)
	if err != nil {
		return err
	}
	return f.change(w, r, driver.Change{Deadline: &at})
}

// refresh lets a sandbox live for a time at least.
func (f *Face) refresh(w http.ResponseWriter, r *http.Request) error {
	var req struct {
		Duration *int64 `json:"duration"`
	}
	if err := decode(r, &req); err != nil {
		return err
	}
	at, err := until(req.Duration, defaultTimeoutOld)
	if err != nil {
		return err
	}
	return f.change(w, r, driver.Change{Extend: &at})
}

func (f *Face) setNetwork(w http.ResponseWriter, r *http.Request) error {
	var req networkRequest
	if err := decode(r, &req); err != nil {
		return err
	}
	if err := req.refuse(); err != nil {
		return err
	}
	s, info, err := f.find(r)
	if err != nil {
		return err
	}
	if req.MaskRequestHost != "" || len(req.HTTPSPorts) > 0 {
		return badRequest("maskRequestHost and httpsPorts belong to a creation")
	}
	next := req.network(req.AllowInternet)
	if err := checkRules(&next); err != nil {
		return err
	}
	next.Public = info.Network.Public // not part of what is replaced
	if _, err := s.Update(context.WithoutCancel(r.Context()), driver.Change{Network: &next}); err != nil {
		return gone(r.PathValue("id"), err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (f *Face) change(w http.ResponseWriter, r *http.Request, c driver.Change) error {
	s, _, err := f.find(r)
	if err != nil {
		return err
	}
	if _, err := s.Update(context.WithoutCancel(r.Context()), c); err != nil {
		return gone(r.PathValue("id"), err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (f *Face) pause(w http.ResponseWriter, r *http.Request) error {
	var req struct {
		Memory *bool `json:"memory"`
	}
	if err := decode(r, &req); err != nil {
		return err
	}
	s, info, err := f.find(r)
	if err != nil {
		return err
	}
	paused := &problem{http.StatusConflict, fmt.Sprintf("sandbox %q is paused already", info.ID)}
	if info.State == driver.Paused || info.State == driver.Stopped {
		return paused
	}
	ctx, memory := context.WithoutCancel(r.Context()), req.Memory == nil || *req.Memory
	err = driver.ErrUnsupported
	if pauser, ok := f.driver.(driver.Pauser); ok {
		err = pauser.Pause(ctx, info.ID, driver.PauseSpec{Memory: memory})
	}
	if errors.Is(err, driver.ErrUnsupported) {
		if memory {
			return f.lacks("a pause that keeps the processes (pause without memory, which keeps the files)")
		}
		err = s.Stop(ctx)
	}
	switch {
	case errors.Is(err, driver.ErrPaused), errors.Is(err, driver.ErrStopped):
		return paused
	case err != nil:
		return gone(r.PathValue("id"), err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// fork makes copies with the files of a sandbox.
func (f *Face) fork(w http.ResponseWriter, r *http.Request) error {
	var req struct {
		Timeout *int64 `json:"timeout"`
		Count   *int   `json:"count"`
	}
	if err := decode(r, &req); err != nil {
		return err
	}
	count := 1
	if req.Count != nil {
		count = *req.Count
	}
	if count < 1 || count > driver.MaxForks {
		return badRequest("count is %d; 1 to %d are allowed", count, driver.MaxForks)
	}
	at, err := until(req.Timeout, defaultTimeoutOld)
	if err != nil {
		return err
	}
	_, info, err := f.find(r)
	if err != nil {
		return err
	}
	forker, ok := f.driver.(driver.Forker)
	if !ok {
		return f.lacks("fork")
	}
	ctx := context.WithoutCancel(r.Context())
	forks, err := forker.Fork(ctx, info.ID, driver.ForkSpec{Count: count, Deadline: at})
	if err != nil {
		return gone(r.PathValue("id"), err)
	}
	results := make([]forkResult, len(forks))
	for i, made := range forks {
		copied, err := driver.Info{}, made.Err
		if err == nil {
			copied, err = made.Sandbox.Info(ctx)
		}
		if err != nil {
			p := problemOf(err)
			results[i].Error = &wireError{p.status, p.text}
			continue
		}
		results[i].Sandbox = f.sandboxJSON(r, &copied)
	}
	writeJSON(w, http.StatusCreated, results)
	return nil
}
