package server

import (
	"encoding/binary"
	"io"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/protocol/module"
)

// A request is charged for what the server holds of its body, until the request ends
// or its handler gives it back (budget.Charge.Keep). For whom, the part says that finds out
// who calls, which it does before it reads.
const (
	// freeBody is what a body or a message may have without being charged for, in bytes,
	// and smallBody what a message may have without having to come at a rate.
	freeBody  = 4 << 10
	smallBody = 64 << 10
	// madeOfData is how many bytes are held for each byte of a message that carries
	// input, which is copied; protocol.Decoding knows of the others.
	madeOfData = 3
	// unpacked is how many bytes a byte of a compressed body may stand for, and
	// maxUnpacked the most that the faces unpack of one request.
	unpacked    = 1 << 10
	maxUnpacked = 16 << 20
	// minRate is how fast a charged body must come on the whole, beyond its
	// first BodyPause, in bytes a second.
	minRate = 16 << 10
)

// unwanted is how long the body of a refused request, of which nothing was read, may
// take to arrive. The answer waits for that time, and then the connection is closed.
const unwanted = 100 * time.Millisecond

func (rt route) body(path string) module.Body {
	if rt.Body == nil {
		return module.Fields
	}
	return rt.Body(path)
}

// streamBuffer is what the HTTP/2 server takes of one request's body before the handler
// asks for it.
const streamBuffer = 256 << 10

// paced bounds what bodies cost. A body that stops arriving ends its request: half a
// request would hold its connection without end. A body that is held in memory must
// also come at a rate, and all such bodies share one budget.
func (s *Server) paced(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body == nil || r.Body == http.NoBody {
			next.ServeHTTP(w, r)
			return
		}
		rt := s.routes.of(r)
		var b body
		if kind := rt.body(r.URL.Path); kind == module.Messages {
			b = new(messageBody)
		} else {
			b = &pacedBody{kind: kind, length: r.ContentLength, began: time.Now(), timed: !rt.OwnDeadline}
		}
		held := b.held()
		held.ReadCloser, held.packed, held.h2 = r.Body, isPacked(r.Header), r.ProtoMajor == 2
		held.rc, held.pause = http.NewResponseController(w), s.limits.BodyPause
		held.charge.On(s.budget)
		defer b.release()
		// A handler that replaces the body does so in a copy. net/http needs the body
		// that it made to decide whether the connection may have another request: the
		// rest of this body would be read as that request.
		r = r.WithContext(budget.With(r.Context(), &held.charge))
		r.Body = b
		next.ServeHTTP(w, r)
		// net/http reads what the handler left before it answers.
		if !held.touched {
			_ = held.rc.SetReadDeadline(time.Now().Add(unwanted))
		} else {
			b.leave()
		}
	})
}

// body is the body of a request that is charged for.
type body interface {
	io.ReadCloser
	held() *heldBody
	// leave is called when the handler has returned, if it asked for the body.
	leave()
	release()
}

// heldBody is what they have in common.
type heldBody struct {
	io.ReadCloser
	charge  budget.Charge
	ahead   budget.Charge // for what the HTTP/2 server takes while the handler does not read
	rc      *http.ResponseController
	pause   time.Duration
	packed  bool  // compressed
	h2      bool  // it comes over HTTP/2
	touched bool  // the handler asked for it
	busy    error // the budget is used up
}

func (b *heldBody) held() *heldBody { return b }

func (b *heldBody) release() {
	b.charge.Release()
	b.ahead.Release()
}

// waits charges, behind a read, for what may come until the next one; left is how much that
// is at most. During a read nothing waits.
func (b *heldBody) waits(left int64) error {
	if !b.h2 || left <= 0 {
		return nil
	}
	b.ahead.Like(&b.charge)
	return busy(b.ahead.Add(min(left, streamBuffer)))
}

// pacedBody has a read deadline while a read waits, and at no other time:
// net/http would treat a deadline that passes later as a client that left.
type pacedBody struct {
	heldBody
	kind   module.Body
	length int64 // as the header says; -1: not known
	timed  bool  // each read has a deadline
	began  time.Time
	come   int64 // bytes
	ended  bool  // all was read, or no more can be
}

func (b *pacedBody) leave() {
	if b.timed && !b.ended {
		_ = b.rc.SetReadDeadline(time.Now().Add(b.pause))
	}
}

func (b *pacedBody) Read(p []byte) (int, error) {
	b.touched = true
	if b.busy != nil {
		return 0, b.busy
	}
	if b.ended {
		return b.ReadCloser.Read(p)
	}
	if b.timed {
		_ = b.rc.SetReadDeadline(b.deadline()) // not all connections can; then there is no bound
	}
	b.ahead.Release()
	n, err := b.ReadCloser.Read(p)
	if b.timed && (err == nil || err == io.EOF) {
		_ = b.rc.SetReadDeadline(time.Time{})
	}
	b.ended = err != nil
	b.come += int64(n)
	if b.busy = b.pay(int64(n)); b.busy != nil {
		return 0, b.busy
	}
	return n, err
}

