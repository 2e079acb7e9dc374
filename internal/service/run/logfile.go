package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/process"
)

const (
	logSuffix = ".log"
	// logBatch is how much is written at once; maxLogRecord bounds the record of it.
	logBatch = 64 << 10
	// With a time before each byte, which is an empty line, a batch is 32 times as long, and in the record a third longer.
	maxLogRecord = 4 << 20
	logAgain     = 3 * time.Second
)

// logFile has the output of a service, which it takes from the processes of its runs:
//
//	DIR/NAME.log   how far the file has it (0600)
//
// The record has what is written next, and how long the file is before that. So whoever
// goes on after a death at any moment writes the rest of it, and each byte is there once.
type logFile struct {
	w     *worker
	at    config.Log
	token string
	user  string
	// sandbox has the service; "": it is on this machine.
	sandbox string
	first   int64 // the run whose output is written first
	now     logRecord
	done    logRecord     // as it was when all of the text was written
	news    chan struct{} // receives when there is another run
}

type logRecord struct {
	Path  string `json:"path"`
	Token string `json:"token"` // of the processes; a service that is declared anew has another
	// Run and From are where the output goes on behind Text.
	Run  int64    `json:"run"`
	From [4]int64 `json:"from"`
	// Open is the stream whose last line has no end yet; it has that of the newest byte.
	Open *process.Stream `json:"open,omitempty"`
	// Text is being written behind Size bytes of the file.
	Text []byte `json:"text,omitempty"`
	Size int64  `json:"size,omitempty"`
}

// keepLog has the output of a service written to its file. It is of the loop.
func (w *worker) keepLog(r *config.Service, token string, run int64) {
	at := config.Log{File: r.Log.File, Rotate: r.Log.Rotate, Keep: r.Log.Keep, Date: r.Log.Date}
	user := r.User
	if r.Sandbox != "" { // whose account is the sandbox's
		user = ""
	}
	w.newest.Store(run)
	if l := w.log; l != nil && l.at == at && l.user == user && l.sandbox == r.Sandbox {
		select {
		case l.news <- struct{}{}:
		default:
		}
		return
	}
	if w.endLog != nil {
		w.endLog()
		w.endLog, w.log = nil, nil
	}
	if at.File == "" {
		_ = os.Remove(w.s.store.path(w.name, logSuffix)) // if there is none, it was so before
		return
	}
	l := &logFile{w: w, at: at, token: token, user: user, sandbox: r.Sandbox, first: max(run, 1), news: make(chan struct{}, 1)}
	w.log = l
	ctx, cancel := context.WithCancel(w.ctx)
	done, before := make(chan struct{}), w.logEnded
	w.logEnded = done
	w.endLog = cancel
	w.s.wg.Go(func() {
		defer close(done)
		if before != nil {
			<-before // two do not write at a time
		}
		l.run(ctx)
	})
}

// run writes until ctx ends. What cannot be written is tried again: the output is kept meanwhile.
func (l *logFile) run(ctx context.Context) {
	for said := ""; ctx.Err() == nil; {
		err := l.follow(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		if text := err.Error(); text != said && !errors.Is(err, process.ErrUnavailable) {
			said = text
			l.w.s.c.Log.Error("the output of a service is not written to its file", "service", l.w.name, "err", err, "again", logAgain)
		}
		select {
		case <-time.After(logAgain):
		case <-ctx.Done():
		}
	}
}

func (l *logFile) follow(ctx context.Context) error {
	l.now = logRecord{}
	if data, err := atomicfile.Read(l.w.s.store.path(l.w.name, logSuffix), maxLogRecord); err == nil {
		_ = json.Unmarshal(data, &l.now) // one that is damaged is none
	}
	if l.now.Path != l.at.File || l.now.Token != l.token {
		l.now = logRecord{Path: l.at.File, Token: l.token, Run: l.first}
		if err := l.save(&l.now); err != nil { // it may be long until something can be written
			return err
		}
	}
	u, err := files.Account(l.user)
	if err == nil {
		err = u.Check()
	}
	if err != nil {
		return err
	}
	f := files.FS{User: u}
	if err := l.write(f); err != nil { // what another has begun
		return err
	}
	for {
		whole := false
		switch p, err := l.process(ctx); {
		case err == nil:
			if err := l.copy(ctx, f, p); err != nil {
				return err
			}
			whole = true
		case !errors.Is(err, process.ErrNotFound) && !noSandbox(err):
			return err
		}
		for newer := false; !newer; {
			if newer = l.w.newest.Load() > l.now.Run; newer {
				l.now.Run, l.now.From = l.now.Run+1, [4]int64{}
				break
			}
			select {
			case <-l.news:
			case <-time.After(logAgain):
			case <-ctx.Done():
				return nil
			}
			if !whole {
				break // it may be there by now
			}
		}
	}
}

// process is the run whose output is written.
func (l *logFile) process(ctx context.Context) (process.Process, error) {
	m := l.w.s.c.Manager
	if l.sandbox != "" {
		in, err := l.w.s.sandbox(ctx, l.sandbox)
		if err != nil {
			return nil, err
		}
		m = in.Processes()
	}
	return m.Get(ctx, process.Selector{ID: idOf(l.token, l.now.Run)})
}

// copy writes the output of a run to its end.
func (l *logFile) copy(ctx context.Context, f files.FS, p process.Process) error {
	r, err := p.Read(ctx, process.ReadOptions{From: l.now.From, Drain: -1, MaxChunk: logBatch})
	if err != nil {
		return err
	}
	defer r.Close()
	for {
		ev, ok, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			l.end(noStream) // the next run begins a line
			return l.flush(f)
		case err != nil:
			return err
		case ok:
			l.add(ev)
			if len(l.now.Text) < logBatch {
				continue
			}
		}
		if err := l.flush(f); err != nil {
			return err
		}
		if ok {
			continue
		}
		select {
		case <-r.Ready():
		case <-ctx.Done():
			return nil
		}
	}
}

