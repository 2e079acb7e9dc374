package distant

import "context"

const (
	// maxLaneCalls and maxLaneBytes bound the input that waits for one process
	// behind what the process runtime queues for it, and maxLanesBytes that of
	// all of a client. It is out of the gate: other requests go on.
	maxLaneCalls  = 64
	maxLaneBytes  = 16 << 20
	maxLanesBytes = 64 << 20
)

// lane keeps the input of one process in the order of its arrival: each write
// waits for the one before.
type lane struct {
	last  chan struct{}
	stuck chan struct{} // closed once the process's queue was found full
	full  bool          // stuck is closed
	calls int           // requests that wait although the queue is full
	bytes int           // of input in these requests
}

// ticket is a place in a lane. Take it while requests are read in order, wait
// before writing, and leave in any case.
type ticket struct {
	c            *client
	id           uint32
	lane         *lane
	before, mine chan struct{}
	waits        int // bytes that it has in the lane's count; -1: it is not counted
}

func (c *client) ticket(id uint32) *ticket {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.lanes[id]
	if l == nil {
		l = &lane{stuck: make(chan struct{})}
		c.lanes[id] = l
	}
	t := &ticket{c: c, id: id, lane: l, before: l.last, mine: make(chan struct{}), waits: -1}
	l.last = t.mine
	return t
}

// wait returns when all input before has been written, or refuses: see queue. It refuses
// once ctx has ended, also where nothing is before: what was may have been broken off, and
// comes again. Input that is written first would count as written behind it.
func (t *ticket) wait(ctx context.Context, call call, size int) error {
	if t.before == nil {
		return ctx.Err()
	}
	select {
	case <-t.before:
		return ctx.Err()
	default:
	}
	select {
	case <-t.before:
		return ctx.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.lane.stuck:
	}
	if err := t.queue(call, size); err != nil {
		return err
	}
	select {
	case <-t.before:
		return ctx.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// queue takes a place among the requests that wait for a process that does not read, and
// gives up the room that other requests need. It refuses where answers must come in
// the order of their requests, and when all places are in use.
func (t *ticket) queue(call call, size int) error {
	c, l := t.c, t.lane
	c.mu.Lock()
	defer c.mu.Unlock()
	if !l.full {
		l.full = true
		close(l.stuck)
	}
	if t.waits >= 0 {
		return nil
	}
	room := l.calls == 0 || l.calls < maxLaneCalls && l.bytes+size <= maxLaneBytes
	if call.release == nil || !room || c.waiting > 0 && c.waiting+size > maxLanesBytes {
		return faultf(kindWouldBlock, "process %d does not read its input, and no more of it can wait; try again when it has read some", t.id)
	}
	t.waits = size
	l.calls++
	l.bytes += size
	c.waiting += size
	call.release()
	return nil
}

func (t *ticket) leave() {
	t.c.mu.Lock()
	if t.waits >= 0 {
		t.lane.calls--
		t.lane.bytes -= t.waits
		t.c.waiting -= t.waits
	}
	if t.lane.last == t.mine {
		delete(t.c.lanes, t.id)
	}
	t.c.mu.Unlock()
	close(t.mine)
}
