package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/tend-run/tend/internal/lib/atomicfile"
)

const (
	// keepDays is how many days lines are kept, and maxDay how many bytes of one.
	keepDays = 31
	maxDay   = 256 << 20
	dayForm  = "2006-01-02"
	// maxLine bounds a line, in bytes; longer ones are none of ours, and are passed over.
	maxLine = 1 << 20
	// maxLogged is how many bytes of a model's name are in a line.
	maxLogged = 128
)

// Line is the stored record of a request.
type Line struct {
	Time     time.Time `json:"time"`
	Key      string    `json:"key"` // its ID
	Provider string    `json:"provider"`
	Model    string    `json:"model,omitempty"`
	Status   int       `json:"status"`
	// In and Out are tokens; Estimated: the provider counted none.
	In        int64 `json:"in"`
	Out       int64 `json:"out"`
	Estimated bool  `json:"estimated,omitempty"`
	// Millis is its duration, to the end of the answer.
	Millis int64 `json:"ms"`
}

// Used is the usage of a key in a day.
type Used struct {
	Requests, Tokens int64
	Last             time.Time
}

// ledger counts what keys use. What counts are the lines of the day's file, whoever has
// written them.
type ledger struct {
	dir string
	now func() time.Time

	mu   sync.Mutex
	day  string           // of used; guarded by mu
	at   int64            // how much of the file was read; guarded by mu
	used map[string]*Used // by key; guarded by mu
	// flying are tokens that requests in flight may still use, by key; guarded by mu.
	flying map[string]int64
	// unwritten are the tokens of lines that a full disk did not take, by key; of the day,
	// guarded by mu. torn: the end of the file may be a part of one.
	unwritten map[string]int64
	torn      bool
}

func openLedger(dir string, now func() time.Time) *ledger {
	return &ledger{dir: dir, now: now, flying: map[string]int64{}}
}

var errFull = errors.New("the log of today's requests is full; it begins anew at midnight UTC")

func (l *ledger) path(day string) string { return filepath.Join(l.dir, "usage-"+day+".jsonl") }

// read takes in the lines that have come. l.mu is held.
func (l *ledger) read() error {
	if day := l.now().UTC().Format(dayForm); day != l.day {
		l.day, l.at, l.used, l.unwritten = day, 0, map[string]*Used{}, map[string]int64{}
		l.clear()
	}
	f, err := atomicfile.Open(l.path(l.day), os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	for {
		chunk, err := io.ReadAll(io.NewSectionReader(f, l.at, maxLine))
		if err != nil {
			return err
		}
		end := bytes.LastIndexByte(chunk, '\n') + 1
		switch {
		case end == 0 && len(chunk) == maxLine:
			end = maxLine
		case end == 0:
			return nil
		}
		for text := range bytes.Lines(chunk[:end]) {
			var line Line
			if json.Unmarshal(text, &line) != nil {
				continue // a write that a full disk has cut short
			}
			u := l.used[line.Key]
			if u == nil {
				u = new(Used)
				l.used[line.Key] = u
			}
			u.Requests++
			u.Tokens += line.In + line.Out
			u.Last = line.Time
		}
		l.at += int64(end)
	}
}

// clear removes the files of days that are over for long.
func (l *ledger) clear() {
	oldest := l.now().UTC().AddDate(0, 0, -keepDays).Format(dayForm)
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return // the next day tries again
	}
	for _, e := range entries {
		day, ok := strings.CutPrefix(e.Name(), "usage-")
		if day, ok2 := strings.CutSuffix(day, ".jsonl"); ok && ok2 && day < oldest {
			_ = os.Remove(filepath.Join(l.dir, e.Name()))
		}
	}
}

// of returns what a key has used today.
func (l *ledger) of(key string) (Used, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.read(); err != nil {
		return Used{}, err
	}
	if u := l.used[key]; u != nil {
		return *u, nil
	}
	return Used{}, nil
}

// all is what each key has used today.
func (l *ledger) all() (map[string]Used, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.read(); err != nil {
		return nil, err
	}
	out := make(map[string]Used, len(l.used))
	for key, u := range l.used {
		out[key] = *u
	}
	return out, nil
}

// begin lets a request use up to most tokens, if the key has any left; 0: no limit.
func (l *ledger) begin(key string, limit, most int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.read(); err != nil {
		return err
	}
	if l.at >= maxDay {
		return errFull
	}
	var used int64
	if u := l.used[key]; u != nil {
		used = u.Tokens
	}
	used += l.unwritten[key]
	if limit > 0 && used+l.flying[key] >= limit {
		return &spentError{limit: limit, running: used < limit, now: l.now()}
	}
	l.flying[key] += most
	return nil
}

// spentError: a key has used up its tokens.
type spentError struct {
	limit   int64
	running bool // some are left, for which requests run
	now     time.Time
}

func (e *spentError) Error() string {
	if e.running {
		return fmt.Sprintf("what is left of the %d tokens that this key may use a day is kept for its requests that run; try again when one of them has ended", e.limit)
	}
	return fmt.Sprintf("the %d tokens that this key may use a day are used up; there are new ones at midnight UTC", e.limit)
}

// wait is how long it is until then.
func (e *spentError) wait() time.Duration {
	if e.running {
		return time.Second
	}
	return e.now.UTC().Truncate(24 * time.Hour).Add(24 * time.Hour).Sub(e.now)
}

// end writes the line of a request that begin let begin with most tokens.
func (l *ledger) end(line Line, most int64) error {
	line.Time = l.now().UTC()
	line.Model = clip(line.Model, maxLogged)
	text, err := json.Marshal(line)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.flying[line.Key] -= most; l.flying[line.Key] <= 0 {
		delete(l.flying, line.Key)
	}
	if err := l.write(line.Time.Format(dayForm), append(text, '\n')); err != nil {
		if l.unwritten != nil { // the day has begun
			l.unwritten[line.Key] += line.In + line.Out
		}
		return fmt.Errorf("log a request: %w", err)
	}
	return nil
}

// write appends a line. A part of one that a full disk has left must not spoil it. l.mu is held.
func (l *ledger) write(day string, text []byte) error {
	f, err := atomicfile.Open(l.path(day), os.O_WRONLY|os.O_APPEND|os.O_CREATE)
	if err != nil {
		return err
	}
	if l.torn {
		text = append([]byte{'\n'}, text...)
	}
	_, err = f.Write(text)
	l.torn = err != nil
	return errors.Join(err, f.Close())
}

// clip is the beginning of a text: n bytes at most, and whole characters.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
