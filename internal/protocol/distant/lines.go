package distant

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/lib/lazyregexp"
	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/protocol/distant/wire"
	"github.com/tend-run/tend/process"
)

const (
	// maxLine bounds one line of JSON in bytes.
	maxLine = 64 << 20
	// linger is how long a connection whose input has ended continues with the
	// output of its processes.
	linger = time.Second
)

// errForeign ends a connection on which somebody speaks another protocol: a web page can make
// a browser connect to this port, and send lines of JSON.
var errForeign = errors.New("this port speaks JSON lines, and no HTTP or TLS")

var httpRequest = lazyregexp.New(`^[A-Z]+ \S+ HTTP/[0-9.]+$`)

// isForeign reports whether the first line is of a protocol that browsers speak: of HTTP, whose
// body may have lines of JSON, or of one that is no text, such as TLS, where they may be in
// the ticket that the page's own server has issued. JSON has no control characters.
func isForeign(line []byte) bool {
	line = bytes.TrimRight(line, "\r\n")
	return httpRequest.Match(line) || bytes.ContainsFunc(line, func(c rune) bool { return c < ' ' && c != '\t' && c != '\r' })
}

// lines is one connection of JSON lines.
type lines struct {
	client *client
	cancel context.CancelCauseFunc
	room   *gate

	mu      sync.Mutex
	w       io.Writer  // guarded by mu
	serial  uint64     // guarded by mu; of the next response's id
	pending []*pending // guarded by mu; bare answers in the order of their requests
}

type pending struct {
	answer *answer // nil: not ready
}

// ServeLines answers the lines of r on w until r ends, w fails or ctx ends. The
// processes go on. It returns nil when the input has ended. If r can be closed,
// that is done when ctx ends or w fails, so that a blocked read ends, too.
func (f *Face) ServeLines(ctx context.Context, r io.Reader, w io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	if c, ok := r.(io.Closer); ok {
		stop := context.AfterFunc(ctx, func() { c.Close() })
		defer stop()
	}
	l := &lines{w: w, cancel: cancel, room: newGate()}
	l.client = f.newClient(ctx, l)
	l.client.attach(ctx)
	err := l.read(ctx, r)
	if err == nil {
		l.client.calls.Wait()
		l.lingering(ctx)
	}
	cancel(context.Canceled)
	l.client.detach()
	l.client.close()
	return err
}

