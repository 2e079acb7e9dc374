package native

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/lib/errtext"
	"github.com/tend-run/tend/process"
)

// MaxWatches is how many watches of files there are at a time.
const MaxWatches = 256

// change is a line of a watch, as the package comment says.
type change struct {
	Path      string          `json:"path,omitempty"`
	Kind      string          `json:"kind,omitempty"`
	Dir       bool            `json:"dir,omitempty"`
	GoingAway bool            `json:"goingAway,omitempty"`
	Error     json.RawMessage `json:"error,omitempty"`
}

func (p plainFiles) watch() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := false
		err := p.follow(noted{w, &began}, r)
		switch {
		case err == nil:
		case !began:
			_ = p.errors.Write(w, r, watchError(err)) // fails when the client has left
		default:
			var said capture
			_ = p.errors.Write(&said, r, watchError(err)) // fails never
			_ = json.NewEncoder(w).Encode(change{Error: bytes.TrimSpace(said.Bytes())})
		}
	})
}

// capture keeps what is answered.
type capture struct {
	bytes.Buffer
	header http.Header
}

func (c *capture) WriteHeader(int) {}
func (c *capture) Header() http.Header {
	if c.header == nil {
		c.header = http.Header{}
	}
	return c.header
}

// follow sends what changes until the watch, the client or the server ends.
func (p plainFiles) follow(w noted, r *http.Request) error {
	place := p.watches.Charge(budget.Of(r.Context()).Holders()...)
	defer place.Release()
	if place.Add(1) != nil {
		return fmt.Errorf("%d watches of files are open, and no more may be; end some: %w", p.watches.Used(), process.ErrLimit)
	}
	f, name, err := p.of(r)
	if err != nil {
		return err
	}
	held := new(budget.Charge)
	held.Like(budget.Of(r.Context()))
	watch, err := f.Watch(name, files.WatchOptions{Recursive: r.URL.Query().Get("recursive") == "true", Held: held})
	if err != nil {
		return err
	}
	defer watch.Close()
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	out, lines := json.NewEncoder(w), []change{{}}
	for {
		for i := range lines {
			if err := out.Encode(&lines[i]); err != nil {
				return nil // the client has left
			}
		}
		if err := http.NewResponseController(w.ResponseWriter).Flush(); err != nil {
			return nil
		}
		if err != nil || len(lines) > 0 && lines[len(lines)-1].GoingAway {
			return err
		}
		silence := time.NewTimer(p.heartbeat)
		select {
		case <-r.Context().Done():
			return nil
		case <-p.stopping:
			lines = []change{{GoingAway: true}}
		case <-silence.C:
			lines = []change{{}}
			_, err = f.Stat(name) // the kernel says nothing of what is unmounted, as that of a sandbox that ends
		case <-watch.Ready():
			lines, err = changesOf(watch)
		}
		silence.Stop()
	}
}

// changesOf takes what has happened. An error says why there will be no more.
func changesOf(w files.Watcher) (lines []change, err error) {
	events, err := w.Take()
	for i := range events {
		ev := &events[i]
		lines = append(lines, change{Path: text(ev.Name), Kind: strings.ToLower(ev.Op.String()), Dir: ev.Dir})
		if ev.Name == "." && (ev.Op == files.OpRemove || ev.Op == files.OpRename) {
			return lines, errtext.New("the watched directory is gone: "+w.Root(), process.ErrNotFound)
		}
	}
	return lines, err
}

func watchError(err error) error {
	for _, known := range []struct{ files, wire error }{{files.ErrOverflow, process.ErrLagged}, {files.ErrWatchLimit, process.ErrLimit}} {
		if errors.Is(err, known.files) {
			return wireError(errtext.New(err.Error(), known.wire))
		}
	}
	if errors.Is(err, files.ErrNetworkMount) {
		return wireError(connect.NewError(connect.CodeFailedPrecondition, err))
	}
	return fileError(err)
}
