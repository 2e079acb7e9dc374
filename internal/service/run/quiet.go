package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"

	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/service/supervisor"
	"github.com/tend-run/tend/process"
)

// maxLine is how many bytes of a last line are looked at, the newest ones.
const maxLine = 4 << 10

// unread is how long output may be on its way to its reader. This role, and the one that
// moves output, may have stood still and gone on just now.
const unread = 250 * time.Millisecond

// lastLine is the newest line of output that has something in it, unfinished or not. A
// line end, or a carriage return as those who draw progress write it, begins another.
type lastLine struct {
	line []byte
	over bool // the line has its end: what comes is another one
}

func (l *lastLine) add(data []byte) {
	data = data[max(0, len(data)-2*maxLine):]
	for {
		end := bytes.IndexAny(data, "\r\n")
		piece := data
		if end >= 0 {
			piece = data[:end]
		}
		if len(bytes.TrimSpace(piece)) > 0 {
			if l.over {
				l.line, l.over = l.line[:0], false
			}
			l.line = append(l.line, piece...)
			l.line = l.line[max(0, len(l.line)-maxLine):]
		}
		if end < 0 {
			return
		}
		l.over, data = true, data[end+1:]
	}
}

// awaitQuiet tells when output stands still after a line that matches.
func (w *worker) awaitQuiet(ctx context.Context, p process.Process, n int64, rules *config.Service) {
	expr, err := regexp.Compile(string(rules.Log.Pattern))
	if err != nil {
		return // it was checked
	}
	for ctx.Err() == nil {
		err := w.follow(ctx, p, n, expr, rules)
		if err == nil || errors.Is(err, io.EOF) || errors.Is(err, process.ErrNotFound) || !w.pause(ctx) {
			return
		}
	}
}

// follow reads the output of a run from its last lines on, to its end.
func (w *worker) follow(ctx context.Context, p process.Process, n int64, expr *regexp.Regexp, rules *config.Service) error {
	quiet := rules.Log.Quiet.Std()
	in, err := p.Info(ctx)
	if err != nil {
		return err
	}
	var from [4]int64
	for _, s := range in.Streams {
		from[s.Stream] = max(s.Base, s.End-maxLine)
	}
	r, err := p.Read(ctx, process.ReadOptions{From: from})
	if err != nil {
		return err
	}
	defer r.Close()
	var last lastLine
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	due := time.Now().Add(quiet)
	wait := func(d time.Duration) {
		timer.Reset(d)
		due = time.Now().Add(d)
	}
	sure := false // but for what is still to be read
	for {
		ev, ok, err := r.Next()
		switch {
		case err != nil:
			return err
		case ok && ev.Kind == process.EventExited:
			return nil
		case ok:
			if ev.Kind == process.EventOutput {
				last.add(ev.Data)
				wait(quiet)
				sure = false
			}
			continue
		}
		select {
		case <-r.Ready():
		case <-ctx.Done():
			return nil
		case <-timer.C: // it is armed again by output
			late := time.Since(due)
			line := bytes.TrimSpace(last.line)
			if !expr.Match(line) {
				continue
			}
			// Output that could not come is none that is missing.
			if rest := quiet - time.Since(w.lookAt(ctx, lookedAt{key: rules.Sandbox}, nil)); rest > 0 {
				wait(rest)
				continue
			}
			if late > unread || !w.moving(ctx) {
				wait(quiet)
				sure = false
				continue
			}
			if !sure {
				wait(unread)
				sure = true
				continue
			}
			text := fmt.Sprintf("no output for %v after: %s", quiet, bytes.ToValidUTF8(line[:min(len(line), 200)], nil))
			w.tell(supervisor.Event{Kind: supervisor.Stuck, Run: n, Text: text})
		}
	}
}

// moving reports whether output comes to where it is read from, now. If not, or only just
// again, the service may have written since.
func (w *worker) moving(ctx context.Context) bool {
	if w.s.c.Moving == nil {
		return true
	}
	begin := time.Now()
	return w.s.c.Moving(ctx) == nil && time.Since(begin) <= unread
}
