package distant

import (
	"context"
	"runtime/debug"
	"sync"

	"github.com/tend-run/tend/internal/protocol/distant/wire"
)

// packet is one envelope, or one bare line.
type packet struct {
	origin   origin
	sequence bool
	batch    bool
	calls    []call
	tickets  []*ticket // of calls; nil: not input
}

// answer is what a packet comes to. after is to be called when it was sent:
// nothing of a process may be sent before its number is known.
type answer struct {
	messages []message
	after    []func()
}

// admit takes places in the lanes of the processes that get input. Packets
// must be admitted in the order of their arrival.
func (c *client) admit(p *packet) {
	p.tickets = make([]*ticket, len(p.calls))
	for i := range p.calls {
		f := fieldsOf(p.calls[i].value, "")
		if f.optStr("type") == "proc_stdin" {
			if id := f.id(); f.err == nil {
				p.tickets[i] = c.ticket(id)
			}
		}
	}
}

// leaving returns what gives the room of a packet up, once. A request by itself
// whose answer may come late gives it up earlier, while its process does not
// read: see [ticket.queue].
func (p *packet) leaving(room *gate, n int) func() {
	leave := sync.OnceFunc(func() { room.leave(n) })
	if len(p.calls) == 1 && !p.origin.bare {
		p.calls[0].release = leave
	}
	return leave
}

// maxParallel bounds the requests of one batch that run at once.
const maxParallel = 16

// run answers an admitted packet.
func (c *client) run(p *packet) answer {
	a := answer{messages: make([]message, len(p.calls)), after: make([]func(), len(p.calls))}
	one := func(i int) {
		if t := p.tickets[i]; t != nil {
			defer t.leave()
		}
		a.messages[i], a.after[i] = c.one(p.calls[i], p.tickets[i])
	}
	if len(p.calls) == 1 {
		one(0)
		return a
	}
	if p.sequence {
		failed := false
		for i := range p.calls {
			if failed {
				a.messages[i] = &fault{kindInterrupted, canceledByEarlier}
				if t := p.tickets[i]; t != nil {
					t.leave()
				}
				continue
			}
			one(i)
			_, failed = a.messages[i].(*fault)
		}
		return a
	}
	var wg sync.WaitGroup
	free := make(chan struct{}, maxParallel)
	for i := range p.calls {
		free <- struct{}{}
		wg.Go(func() {
			one(i)
			<-free
		})
	}
	wg.Wait()
	return a
}

// one answers one request. A panic in it is an answer, too: one request is
// lost, and nobody else.
func (c *client) one(call call, t *ticket) (m message, after func()) {
	defer func() {
		if p := recover(); p != nil {
			c.face.log.Error("request panicked", "face", "distant", "panic", p, "stack", string(debug.Stack()))
			m, after = faultf(kindOther, "a fault in the server ended this request; the processes are not affected"), nil
		}
	}()
	m, after, err := c.handle(c.ctx, call, t)
	if err != nil {
		return faultOf(err), nil
	}
	return m, after
}

// handle finds the handler for the type of the request.
func (c *client) handle(ctx context.Context, call call, t *ticket) (message, func(), error) {
	f := fieldsOf(call.value, "")
	typ := f.str("type")
	if f.err != nil {
		return nil, nil, &fault{kindInvalidInput, f.err.Error()}
	}
	ctx, end := c.face.trace.Begin(ctx, typ, call.trace.Get)
	failed := true // until it is known that it has not, also by a panic
	defer func() { end(failed) }()
	m, after, err := c.answer(ctx, call, typ, f, t)
	failed = err != nil
	return m, after, err
}

func (c *client) answer(ctx context.Context, call call, typ string, f *fields, t *ticket) (message, func(), error) {
	switch typ {
	case "proc_spawn":
		return c.procSpawn(ctx, call, f)
	case "tend_attach":
		return c.tendAttach(ctx, call, f)
	}
	var m message
	var err error
	switch typ {
	case "proc_kill":
		m, err = c.procKill(ctx, f)
	case "proc_stdin":
		m, err = c.procStdin(ctx, call, f, t)
	case "proc_resize_pty":
		m, err = c.procResize(ctx, f)
	case "tend_signal":
		m, err = c.tendSignal(ctx, f)
	case "tend_close_stdin":
		m, err = c.tendCloseStdin(ctx, f)
	case "version":
		m, err = c.face.version, f.end()
	case "system_info":
		m, err = c.face.system, f.end()
	default:
		return c.handleFiles(ctx, call, typ, f)
	}
	return m, nil, err
}

// bareCall is the packet of a bare line.
func bareCall(v wire.Value) *packet {
	o := origin{bare: true}
	return &packet{origin: o, calls: []call{{origin: o, value: v}}}
}

// packetOf is the packet of an envelope.
func packetOf(req *wire.Request) *packet {
	o := origin{id: req.ID}
	p := &packet{origin: o, sequence: req.Sequence, batch: req.Batch, calls: make([]call, len(req.Payloads))}
	for i, v := range req.Payloads {
		p.calls[i] = call{origin: o, value: v, index: i, trace: req.Trace}
	}
	return p
}

// putEnvelope writes a response around its payload.
func putEnvelope(w wire.Writer, id, originID string, payload func()) {
	w.Object(3)
	w.Key("id").Str(id)
	w.Key("origin_id").Str(originID)
	w.Key("payload")
	payload()
	w.EndObject()
}

// put writes the payload of an answer.
func (a *answer) put(w wire.Writer, batch bool) {
	if !batch {
		putMessage(w, a.messages[0])
		return
	}
	w.Array(len(a.messages))
	for _, m := range a.messages {
		putMessage(w, m)
	}
	w.EndArray()
}

// interrupted reports whether something was broken off.
func (a *answer) interrupted() bool {
	for _, m := range a.messages {
		if f, ok := m.(*fault); ok && f.kind == kindInterrupted && f.text != canceledByEarlier {
			return true
		}
	}
	return false
}

func (a *answer) sent() {
	for _, after := range a.after {
		if after != nil {
			after()
		}
	}
}
