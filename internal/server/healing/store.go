package healing

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/heal/checkpoint"
	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/internal/service/config"
)

const (
	declaredFile = "declared.json"
	stateFile    = "state.json"
	reportFile   = "report.json"
	episodesDir  = "episodes"
	maxFile      = 4 << 20
	keepEpisodes = 50
)

// declaration names the service that the healer is for.
type declaration struct {
	Healer  *config.Healer `json:"healer"`
	Service string         `json:"service"`
	// Sandbox and User are those of the service.
	Sandbox string `json:"sandbox,omitempty"`
	User    string `json:"user,omitempty"`
	// File that declares the services: the healer must not change it.
	File string `json:"file"`
	healer.Secrets
	// ReportKey goes with the report.
	ReportKey string `json:"report_key,omitempty"`
}

// state is what another server must know to go on.
type state struct {
	Breaker healer.Breaker `json:"breaker"`
	// Episode that is under way; "": none.
	Episode string `json:"episode,omitempty"`
	// Newest is the newest one, which may be over.
	Newest string `json:"newest,omitempty"`
	// Ended is the status with which it ended.
	Ended healer.Status `json:"ended,omitempty"`
	// Last is the newest repair that may not last; nil: there is none.
	Last *last `json:"last,omitempty"`
}

// last is a repair that is taken back if its fault comes back until a time.
type last struct {
	healer.Back
	SandboxID string    `json:"sandbox_id,omitempty"`
	Until     time.Time `json:"until"`
}

type store struct{ dir string }

func (s store) path(name string) string { return filepath.Join(s.dir, name) }

func (s store) episode(id string) string { return filepath.Join(s.dir, episodesDir, id) }

// load reads a file into v; false: there is none.
func (s store) load(name string, v any) (bool, error) {
	data, err := atomicfile.Read(s.path(name), maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, json.Unmarshal(data, v)
}

func (s store) save(name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return atomicfile.Synced(s.path(name), data, 0o600)
}

// episodes are the IDs that there are, the newest first.
func (s store) episodes() []string { return s.ids(episodesDir) }

// chats are those of chats.
func (s store) chats() []string { return s.ids(chatsDir) }

// ids are those of the directories in one, the newest first: an ID begins with its time.
func (s store) ids(of string) (ids []string) {
	entries, _ := os.ReadDir(s.path(of)) // none, if there is no directory
	for _, e := range entries {
		if e.IsDir() && validID(e.Name()) {
			ids = append(ids, e.Name())
		}
	}
	slices.Sort(ids)
	slices.Reverse(ids)
	return ids
}

// old are the IDs beyond the newest ones, the newest of them first.
func (s store) old() []string {
	ids := s.episodes()
	return ids[min(keepEpisodes, len(ids)):]
}

// hasPoints reports whether an episode has a checkpoint, or a chat, by its directory: one that
// was taken, or one that somebody began to take or to remove. Copies that are kept are none.
func hasPoints(dir string) bool {
	points := filepath.Join(dir, healer.PointsDir, "*")
	left, _ := filepath.Glob(filepath.Join(points, "*.json"))
	begun, _ := filepath.Glob(filepath.Join(points, checkpoint.StoreDir))
	return len(left)+len(begun) > 0
}

// newID makes the ID of an episode that begins. IDs sort by time to the millisecond; one
// episode of a service may follow another within the second.
func newID(now time.Time) string {
	return strings.ReplaceAll(now.UTC().Format("20060102-150405.000"), ".", "-") + "-" + strings.ToLower(rand.Text()[:6])
}

func validID(id string) bool {
	return len(id) > 0 && len(id) <= 64 && !slices.ContainsFunc([]byte(id), func(c byte) bool {
		return !(c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c == '-')
	})
}
