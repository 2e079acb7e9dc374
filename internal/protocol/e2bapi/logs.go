package e2bapi

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/view"
	"github.com/tend-run/tend/process"
)

const (
	defaultLogs = 1000 // lines of an answer
	maxLogs     = 1000
	logsAtOnce  = 4 // requests; each takes some 50 MB at most
	// logPatience is how long a client may take for an answer.
	logPatience = time.Minute
)

type logLine struct {
	Timestamp string `json:"timestamp"`
	Line      string `json:"line"`
}

type logEntry struct {
	Timestamp string            `json:"timestamp"`
	Message   string            `json:"message"`
	Level     string            `json:"level"`
	Fields    map[string]string `json:"fields"`
}

// levels of a log, the least first. What a program writes to stderr is an error: it is what
// people look for.
var levels = []string{"debug", "info", "warn", "error"}

const (
	info = 1 + iota
	warn
	severe
)

func levelOf(e *view.LogEntry) int {
	switch {
	case e.Kind == view.LogLost, e.Kind == view.LogMore, e.Kind == view.LogEnded && e.Of.Exit.ShellStatus() != 0:
		return warn
	case e.Kind == view.LogLine && e.Stream == process.Stderr:
		return severe
	}
	return info
}

// logJSON is an entry as clients get it.
func logJSON(e *view.LogEntry) logEntry {
	l := logEntry{Timestamp: stamp(e.Time), Message: e.Text, Level: levels[levelOf(e)], Fields: map[string]string{}}
	if e.Of != nil {
		l.Fields["process"], l.Fields["pid"] = string(e.Of.ID), strconv.Itoa(e.Of.PID)
	}
	switch e.Kind {
	case view.LogBegan:
		l.Message = "started: " + e.Text
	case view.LogEnded:
		l.Message = "ended: " + e.Text
	case view.LogLine, view.LogLost:
		l.Fields["stream"] = e.Stream.String()
	}
	return l
}

// logWanted is what a request wants of a log.
type logWanted struct {
	view.LogOptions
	least  int // level
	search string
}

func (l *logWanted) matches(level int, text string) bool {
	return level >= l.least && strings.Contains(text, l.search)
}

// logQuery reads what a request wants of a log; from is the name of a time in
// unix milliseconds.
func logQuery(q url.Values, from string) (*logWanted, error) {
	l := &logWanted{search: q.Get("search")}
	l.Limit = defaultLogs
	at, given, err1 := number(q, from, 0, 1<<50)
	if given {
		l.From = time.UnixMilli(at)
	}
	limit, given, err2 := number(q, "limit", 0, maxLogs)
	if given {
		l.Limit = max(1, int(limit))
	}
	var err3, err4 error
	switch direction := q.Get("direction"); direction {
	case "", "forward":
	case "backward":
		l.Backward = true
		if given := !l.From.IsZero(); given { // all of that millisecond
			l.From = l.From.Add(time.Millisecond - 1)
		}
	default:
		err3 = badRequest("direction is %.40q; forward and backward are allowed", direction)
	}
	if l.least = slices.Index(levels, cmp.Or(q.Get("level"), levels[0])); l.least < 0 {
		err4 = badRequest("level is %.40q; debug, info, warn and error are allowed", q.Get("level"))
	}
	if len(l.search) > 256 {
		err4 = badRequest("search has %d bytes; the limit is 256", len(l.search))
	}
	l.Match = func(e *view.LogEntry) bool { return l.matches(levelOf(e), e.Text) }
	return l, cmp.Or(err1, err2, err3, err4)
}

// writeLogs answers with the log of a sandbox: what its processes have done and written, as
// the lists of the given names. Few are read at a time, and as few are in flight: one that
// nobody takes is given up.
func (f *Face) writeLogs(w http.ResponseWriter, r *http.Request, q *logWanted, lists ...logList) error {
	s, sandbox, err := f.find(r)
	if err != nil {
		return err
	}
	select {
	case f.logging <- struct{}{}:
	case <-r.Context().Done():
		return r.Context().Err()
	}
	defer func() { <-f.logging }()
	entries, err := view.Log(r.Context(), s.Processes(), process.Filter{}, q.LogOptions)
	if errors.Is(err, driver.ErrNotFound) {
		return noSandbox(string(sandbox.ID))
	}
	if err != nil {
		return err
	}
	conn := http.NewResponseController(w)
	if conn.SetWriteDeadline(time.Now().Add(logPatience)) == nil {
		defer func() { _ = conn.SetWriteDeadline(time.Time{}) }()
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	// As JSON a log can have several times its size, so it is never there as a whole.
	b := bufio.NewWriterSize(w, 64<<10)
	before := "{"
	for _, list := range lists {
		fmt.Fprintf(b, "%s%q:[", before, list.name)
		for i := range entries {
			if i > 0 {
				_ = b.WriteByte(',')
			}
			one, err := json.Marshal(list.of(logJSON(&entries[i])))
			if err == nil { // always: it is our own type
				_, err = b.Write(one)
			}
			if err != nil {
				panic(http.ErrAbortHandler) // the client has left, or takes nothing: no half answer looks whole
			}
		}
		before = "],"
	}
	_, _ = b.WriteString("]}")
	if b.Flush() != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}

// logList is one list of an answer: its name, and what an entry is in it.
type logList struct {
	name string
	of   func(logEntry) any
}

func asEntry(e logEntry) any { return e }

// asLine is a record as JSON inside of a line, which E2B's command line decodes again: it
// shows level, logger and message, and each other field as text.
func asLine(e logEntry) any {
	record := map[string]string{"timestamp": e.Timestamp, "level": e.Level, "logger": "process", "message": e.Message}
	maps.Copy(record, e.Fields)
	line, _ := json.Marshal(record) // strings alone are always JSON
	return logLine{e.Timestamp, string(line)}
}

func (f *Face) logs(w http.ResponseWriter, r *http.Request) error {
	q, err := logQuery(r.URL.Query(), "start")
	if err != nil {
		return err
	}
	return f.writeLogs(w, r, q, logList{"logEntries", asEntry}, logList{"logs", asLine})
}

func (f *Face) logsV2(w http.ResponseWriter, r *http.Request) error {
	q, err := logQuery(r.URL.Query(), "cursor")
	if err != nil {
		return err
	}
	return f.writeLogs(w, r, q, logList{"logs", asEntry})
}