// lingering gives processes that are about to end the time to be heard.
func (l *lines) lingering(ctx context.Context) {
	end := time.NewTimer(linger)
	defer end.Stop()
	poll := time.NewTicker(linger / 50)
	defer poll.Stop()
	for l.client.busy() > 0 {
		select {
		case <-poll.C:
		case <-end.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (l *lines) read(ctx context.Context, r io.Reader) error {
	in := bufio.NewReaderSize(r, 64<<10)
	for first := true; ; first = false {
		line, err := readLine(in)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if errors.Is(err, errLongLine) {
			l.refuse(packetOf(&wire.Request{}).origin, faultf(kindInvalidData, "the line is longer than %d MiB", maxLine>>20), true)
			continue
		}
		if first && isForeign(line) {
			return errForeign
		}
		if line = bytes.Trim(line, " \t\r\n"); len(line) > 0 {
			l.handleLine(ctx, line)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

var errLongLine = errors.New("the line is too long")

// readLine reads a line of any length up to maxLine; a longer one is read to
// its end and dropped. The last line may lack its end, and comes with io.EOF.
func readLine(in *bufio.Reader) ([]byte, error) {
	part, err := in.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		// The line outlives the reader's buffer.
		return bytes.Clone(part), err
	}
	var line []byte
	tooLong := false
	for errors.Is(err, bufio.ErrBufferFull) || err == nil {
		if tooLong = tooLong || len(line)+len(part) > maxLine; tooLong {
			line = nil
		} else {
			line = append(line, part...)
		}
		if err == nil {
			break
		}
		part, err = in.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			line = append(line, part...)
		}
	}
	if tooLong {
		return nil, errLongLine
	}
	return line, err
}

// handleLine starts the work on one line, or answers that it is none.
func (l *lines) handleLine(ctx context.Context, line []byte) {
	v, err := wire.ParseJSON(line)
	if err == nil && !v.IsObject() {
		err = &wire.Error{Reason: "is no JSON object"}
	}
	if err != nil {
		l.refuse(origin{bare: true}, &fault{kindInvalidData, err.Error()}, true)
		return
	}
	p, err := linePacket(v)
	if err != nil {
		l.refuse(p.origin, &fault{kindInvalidData, err.Error()}, p.origin.bare)
		return
	}
	if l.room.enter(ctx, len(line)) != nil {
		return // the connection is gone
	}
	leave := p.leaving(l.room, len(line))
	l.client.admit(p)
	var slot *pending
	if p.origin.bare {
		slot = l.reserve()
	}
	l.client.calls.Go(func() {
		defer leave()
		a := l.client.run(p)
		if slot == nil {
			l.answerEnvelope(p, &a)
			return
		}
		l.answerBare(slot, &a)
	})
}

// linePacket decides which shape a line has: a line is an envelope when it has a string
// id and a payload. With an error the packet has its origin alone.
func linePacket(v wire.Value) (*packet, error) {
	fields, err := v.Object()
	if err != nil {
		return bareCall(v), err
	}
	id, payload := false, false
	for _, f := range fields {
		switch f.Name {
		case "id":
			_, err := f.Value.Str()
			id = err == nil
		case "payload":
			payload = true
		}
	}
	if !id || !payload {
		return bareCall(v), nil
	}
	req, err := wire.ParseRequest(v)
	return packetOf(&req), err
}

// refuse answers a line on which no work can be done.
func (l *lines) refuse(o origin, f *fault, bare bool) {
	a := &answer{messages: []message{f}}
	if bare {
		l.answerBare(l.reserve(), a)
		return
	}
	l.answerEnvelope(&packet{origin: o}, a)
}

func (l *lines) reserve() *pending {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &pending{}
	l.pending = append(l.pending, p)
	return p
}

// answerBare sends the answers that are ready, as far as none is missing
// before them.
func (l *lines) answerBare(slot *pending, a *answer) {
	l.mu.Lock()
	slot.answer = a
	n := 0
	for n < len(l.pending) && l.pending[n].answer != nil {
		w := wire.NewJSON(nil)
		l.pending[n].answer.put(w, false)
		l.writeLocked(append(w.Buffer(), '\n'))
		n++
	}
	ready := l.pending[:n:n]
	l.pending = l.pending[n:]
	l.mu.Unlock()
	for _, p := range ready {
		p.answer.sent()
	}
}

func (l *lines) answerEnvelope(p *packet, a *answer) {
	l.mu.Lock()
	w := wire.NewJSON(nil)
	putEnvelope(w, l.nextID(), p.origin.id, func() { a.put(w, p.batch) })
	l.writeLocked(append(w.Buffer(), '\n'))
	l.mu.Unlock()
	a.sent()
}

// nextID names a response. l.mu is held.
func (l *lines) nextID() string {
	l.serial++
	return strconv.FormatUint(l.serial, 10)
}

// writeLocked sends a line. l.mu is held.
func (l *lines) writeLocked(line []byte) error {
	if _, err := l.w.Write(line); err != nil {
		l.cancel(fmt.Errorf("write an answer: %w", err))
		return err
	}
	return nil
}

// chunks are buffers for output: the bytes, and the bytes as text.
var chunks = sync.Pool{New: func() any { return &chunk{raw: make([]byte, 0, maxChunk)} }}

type chunk struct{ raw, text []byte }

// output implements [outlet].
func (l *lines) output(st *stream, ev process.Event, out protocol.Output) error {
	b := chunks.Get().(*chunk)
	defer chunks.Put(b)
	data := ev.Data
	if out.Span.File != nil {
		data = b.raw[:chunkLen(ev, out)]
		if err := chunkInto(data, ev, out); err != nil {
			return err
		}
	}
	w := wire.NewJSON(b.text[:0])
	m := dataMessage(dataType(ev.Stream), st.id, data)
	id := ""
	if !st.origin.bare {
		l.mu.Lock()
		id = l.nextID()
		l.mu.Unlock()
	}
	putLine(w, id, st.origin, m)
	b.text = append(w.Buffer(), '\n')
	l.mu.Lock()
	defer l.mu.Unlock()
	st.next[ev.Stream] = ev.Offset + int64(len(data))
	return l.writeLocked(b.text)
}

func putLine(w wire.Writer, id string, o origin, m message) {
	if o.bare {
		putMessage(w, m)
		return
	}
	putEnvelope(w, id, o.id, func() { putMessage(w, m) })
}

// done implements [outlet].
func (l *lines) done(st *stream, exit *process.Exit) error {
	return l.event(st.origin, doneMessage(st.id, exit))
}

// event implements [outlet].
func (l *lines) event(o origin, m message) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := wire.NewJSON(nil)
	id := ""
	if !o.bare {
		id = l.nextID()
	}
	putLine(w, id, o, m)
	return l.writeLocked(append(w.Buffer(), '\n'))
}
