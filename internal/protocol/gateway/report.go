package gateway

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/internal/protocol"
)

const (
	maxReport      = 64 << 10 // bytes of a request
	maxError       = 4 << 10  // bytes that are kept of an error
	maxReportsFile = 32 << 20 // of all keys, whose errors may be six times as long in JSON
	// mostReports is how many reports of a key are taken in a minute: each is a write to
	// the disk. A healer tells of a few.
	mostReports = 60
	// stale is after how long, or before, a smaller sequence number is no late report, but one of a
	// reporter that counts again.
	stale = 2 * time.Hour
)

// Report is the last report with a key.
type Report struct {
	Status   string    `json:"status"`
	Error    string    `json:"error,omitempty"`
	Sequence int64     `json:"sequence,omitempty"`
	Time     time.Time `json:"time"`
}

// statuses that may be reported.
var statuses = []string{"healing", "ready", "broken"}

// creating is the status before anything was reported.
const creating = "creating"

// reports keeps the last report of each key.
type reports struct {
	path string

	mu   sync.Mutex
	seen atomicfile.Seen   // of the file that was read; guarded by mu
	sum  [sha256.Size]byte // of its content, while it is too young to be known by seen; guarded by mu
	last map[string]Report // by key; never changed once it is here; guarded by mu
}

// read returns the reports by key, which nobody may change. It costs little while they
// are the same: whoever has a key may ask as often as it likes. r.mu is held.
func (r *reports) read() (map[string]Report, error) {
	seen, err := atomicfile.Look(r.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		r.seen, r.sum, r.last = atomicfile.Seen{}, [sha256.Size]byte{}, nil
		return nil, nil
	case err != nil:
		return nil, err
	case r.seen.Same(seen):
		return r.last, nil
	}
	data, err := atomicfile.Read(r.path, maxReportsFile)
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(data); sum != r.sum {
		all := map[string]Report{}
		if err := json.Unmarshal(data, &all); err != nil {
			return nil, fmt.Errorf("%s is damaged (%w); remove it", r.path, err)
		}
		r.sum, r.last = sum, all
	}
	r.seen = seen
	return r.last, nil
}

// set stores a report, unless a later one is there. Keys that are not among live are
// forgotten. live is asked once no other server can make a key: the report of one that was
// made meanwhile would be forgotten.
func (r *reports) set(key string, rep Report, live func() ([]Key, error)) error {
	unlock, err := lockDir(filepath.Dir(r.path))
	if err != nil {
		return err
	}
	defer unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	all, err := r.read()
	if err != nil {
		return err
	}
	last := all[key]
	// a clock that was set back is no reason either
	if rep.Sequence > 0 && last.Sequence > rep.Sequence && rep.Time.Sub(last.Time).Abs() < stale {
		return nil
	}
	keys, err := live()
	if err != nil {
		return err
	}
	next := map[string]Report{}
	for _, k := range keys {
		if one, ok := all[k.ID]; ok {
			next[k.ID] = one
		}
		if k.ID == key {
			next[k.ID] = rep
		}
	}
	data, err := json.Marshal(next)
	if err != nil {
		return err
	}
	if err := atomicfile.Synced(r.path, data, 0o600); err != nil {
		return err
	}
	r.seen, r.sum, r.last = atomicfile.Seen{}, sha256.Sum256(data), next
	return nil
}

// all are the reports by key, which nobody may change.
func (r *reports) all() (map[string]Report, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.read()
}

func (r *reports) get(key string) (Report, error) {
	all, err := r.all()
	return lastOf(all, key), err
}

// lastOf is the last report of a key.
func lastOf(all map[string]Report, key string) Report {
	if rep, ok := all[key]; ok {
		return rep
	}
	return Report{Status: creating}
}

// authorize returns the key that a request shows as its bearer token.
func (f *Face) authorize(r *http.Request) (*Key, error) {
	token := protocol.Bearer(r)
	if token == "" {
		return nil, &refusal{status: http.StatusUnauthorized, text: "Missing authorization"}
	}
	key, err := f.keys.find(token)
	if err == nil && key == nil {
		err = &refusal{status: http.StatusUnauthorized, text: "Invalid token"}
	}
	return key, err
}

// keyed is a handler for whoever shows a key.
func (f *Face) keyed(h func(w http.ResponseWriter, r *http.Request, key *Key) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, err := f.authorize(r)
		if err == nil {
			err = h(w, r, key)
		}
		if err != nil {
			said, ok := errors.AsType[*refusal](err)
			if !ok {
				f.log.Error("report of a sandbox", "err", err)
				said = &refusal{status: http.StatusInternalServerError, text: "the report could not be kept or read; the server's log says why"}
			}
			writeRefusal(w, said)
		}
	})
}

func (f *Face) heal(w http.ResponseWriter, r *http.Request, key *Key) error {
	var m struct {
		Status   any    `json:"status"`
		Error    any    `json:"error"`
		Sequence *int64 `json:"sequence"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxReport)).Decode(&m); err != nil {
		return &refusal{status: http.StatusBadRequest,
			text: fmt.Sprintf("the body must be a JSON object of at most %d bytes with status, error and sequence", maxReport)}
	}
	status, _ := m.Status.(string)
	if !slices.Contains(statuses, status) {
		return &refusal{status: http.StatusBadRequest, text: "Invalid status. Must be one of: " + strings.Join(statuses, ", ")}
	}
	rep := Report{Status: status, Time: f.now().UTC()}
	if m.Sequence != nil {
		if rep.Sequence = *m.Sequence; rep.Sequence < 0 {
			return &refusal{status: http.StatusBadRequest, text: fmt.Sprintf("sequence is %d; it must be 0 or more", rep.Sequence)}
		}
	}
	if status == "broken" {
		text, _ := m.Error.(string)
		if rep.Error = clip(text, maxError); text == "" {
			rep.Error = "Auto-heal failed"
		}
	}
	if err := f.keep(key, rep); err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, map[string]bool{"ok": true})
	return nil
}

// keep stores a report, at most so many of a key.
func (f *Face) keep(key *Key, rep Report) error {
	f.mu.Lock()
	wait := f.visitsOf(key).reported.admit(f.now(), mostReports)
	f.mu.Unlock()
	if wait > 0 {
		return &refusal{status: http.StatusTooManyRequests,
			text: fmt.Sprintf("%d reports of a key are taken in a minute; send the newest one later", mostReports), wait: wait}
	}
	return f.reports.set(key.ID, rep, f.keys.list)
}

func (f *Face) status(w http.ResponseWriter, _ *http.Request, key *Key) error {
	rep, err := f.reports.get(key.ID)
	if err != nil {
		return err
	}
	answer := map[string]any{"status": rep.Status, "errorMessage": nil}
	if rep.Error != "" {
		answer["errorMessage"] = rep.Error
	}
	writeJSON(w, http.StatusOK, answer)
	return nil
}

func (f *Face) retry(w http.ResponseWriter, _ *http.Request, key *Key) error {
	if err := f.keep(key, Report{Status: creating, Time: f.now().UTC()}); err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, map[string]string{"status": creating})
	return nil
}

func (f *Face) prolong(w http.ResponseWriter, _ *http.Request, key *Key) error {
	f.extend(key)
	w.WriteHeader(http.StatusNoContent)
	return nil
}
