package langsmith

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/tend-run/tend/process"
)

// maxPending is how much input may wait for a process that does not read.
// While there is more, no message of the connection is read.
const maxPending = 16 << 20

// inputQueue feeds a process in order, beside the messages that must not wait
// behind input, such as kill. It runs only while there is something to feed.
type inputQueue struct {
	proc process.Process
	log  *slog.Logger
	wg   *sync.WaitGroup // owns the feeding goroutine
	ctx  context.Context // ends with the face: input that was taken is fed though its client has left

	mu      sync.Mutex
	room    *sync.Cond
	parts   []process.Input // guarded by mu
	pending int             // bytes in parts; guarded by mu
	running bool            // guarded by mu
	closed  bool            // the process takes no more; guarded by mu
}

func newInputQueue(ctx context.Context, wg *sync.WaitGroup, p process.Process, log *slog.Logger) *inputQueue {
	q := &inputQueue{proc: p, log: log, wg: wg, ctx: ctx}
	q.room = sync.NewCond(&q.mu)
	return q
}

// put appends input. It waits while too much is pending.
func (q *inputQueue) put(in process.Input) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.pending > maxPending && !q.closed {
		q.room.Wait()
	}
	if q.closed {
		return // like writing to a pipe that nobody reads: it does no harm
	}
	q.parts = append(q.parts, in)
	q.pending += len(in.Data)
	if !q.running {
		q.running = true
		q.wg.Go(q.run)
	}
}

func (q *inputQueue) run() {
	for {
		q.mu.Lock()
		if len(q.parts) == 0 || q.closed {
			q.running, q.parts, q.pending = false, nil, 0
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
		if err != nil {
			q.closed = true
		}
		q.room.Broadcast()
		q.mu.Unlock()
		if err != nil && !errors.Is(err, process.ErrExited) && !errors.Is(err, process.ErrStdinClosed) && q.ctx.Err() == nil {
			q.log.Warn("input not delivered", slog.String("id", string(q.proc.ID())), slog.Any("err", err))
		}
	}
}

// drop gives up what is pending: the process was killed.
func (q *inputQueue) drop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.room.Broadcast()
}
