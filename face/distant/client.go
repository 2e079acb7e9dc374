package distant

import (
	"context"
	"sync"

	"github.com/tend-run/tend/face"
	"github.com/tend-run/tend/face/distant/journal"
	"github.com/tend-run/tend/face/distant/wire"
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
	output(st *stream, ev process.Event, out face.Output) error
	// done sends the last message of a stream.
	done(st *stream, exit *process.Exit) error
	// event sends a message of another source.
	event(o origin, m message) error
}

// keyed gives requests a name that is the same when they are repeated, and
// remembers where input was meant to go. The native transport has it; a
// connection of lines never repeats a request.
type keyed interface {
	// started tells of a new stream, before anything of it is sent.
	started(st *stream, c call, own bool)
	// inputAt returns the offset at which the input of this request begins,
	// if it was tried before, or notes it.
	inputAt(c call, id uint32, accepted int64) int64
	// watching and searching tell of what begins or ends.
	watching(w journal.Watch)
	searching(s journal.Search)
}

// call is one request of a packet.
type call struct {
	origin origin
	value  wire.Value
	// key names the request for ever, if it may come again; else "".
	key   string
	frame uint64 // native: number of the frame it came in
	index int    // in the packet
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
	attached context.Context    // guarded by mu; nil while nobody listens
	streams  map[uint32]*stream // guarded by mu; those spawned here, by their number
	sources  map[source]bool    // guarded by mu; value: its run has not returned
	lanes    map[uint32]*lane   // guarded by mu; see ticket
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

// add makes a source run whenever somebody listens.
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

// lane keeps the input of one process in the order of its arrival: whoever
// writes next waits for the one before.
type lane struct{ last chan struct{} }

// ticket is a place in a lane. Take it while requests are read in order, wait
// before writing, and leave in any case.
type ticket struct {
	c            *client
	id           uint32
	before, mine chan struct{}
}

func (c *client) ticket(id uint32) *ticket {
	t := &ticket{c: c, id: id, mine: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.lanes[id]
	if l == nil {
		l = &lane{}
		c.lanes[id] = l
	}
	t.before, l.last = l.last, t.mine
	return t
}

func (t *ticket) wait(ctx context.Context) error {
	if t.before == nil {
		return nil
	}
	select {
	case <-t.before:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t *ticket) leave() {
	t.c.mu.Lock()
	if l := t.c.lanes[t.id]; l != nil && l.last == t.mine {
		delete(t.c.lanes, t.id)
	}
	t.c.mu.Unlock()
	close(t.mine)
}
