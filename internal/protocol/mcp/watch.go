package mcp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tend-run/tend/process"
)

const (
	// maxWatches bounds the outputs that are followed for clients.
	maxWatches = 256
	// watchPause is the least time between two notifications about one output.
	watchPause = 200 * time.Millisecond
)

type watchKey struct {
	s   *sdk.Server
	uri string
}

// watches are the outputs that clients are told of: one goroutine for each, however many
// clients listen.
type watches struct {
	f  *Face
	mu sync.Mutex
	// all by server and URI; guarded by mu.
	all    map[watchKey]*watch
	closed bool // guarded by mu
	wg     sync.WaitGroup
}

type watch struct {
	listeners int
	stop      func()
}

var errNoWatch = errors.New("the server is going away")

// add begins to follow what a URI names, which the caller may read.
func (w *watches) add(ctx context.Context, s *sdk.Server, uri string) error {
	c := callOf(ctx)
	p, stream, err := w.f.logOf(ctx, c, uri)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	k := watchKey{s, uri}
	one := w.all[k]
	switch {
	case w.closed:
		return errNoWatch
	case one != nil:
		one.listeners++
		return nil
	case len(w.all) >= maxWatches:
		return fmt.Errorf("%d outputs are being followed, which is the limit", maxWatches)
	}
	ctx, stop := context.WithCancel(context.Background())
	if w.all == nil {
		w.all = map[watchKey]*watch{}
	}
	w.all[k] = &watch{1, stop}
	w.wg.Go(func() {
		follow(ctx, p, stream, func() { _ = s.ResourceUpdated(ctx, &sdk.ResourceUpdatedNotificationParams{URI: uri}) })
	})
	return nil
}

// follow calls told after output has come, and once it has ended.
func follow(ctx context.Context, p process.Process, stream process.Stream, told func()) {
	o := process.ReadOptions{Streams: []process.Stream{stream}}
	o.From[stream] = process.FromNow
	for ctx.Err() == nil {
		r, err := p.Read(ctx, o)
		for err == nil {
			var ok bool
			var ev process.Event
			if ev, ok, err = r.Next(); ok {
				if ev.Kind != process.EventStarted {
					select { // what comes meanwhile is told of, too
					case <-time.After(watchPause):
					case <-ctx.Done():
						r.Close()
						return
					}
					err = skip(r)
					told()
				}
				continue
			}
			if err == nil {
				select {
				case <-r.Ready():
				case <-ctx.Done():
					err = ctx.Err()
				}
			}
		}
		if r != nil {
			r.Close()
		}
		if !errors.Is(err, process.ErrUnavailable) {
			return // it has ended, or is gone
		}
		_ = pause(ctx)
	}
}

// skip passes over what is there.
func skip(r process.Reader) error {
	for {
		if _, ok, err := r.Next(); err != nil || !ok {
			return err
		}
	}
}

func (w *watches) remove(s *sdk.Server, uri string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := watchKey{s, uri}
	if one := w.all[k]; one != nil {
		if one.listeners--; one.listeners <= 0 {
			one.stop()
			delete(w.all, k)
		}
	}
}

func (w *watches) close() {
	w.mu.Lock()
	w.closed = true
	for k, one := range w.all {
		one.stop()
		delete(w.all, k)
	}
	w.mu.Unlock()
	w.wg.Wait()
}
