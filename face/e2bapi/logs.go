package e2bapi

import (
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/tend-run/tend/driver"
)

const (
	defaultLogs = 1000 // lines of an answer
	maxLogs     = 1000
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

func logJSON(e *driver.LogEntry) logEntry {
	l := logEntry{stamp(e.Time), e.Message, e.Level, e.Fields}
	if l.Fields == nil {
		l.Fields = map[string]string{}
	}
	return l
}

// logQuery reads what a request wants of a log; from is the name of a time in
// unix milliseconds.
func logQuery(q url.Values, from string) (driver.LogQuery, error) {
	l := driver.LogQuery{Limit: defaultLogs, Level: q.Get("level"), Search: q.Get("search")}
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
	default:
		err3 = badRequest("direction is %.40q; forward and backward are allowed", direction)
	}
	switch l.Level {
	case "", "debug", "info", "warn", "error":
	default:
		err4 = badRequest("level is %.40q; debug, info, warn and error are allowed", l.Level)
	}
	if len(l.Search) > 256 {
		err4 = badRequest("search has %d bytes; the limit is 256", len(l.Search))
	}
	for _, err := range []error{err1, err2, err3, err4} {
		if err != nil {
			return l, err
		}
	}
	return l, nil
}

func (f *Face) readLogs(r *http.Request, q driver.LogQuery) ([]driver.LogEntry, error) {
	_, info, err := f.find(r)
	if err != nil {
		return nil, err
	}
	logger, ok := f.driver.(driver.Logger)
	if !ok {
		return nil, f.lacks("logs")
	}
	entries, err := logger.Logs(r.Context(), info.ID, q)
	if errors.Is(err, driver.ErrNotFound) {
		return nil, noSandbox(string(info.ID))
	}
	return entries, err
}

func (f *Face) logs(w http.ResponseWriter, r *http.Request) error {
	q, err := logQuery(r.URL.Query(), "start")
	if err != nil {
		return err
	}
	entries, err := f.readLogs(r, q)
	if err != nil {
		return err
	}
	lines, list := make([]logLine, len(entries)), make([]logEntry, len(entries))
	for i := range entries {
		lines[i], list[i] = logLine{stamp(entries[i].Time), entries[i].Message}, logJSON(&entries[i])
	}
	writeJSON(w, http.StatusOK, map[string]any{"logs": lines, "logEntries": list})
	return nil
}

func (f *Face) logsV2(w http.ResponseWriter, r *http.Request) error {
	q, err := logQuery(r.URL.Query(), "cursor")
	if err != nil {
		return err
	}
	entries, err := f.readLogs(r, q)
	if err != nil {
		return err
	}
	list := make([]logEntry, len(entries))
	for i := range entries {
		list[i] = logJSON(&entries[i])
	}
	writeJSON(w, http.StatusOK, map[string]any{"logs": list})
	return nil
}