// deadline is until when the next piece must come.
func (b *pacedBody) deadline() time.Time {
	at := time.Now().Add(b.pause)
	if b.kind == module.File {
		return at
	}
	if last := b.began.Add(b.pause + time.Duration(b.come)*time.Second/minRate); last.Before(at) {
		return last
	}
	return at
}

// pay charges for n bytes that came.
func (b *pacedBody) pay(n int64) error {
	left := int64(streamBuffer)
	if b.length >= 0 {
		left = b.length - b.come
	}
	// What is decoded is read at once, so that little waits; and nobody can tell whether
	// the request of a stream of hours has ended.
	if !b.ended && b.kind != module.Fields {
		if err := b.waits(left); err != nil {
			return err
		}
	}
	switch {
	case b.kind == module.File:
		return nil
	case b.packed:
		return payPacked(&b.charge, n)
	}
	return busy(b.charge.Add(b.cost(b.come) - b.cost(b.come-n)))
}

// cost is how many bytes are held for a body of n bytes.
func (b *pacedBody) cost(n int64) int64 {
	switch {
	case n <= freeBody:
		return 0
	case b.kind == module.Data:
		return n * madeOfData
	}
	return protocol.Decoding(n)
}

// isPacked reports whether the body is compressed, in one of the ways in which
// Connect and gRPC announce it.
func isPacked(h http.Header) bool {
	for _, name := range [...]string{"Content-Encoding", "Connect-Content-Encoding", "Grpc-Encoding"} {
		if v := h.Get(name); v != "" && v != "identity" {
			return true
		}
	}
	return false
}

// payPacked charges for n compressed bytes: for what they may stand for.
func payPacked(c *budget.Charge, n int64) error {
	return busy(c.Add(max(0, min(n*unpacked, maxUnpacked-c.Held()/madeOfData)) * madeOfData))
}

// busy words a refusal for the faces: those that speak Connect pass it on.
func busy(err error) error {
	if err == nil {
		return nil
	}
	refused := connect.NewError(connect.CodeResourceExhausted, err)
	refused.Meta().Set("Retry-After", "1")
	return refused
}

// messageBody is a stream of enveloped messages that may pause between two of
// them for as long as the client likes. A large message is charged from its
// envelope to the next one, and must come at a rate.
type messageBody struct {
	heldBody
	head    [5]byte
	have    int   // bytes of head
	left    int64 // bytes of the message that are to come
	charged bool  // it is large enough
	late    *time.Timer

	over sync.Mutex // held while late acts: a ResponseController may not be used behind its handler
	done bool       // the handler has returned; guarded by over
}

func (b *messageBody) Read(p []byte) (int, error) {
	b.touched = true
	if b.busy != nil {
		return 0, b.busy
	}
	b.ahead.Release()
	n, err := b.ReadCloser.Read(p)
	if err == nil {
		if b.busy = b.waits(streamBuffer); b.busy != nil {
			b.stop()
			return 0, b.busy
		}
	}
	for rest := p[:n]; len(rest) > 0; {
		if b.left > 0 {
			k := min(b.left, int64(len(rest)))
			rest, b.left = rest[k:], b.left-k
			switch {
			case b.packed:
				b.busy = payPacked(&b.charge, k)
			case b.charged:
				b.busy = busy(b.charge.Add(k * madeOfData))
			}
			if b.busy != nil {
				b.stop()
				return 0, b.busy
			}
			if b.left == 0 {
				b.stop()
			}
			continue
		}
		k := copy(b.head[b.have:], rest)
		rest, b.have = rest[k:], b.have+k
		if b.have == len(b.head) {
			b.begin(int64(binary.BigEndian.Uint32(b.head[1:])))
		}
	}
	if err != nil {
		b.stop()
	}
	return n, err
}

// begin notes the size of the next message, after which the one before it is
// forgotten.
func (b *messageBody) begin(size int64) {
	b.have, b.left, b.charged = 0, size, size > freeBody
	b.charge.Release()
	if size <= smallBody {
		return
	}
	within := b.pause + time.Duration(size)*time.Second/minRate
	if b.late == nil {
		b.late = time.AfterFunc(within, b.end)
	} else {
		b.late.Reset(within)
	}
}

// end ends the read of a message that came too slowly.
func (b *messageBody) end() {
	b.over.Lock()
	defer b.over.Unlock()
	if !b.done {
		_ = b.rc.SetReadDeadline(time.Now())
	}
}

func (b *messageBody) leave() {}

func (b *messageBody) release() {
	b.stop()
	b.over.Lock()
	b.done = true
	b.over.Unlock()
	b.heldBody.release()
}

func (b *messageBody) stop() {
	if b.late != nil {
		b.late.Stop()
	}
}
