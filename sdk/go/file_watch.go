package tend

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"connectrpc.com/connect"

	"github.com/tend-run/tend/process"
)

// FileEvent is a change in a watched directory.
type FileEvent struct {
	// Path is below the watched directory, which is "." itself.
	Path string
	Kind FileEventKind
	// Dir: what was created is a directory.
	Dir bool
}

// FileEventKind says what happened to a path.
type FileEventKind string

const (
	FileCreated FileEventKind = "create"
	FileWritten FileEventKind = "write"
	FileRemoved FileEventKind = "remove"
	FileRenamed FileEventKind = "rename" // the former name; the new one is created
	FileChmod   FileEventKind = "chmod"  // mode, owner, times or attributes
)

// FileWatcher reports the changes in a directory. One caller takes them; Close it at the end.
type FileWatcher struct {
	client *Client
	body   io.Closer
	lines  *bufio.Scanner
	cancel context.CancelCauseFunc
	life   context.Context // of this watch, which is no call
	quiet  *time.Timer
	after  time.Duration
	err    error
}

// maxLine is the most bytes of a line of a watch.
const maxLine = 1 << 20

// Watch reports the changes in a directory from its return on, and with recursive in those
// below it as well, new ones too. ctx ends the watch. On network filesystems there is no
// watch.
func (f *Files) Watch(ctx context.Context, dir string, recursive bool) (w *FileWatcher, err error) {
	query := url.Values{"path": {dir}, "user": {f.user}, "recursive": {strconv.FormatBool(recursive)}}
	err = f.do(ctx, func(c *Client) error {
		return c.repeat(ctx, "watch "+dir, never, func(*attempts) error {
			life, cancel := c.stream(ctx)
			w = &FileWatcher{client: c, cancel: cancel, life: life, after: c.silence,
				quiet: time.AfterFunc(c.silence, func() { cancel(errSilent) })}
			resp, err := c.plain(life, http.MethodGet, "Watch", query, nil)
			if err == nil {
				w.body, w.lines = resp.Body, bufio.NewScanner(resp.Body)
				w.lines.Buffer(nil, maxLine)
				_, err = w.line()
			}
			if err != nil {
				w.end(err)
			}
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return w, nil
}

// Next waits for the next change. The error matches [process.ErrLagged] if changes may be
// missing: the server kept no more of them, it went away, or the connection was lost; then
// list the directory, and watch again. It matches [fs.ErrNotExist] if the directory is gone,
// and is that of ctx, or [io.ErrClosedPipe] after Close.
func (w *FileWatcher) Next() (FileEvent, error) {
	for w.err == nil {
		ev, err := w.line()
		if err != nil {
			w.end(err)
			break
		}
		if ev.Kind != "" {
			return ev, nil
		}
	}
	return FileEvent{}, w.err
}

// Close ends the watch, and a Next that waits.
func (w *FileWatcher) Close() error {
	w.cancel(io.ErrClosedPipe)
	return nil
}

// end notes why there are no more changes.
func (w *FileWatcher) end(err error) {
	cause := context.Cause(w.life)
	switch {
	case cause != nil && !errors.Is(cause, errSilent):
		err = cause
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, process.ErrLagged):
	default:
		why := w.client.domainError(context.WithoutCancel(w.life), err)
		err = fmt.Errorf("the watch ended, and changes may be missing; list the directory, and watch again: %w: %w", process.ErrLagged, why)
	}
	w.err = err
	w.quiet.Stop()
	w.cancel(err)
	if w.body != nil {
		_ = w.body.Close() // there is nothing more in it
	}
}

// line reads the next line. Errors that another connection may not have are unavailable.
func (w *FileWatcher) line() (FileEvent, error) {
	w.quiet.Reset(w.after)
	defer w.quiet.Stop() // the time that the caller takes is not the server's
	if !w.lines.Scan() {
		err := w.lines.Err()
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		return FileEvent{}, causeOf(w.life, connect.NewError(connect.CodeUnavailable, err))
	}
	var said struct {
		FileEvent
		GoingAway bool
		Error     json.RawMessage
	}
	if err := json.Unmarshal(w.lines.Bytes(), &said); err != nil {
		return FileEvent{}, strange("a line that is no JSON: %v", err)
	}
	switch {
	case said.GoingAway:
		return FileEvent{}, errAway
	case said.Error != nil:
		return FileEvent{}, ofFile(refused(http.StatusOK, "an error", said.Error))
	}
	return said.FileEvent, nil
}
