package langsmith

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/process"
)

// maxPending is how much input may wait for a process that does not read.
// While there is more, no message of the connection is read.
const maxPending = 16 << 20

// inputQueue feeds one process in the order in which the messages of all connections
// were read. Messages that must not wait behind input, such as kill, do not go
// through it. It has a goroutine only while there is something to feed.
type inputQueue struct {
	proc process.Process
	log  *slog.Logger
	held budget.Charge   // for parts
	wg   *sync.WaitGroup // owns the feeding goroutine
	ctx  context.Context // ends with the face: accepted input is fed although its client has left
	refs int             // connections and the feeding goroutine; guarded by Face.mu

	mu      sync.Mutex
	room    *sync.Cond
	parts   []process.Input // guarded by mu
	pending int             // bytes in parts; guarded by mu
	running bool            // guarded by mu
	closed  bool            // the process takes no more; guarded by mu
}

// inputOf returns the queue of a process. Give it up with dropInput.
func (f *Face) inputOf(p process.Process, of budget.Holder) *inputQueue {
	f.mu.Lock()
	defer f.mu.Unlock()
	q := f.queues[p.ID()]
	if q == nil {
		q = &inputQueue{proc: p, log: f.log, wg: &f.inputs, ctx: f.feeding}
		q.held.On(f.budget, of)
		q.room = sync.NewCond(&q.mu)
		f.queues[p.ID()] = q
	}
	q.refs++
	return q
}

func (f *Face) dropInput(q *inputQueue) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if q.refs--; q.refs == 0 {
		delete(f.queues, q.proc.ID())
	}
}

// put appends input. It waits while too much is pending, and refuses what there is no room
// for at all.
func (q *inputQueue) put(f *Face, in process.Input) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.pending > maxPending && !q.closed {
		q.room.Wait()
	}
	if q.closed {
		return nil // like writing to a pipe that nobody reads: it does no harm
	}
	if busy, ok := errors.AsType[*budget.BusyError](q.held.Add(int64(len(in.Data)))); ok {
		return tryLater(busy)
	}
	q.parts = append(q.parts, in)
	q.pending += len(in.Data)
	if !q.running {
		q.running = true
		f.inputOf(q.proc, budget.Holder{}) // the goroutine's own reference
		q.wg.Go(func() {
			defer f.dropInput(q)
			q.run()
		})
	}
	return nil
}

func (q *inputQueue) run() {
	for {
		q.mu.Lock()
		if len(q.parts) == 0 || q.closed {
			q.running, q.parts, q.pending = false, nil, 0
			q.held.Release()
			q.room.Broadcast()
			q.mu.Unlock()
			return
		}
		in := q.parts[0]
		q.parts = q.parts[1:]
		q.mu.Unlock()
		_, err := q.proc.Write(q.ctx, in)
		q.mu.Lock()
		q.pending -= len(in.Data)
		q.held.Give(int64(len(in.Data)))
		if err != nil {
			q.closed = true
		}
		q.room.Broadcast()
		q.mu.Unlock()
		if err != nil && !errors.Is(err, process.ErrExited) && !errors.Is(err, process.ErrStdinClosed) &&
			!errors.Is(err, process.ErrNotFound) && q.ctx.Err() == nil {
			q.log.Warn("input not delivered", slog.String("id", string(q.proc.ID())), slog.Any("err", err))
		}
	}
}

// drop gives up what is pending: the process is to be killed.
func (q *inputQueue) drop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.room.Broadcast()
}