// add puts what a run has written behind what is to be written.
func (l *logFile) add(ev process.Event) {
	switch ev.Kind {
	case process.EventGap:
		l.now.From[ev.Gap.Stream] = ev.Gap.To
		l.end(noStream)
		l.now.Text = fmt.Appendf(l.now.Text, "tend: %d bytes were freed before they were written here\n", ev.Gap.To-ev.Gap.From)
	case process.EventOutput:
		l.now.From[ev.Stream] = ev.Offset + int64(len(ev.Data))
		if !l.at.Date {
			l.now.Text = append(l.now.Text, ev.Data...)
			return
		}
		l.end(ev.Stream)
		for _, b := range ev.Data {
			if l.now.Open == nil {
				at := ev.Time
				if at.IsZero() {
					at = time.Now()
				}
				l.now.Text = at.AppendFormat(l.now.Text, "2006-01-02T15:04:05.000Z07:00 ")
				l.now.Open = &ev.Stream
			}
			if l.now.Text = append(l.now.Text, b); b == '\n' {
				l.now.Open = nil
			}
		}
	}
}

// noStream is none that has output.
const noStream = ^process.Stream(0)

// end ends the line of another stream that has no end: lines of two are not mixed.
func (l *logFile) end(s process.Stream) {
	if l.now.Open != nil && *l.now.Open != s {
		l.now.Text, l.now.Open = append(l.now.Text, '\n'), nil
	}
}

// flush writes what was added.
func (l *logFile) flush(f files.FS) error {
	if len(l.now.Text) == 0 {
		return nil
	}
	size, err := sizeOf(f, l.at.File)
	if err != nil {
		return err
	}
	if limit := int64(l.at.Rotate); limit > 0 && size > 0 && size+int64(len(l.now.Text)) > limit {
		// Whoever goes on after this takes the text from the run again.
		if err := l.save(&l.done); err != nil {
			return err
		}
		if err := l.rotate(f); err != nil {
			return err
		}
		size = 0
	}
	l.now.Size = size
	if err := l.save(&l.now); err != nil {
		return err
	}
	return l.write(f)
}

func (l *logFile) save(r *logRecord) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return atomicfile.File(l.w.s.store.path(l.w.name, logSuffix), data, 0o600)
}

// write writes what of the text the file does not have yet. One that has become shorter, or has more
// than that, was changed by somebody else.
func (l *logFile) write(f files.FS) error {
	defer func() {
		if len(l.now.Text) == 0 {
			l.done = l.now
			l.done.Text = nil
		}
	}()
	if len(l.now.Text) == 0 {
		return nil
	}
	size, err := sizeOf(f, l.at.File)
	if err != nil {
		return err
	}
	there := min(max(size-l.now.Size, 0), int64(len(l.now.Text)))
	if rest := l.now.Text[there:]; len(rest) > 0 {
		if err := f.Append(l.at.File, rest); err != nil {
			return err
		}
	}
	l.now.Text = l.now.Text[:0]
	return nil
}

// rotate gives the file the name FILE.1, that one FILE.2, and so on; the oldest goes.
func (l *logFile) rotate(f files.FS) error {
	if l.at.Keep == 0 {
		return f.RemoveOne(l.at.File)
	}
	name := func(n int) string {
		if n == 0 {
			return l.at.File
		}
		return fmt.Sprintf("%s.%d", l.at.File, n)
	}
	n := 0
	for ; n < l.at.Keep; n++ { // behind a name that is free, which one that has died has left, they stay
		if _, err := f.Stat(name(n)); missing(err) {
			break
		} else if err != nil {
			return err
		}
	}
	for ; n > 0; n-- {
		if _, err := f.Move(name(n-1), name(n)); err != nil {
			return err
		}
	}
	return nil
}

func missing(err error) bool {
	return errors.Is(err, files.ErrNotExist) || errors.Is(err, fs.ErrNotExist)
}

// sizeOf is that of a file; 0: it is not there yet, and its directory is made.
func sizeOf(f files.FS, path string) (int64, error) {
	e, err := f.Stat(path)
	if missing(err) {
		_, err = f.Mkdir(filepath.Dir(path))
		if errors.Is(err, files.ErrExists) {
			err = nil
		}
		return 0, err
	}
	if err == nil && e.Target != "" { // what it leads to is written
		e, err = f.Stat(e.Target)
	}
	return e.Size, err
}
