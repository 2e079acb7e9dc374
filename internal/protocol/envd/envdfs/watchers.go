package envdfs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/tend-run/tend/internal/files"
	pb "github.com/tend-run/tend/internal/gen/envd/filesystem"
	"github.com/tend-run/tend/internal/lib/budget"
)

// watchers are the polled watchers. Each ends when it is removed, when nobody
// has asked it for the idle time, or with the Face.
type watchers struct {
	places *budget.Budget // has one for each
	idle   time.Duration

	mu     sync.Mutex
	byID   map[string]*watcher // guarded by mu
	closed bool                // guarded by mu
	// ending counts timers that are closing a watch.
	ending sync.WaitGroup
}

type watcher struct {
	watch files.Watcher
	place *budget.Charge
	timer *time.Timer // ends the watcher; reset by each question
}

func newWatchers(max int, idle time.Duration) *watchers {
	return &watchers{places: budget.New(int64(max)), idle: idle, byID: make(map[string]*watcher)}
}

// add keeps the watch under a new id, which cannot be guessed.
func (ws *watchers) add(w files.Watcher, holders ...budget.Holder) (string, error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.closed {
		return "", connect.NewError(connect.CodeUnavailable, errors.New("the server is stopping; watch again"))
	}
	place := ws.places.Charge(holders...)
	if place.Add(1) != nil {
		return "", connect.NewError(connect.CodeResourceExhausted, fmt.Errorf(
			"%d watchers exist, which is the limit, or as many of this sandbox as it may have; remove one", len(ws.byID)))
	}
	id := "w" + rand.Text()
	ws.byID[id] = &watcher{watch: w, place: place, timer: time.AfterFunc(ws.idle, func() { ws.expire(id) })}
	return id, nil
}

// get returns the watch and puts off its end.
func (ws *watchers) get(id string) (files.Watcher, bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w, ok := ws.byID[id]
	if !ok {
		return nil, false
	}
	w.timer.Reset(ws.idle)
	return w.watch, true
}

// remove removes the watcher, for the caller to close.
func (ws *watchers) remove(id string) (files.Watcher, bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w, ok := ws.byID[id]
	if !ok {
		return nil, false
	}
	delete(ws.byID, id)
	w.place.Release()
	w.timer.Stop()
	return w.watch, true
}

// expire runs on the timer's goroutine, which close waits for.
func (ws *watchers) expire(id string) {
	ws.mu.Lock()
	w, ok := ws.byID[id]
	if ok {
		delete(ws.byID, id)
		w.place.Release()
		ws.ending.Add(1)
	}
	ws.mu.Unlock()
	if ok {
		defer ws.ending.Done()
		// No client is left to answer.
		_ = w.watch.Close()
	}
}

func (ws *watchers) close() error {
	ws.mu.Lock()
	ws.closed = true
	left := ws.byID
	ws.byID = make(map[string]*watcher)
	ws.mu.Unlock()
	var err error
	for _, w := range left {
		w.timer.Stop()
		err = errors.Join(err, w.watch.Close())
	}
	ws.ending.Wait()
	return err
}

func (s service) CreateWatcher(ctx context.Context,
	req *connect.Request[pb.CreateWatcherRequest]) (*connect.Response[pb.CreateWatcherResponse], error) {
	w, err := s.f.watch(ctx, req.Header(), req.Msg)
	if err != nil {
		return nil, err
	}
	id, err := s.f.watchers.add(w, budget.Of(ctx).Holders()...)
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return connect.NewResponse(&pb.CreateWatcherResponse{WatcherId: id}), nil
}

// GetWatcherEvents returns the events since the last call. After an overflow
// it returns the events before it, then the error, and then the watcher is
// gone: a client cannot miss that some were lost.
func (s service) GetWatcherEvents(_ context.Context,
	req *connect.Request[pb.GetWatcherEventsRequest]) (*connect.Response[pb.GetWatcherEventsResponse], error) {
	id := req.Msg.GetWatcherId()
	w, ok := s.f.watchers.get(id)
	if !ok {
		return nil, noWatcher(id)
	}
	events, err := w.Take()
	if err != nil && len(events) == 0 {
		if w, ok := s.f.watchers.remove(id); ok {
			err = errors.Join(err, w.Close())
		}
		return nil, rpcError(err, nil)
	}
	res := &pb.GetWatcherEventsResponse{Events: make([]*pb.FilesystemEvent, len(events))}
	for i := range events {
		res.Events[i] = fsEvent(&events[i])
	}
	return connect.NewResponse(res), nil
}

func (s service) RemoveWatcher(_ context.Context,
	req *connect.Request[pb.RemoveWatcherRequest]) (*connect.Response[pb.RemoveWatcherResponse], error) {
	id := req.Msg.GetWatcherId()
	w, ok := s.f.watchers.remove(id)
	if !ok {
		return nil, noWatcher(id)
	}
	if err := w.Close(); err != nil {
		return nil, rpcError(err, nil)
	}
	return connect.NewResponse(&pb.RemoveWatcherResponse{}), nil
}

func noWatcher(id string) error {
	return connect.NewError(connect.CodeNotFound, fmt.Errorf("watcher with id %.64s not found", id))
}
