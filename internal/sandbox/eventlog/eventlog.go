// Package eventlog keeps what has become of sandboxes: the last events, for [Age] at most, also
// over restarts of the server. Whoever follows them reads from a number on, at their own pace.
//
// The file has a line of JSON for each event. It is not forced to the disk: after a loss of
// power the last events may be missing. A line that is torn is left out.
package eventlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/internal/sandbox/driver"
)

// Bounds of what is kept. The oldest go first.
const (
	Age       = 7 * 24 * time.Hour
	MaxEvents = 10_000
	MaxBytes  = 8 << 20  // of their lines
	maxTexts  = 32 << 10 // bytes of the metadata of one; more is left out
)

// Event is what is kept of one. The JSON names are the format on disk.
type Event struct {
	// Seq grows from event to event, also over restarts.
	Seq      int64            `json:"seq"`
	ID       string           `json:"id"`
	Kind     driver.EventKind `json:"kind"`
	Time     time.Time        `json:"time"`
	Sandbox  driver.ID        `json:"sandbox"`
	Template string           `json:"template,omitempty"`
	// Run identifies the time from a creation, or from a resumption, on: a UUID.
	Run      string            `json:"run"`
	Metadata map[string]string `json:"metadata,omitempty"`
	// Omitted: the metadata was too large.
	Omitted  bool       `json:"omitted,omitempty"`
	Reason   string     `json:"reason,omitempty"`
	Deadline *time.Time `json:"deadline,omitempty"` // that was set
	Allow    []string   `json:"allow,omitempty"`    // rules that were set
	Deny     []string   `json:"deny,omitempty"`
	Network  bool       `json:"network,omitempty"` // they were
}

// Log is safe for concurrent use.
type Log struct {
	path string
	log  *slog.Logger

	mu      sync.Mutex
	events  []Event              // oldest first; guarded by mu, as all below
	sizes   []int                // of their lines
	bytes   int                  // the sum of sizes
	written int                  // bytes in the file
	last    int64                // the newest Seq ever
	runs    map[driver.ID]string // of sandboxes that there are
	changed chan struct{}        // closed at the next event
}

// Open reads a log, or begins one.
func Open(path string, log *slog.Logger) (*Log, error) {
	l := &Log{path: path, log: log, runs: map[driver.ID]string{}, changed: make(chan struct{})}
	text, err := atomicfile.Read(path, 4*MaxBytes)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("events of sandboxes: %w", err)
	}
	for line := range bytes.Lines(text) {
		var e Event
		if json.Unmarshal(line, &e) == nil && e.Seq > l.last {
			l.keep(e, len(line))
		}
	}
	l.drop(time.Now())
	return l, l.rewrite()
}

// keep takes an event in. mu is held.
func (l *Log) keep(e Event, size int) {
	l.events, l.sizes, l.bytes, l.last = append(l.events, e), append(l.sizes, size), l.bytes+size, e.Seq
	if l.runs[e.Sandbox] = e.Run; e.Kind == driver.EventDestroyed {
		delete(l.runs, e.Sandbox)
	}
}

// drop forgets what is too old or too much. mu is held.
func (l *Log) drop(now time.Time) {
	n := 0
	for n < len(l.events) && (len(l.events)-n > MaxEvents || l.bytes > MaxBytes || now.Sub(l.events[n].Time) > Age) {
		l.bytes -= l.sizes[n]
		n++
	}
	clear(l.events[:n])
	l.events, l.sizes = l.events[n:], l.sizes[n:]
}

// rewrite has the file hold what is kept. mu is held.
func (l *Log) rewrite() error {
	var text []byte
	for i := range l.events {
		line, err := json.Marshal(&l.events[i])
		if err != nil { // impossible: our own type
			return err
		}
		text = append(append(text, line...), '\n')
	}
	l.written = len(text)
	return atomicfile.File(l.path, text, 0o600)
}

// Add takes an event in. It is a driver.Tell.
func (l *Log) Add(d driver.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := Event{
		Seq: max(l.last+1, d.Time.UnixMicro()), ID: d.ID, Kind: d.Kind, Time: d.Time, Sandbox: d.Info.ID, Template: d.Info.E2BTemplate,
		Run: l.runs[d.Info.ID], Metadata: maps.Clone(d.Info.Metadata), Reason: d.Reason,
	}
	if e.Template == "" {
		e.Template = d.Info.TemplateID
	}
	if e.Run == "" || e.Kind == driver.EventCreated || e.Kind == driver.EventResumed {
		e.Run = string(container.NewUUID())
	}
	texts := 0
	for k, v := range e.Metadata {
		texts += len(k) + len(v)
	}
	if texts > maxTexts {
		e.Metadata, e.Omitted = nil, true
	}
	if d.Deadline {
		e.Deadline = &d.Info.Deadline
	}
	if d.Network {
		e.Network, e.Allow, e.Deny = true, slices.Clone(d.Info.Network.Allow), slices.Clone(d.Info.Network.Deny)
	}
	line, err := json.Marshal(&e)
	if err != nil { // impossible: our own type
		return
	}
	line = append(line, '\n')
	l.keep(e, len(line))
	l.drop(time.Now())
	if err := l.write(line); err != nil {
		l.log.Warn("an event of a sandbox is not kept over restarts", slog.Any("err", err))
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

// write appends a line, or makes the file anew when it has much that is not kept. mu is held.
func (l *Log) write(line []byte) error {
	if l.written+len(line) > 2*MaxBytes {
		return l.rewrite()
	}
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	n, err := f.Write(line)
	l.written += n
	return errors.Join(err, f.Close())
}

// Last is the Seq of the newest event; 0: there was none.
func (l *Log) Last() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// After returns the first event after a Seq. If there is none, changed is closed at the next.
func (l *Log) After(seq int64) (e Event, ok bool, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(time.Now())
	i, found := slices.BinarySearchFunc(l.events, seq, func(e Event, seq int64) int { return int(max(-1, min(1, e.Seq-seq))) })
	if found {
		i++
	}
	if i == len(l.events) {
		return Event{}, false, l.changed
	}
	return l.events[i], true, nil
}

// Query says which events List returns.
type Query struct {
	Sandbox       driver.ID                   // "": of all
	Wanted        func(driver.EventKind) bool // nil: of all kinds
	Offset, Limit int
	Ascending     bool // the oldest first; else the newest
}

// List returns events.
func (l *Log) List(q Query) []Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(time.Now())
	found := make([]Event, 0, min(q.Limit, len(l.events)))
	for i := range l.events {
		e := &l.events[i]
		if !q.Ascending {
			e = &l.events[len(l.events)-1-i]
		}
		switch {
		case q.Sandbox != "" && e.Sandbox != q.Sandbox, q.Wanted != nil && !q.Wanted(e.Kind):
		case q.Offset > 0:
			q.Offset--
		case len(found) == q.Limit:
			return found
		default:
			found = append(found, *e)
		}
	}
	return found
}
