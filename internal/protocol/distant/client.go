package distant

import (
	"context"
	"sync"

	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/protocol/distant/journal"
	"github.com/tend-run/tend/internal/protocol/distant/wire"
	"github.com/tend-run/tend/process"
)

// origin says which request messages belong to, and their shape.
type origin struct {
	id   string
	bare bool
}

// outlet is the sending half of a transport. Its methods may block: what waits
// is the one source that sends, and its bytes are in the spool.
type outlet interface {
	// output sends one chunk of a stream.
	output(st *stream, ev process.Event, out protocol.Output) error
	// done sends the last message of a stream.
	done(st *stream, exit *process.Exit) error
	// event sends a message of another source.
	event(o origin, m message) error
}

// keyed gives requests a name that is the same when they are repeated, and
// remembers where input was meant to go. The native transport has it; a
// connection of lines never repeats a request.
type keyed interface {
	// started is called with a new stream, before anything of it is sent.
	started(st *stream, c call, own bool)
	// inputAt returns which of the session's bytes for a process a request
	// brings, and notes it if it comes for the first time. done: this input, and
	// some after it, was accepted before.
	inputAt(c call, id uint32, size int) (at inputPlace, done bool, err error)
	// inputAnew does the same for a request of which nothing was accepted, because
	// earlier input was not accepted either, or because the name of the writer was
	// forgotten: written is what the process has of this session.
	inputAnew(c call, id uint32, size int, written int64, forgotten bool) (inputPlace, error)
	// watching and searching are called with what begins or ends.
	watching(w journal.Watch)
	searching(s journal.Search)
}

// call is one request of a packet.
type call struct {
	origin origin
	value  wire.Value
	// key names the request, if it may come again, and no other; else "".
	key   string
	frame uint64 // native: number of the frame it came in
	index int    // in the packet
	trace wire.Trace
	// release gives the room of the packet up, once its request waits in a lane;
	// nil where it must not wait there.
	release func()
}

// Client is one connection, or one session over many connections.
type client struct {
	face *Face
	out  outlet
	keys keyed // nil: requests are never repeated
	// ctx ends with the connection, or with the session. It is the parent of
	// calls, which outlive the reading of their request.
	ctx context.Context

	mu       sync.Mutex
	attached context.Context    // guarded by mu; nil while no client is connected
	streams  map[uint32]*stream // guarded by mu; those spawned here, by their number
	sources  map[source]bool    // guarded by mu; value: its run has not returned
	lanes    map[uint32]*lane   // guarded by mu; see ticket
	waiting  int                // guarded by mu; bytes that wait in lanes
	watches  map[string]*watch  // guarded by mu; by path
	searches map[uint32]*search // guarded by mu
	slots    uint32             // guarded by mu; streams so far

	calls sync.WaitGroup // handlers that run
	runs  sync.WaitGroup // sources that run
	works sync.WaitGroup // searches
}

// source sends messages by itself: the output of a process, a watch, a search.
// run returns when ctx ends or nothing more will come (true).
type source interface {
	run(ctx context.Context, c *client) (finished bool)
}

func (f *Face) newClient(ctx context.Context, out outlet) *client {
	return &client{
		face: f, out: out, ctx: ctx,
		streams: map[uint32]*stream{}, sources: map[source]bool{}, lanes: map[uint32]*lane{},
		watches: map[string]*watch{}, searches: map[uint32]*search{},
	}
}

// attach lets the sources run until ctx ends and detach is called.
func (c *client) attach(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.attached = ctx
	for s, running := range c.sources {
		if !running {
			c.launch(s)
		}
	}
}

// detach waits for the sources to pause; end the context of attach before.
func (c *client) detach() {
	c.mu.Lock()
	c.attached = nil
	c.mu.Unlock()
	c.runs.Wait()
}

// add makes a source run while a client is connected.
func (c *client) add(s source) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.sources[s]; known {
		return
	}
	c.sources[s] = false
	if c.attached != nil {
		c.launch(s)
	}
}

// launch runs a source. c.mu is held.
func (c *client) launch(s source) {
	ctx := c.attached
	c.sources[s] = true
	c.runs.Go(func() {
		finished := s.run(ctx, c)
		c.mu.Lock()
		defer c.mu.Unlock()
		if finished {
			delete(c.sources, s)
		} else {
			c.sources[s] = false
		}
	})
}

// busy is the number of sources that have more to say.
func (c *client) busy() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.sources)
}

// close ends what the client holds open, after its context has ended and it
// was detached.
func (c *client) close() {
	c.calls.Wait()
	c.works.Wait()
	c.mu.Lock()
	watches := c.watches
	c.watches = map[string]*watch{}
	c.mu.Unlock()
	for _, w := range watches {
		w.close()
	}
}
