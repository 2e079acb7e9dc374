package server

import (
	"encoding/binary"
	"io"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"github.com/tend-run/tend/face"
	"github.com/tend-run/tend/part"
)

// A request is charged for what the server holds of its body, until the request ends
// or its handler forgets it (face.Forget).
const (
	// smallBody is what a body or a message may have without being charged for
	// what is made of it, in bytes.
	smallBody = 64 << 10
	// madeOfData and madeOfFields are how many bytes are held for each byte of
	// a message: one that carries input is copied, in others a byte may be half
	// of a field, for which the decoders make an object.
	madeOfData   = 3
	madeOfFields = 16
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

func (rt route) body(path string) part.Body {
	if rt.Body == nil {
		return part.Fields
	}
	return rt.Body(path)
}

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
		kind, ctx := rt.body(r.URL.Path), r.Context()
		charge := s.budget.Charge()
		defer charge.Release()
		if kind != part.File && (r.ContentLength < 0 || r.ContentLength > smallBody) {
			ctx = face.WithCharge(ctx, charge)
		}
		// A handler that replaces the body does so in a copy. net/http needs the body
		// that it made to decide whether the connection may have another request: the
		// rest of this body would be read as that request.
		r = r.WithContext(ctx)
		rc := http.NewResponseController(w)
		if kind == part.Messages {
			b := &messageBody{packed: isPacked(r.Header), ReadCloser: r.Body, charge: charge, rc: rc, pause: s.limits.BodyPause}
			defer b.stop()
			r.Body = b
			next.ServeHTTP(w, r)
			if !b.touched {
				_ = rc.SetReadDeadline(time.Now().Add(unwanted))
			}
			return
		}
		b := &pacedBody{packed: isPacked(r.Header), ReadCloser: r.Body, kind: kind, length: r.ContentLength, charge: charge, rc: rc, pause: s.limits.BodyPause, began: time.Now()}
		b.timed = !rt.OwnDeadline
		r.Body = b
		next.ServeHTTP(w, r)
		// net/http reads what the handler left before it answers.
		switch {
		case !b.touched:
			_ = rc.SetReadDeadline(time.Now().Add(unwanted))
		case b.timed && !b.ended:
			_ = rc.SetReadDeadline(time.Now().Add(b.pause))
		}
	})
}

// pacedBody has a read deadline while a read waits, and at no other time:
// net/http would treat a deadline that passes later as a client that left.
type pacedBody struct {
	io.ReadCloser
	kind    part.Body
	packed  bool  // compressed
	length  int64 // as the header says; -1: not known
	charge  *face.Charge
	rc      *http.ResponseController
	pause   time.Duration
	timed   bool
	began   time.Time
	read    int64
	touched bool  // the handler asked for it
	ended   bool  // all was read, or no more can be
	busy    error // the budget is used up
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
	n, err := b.ReadCloser.Read(p)
	if b.timed && (err == nil || err == io.EOF) {
		_ = b.rc.SetReadDeadline(time.Time{})
	}
	b.ended = err != nil
	b.read += int64(n)
	if b.busy = b.pay(int64(n)); b.busy != nil {
		return 0, b.busy
	}
	return n, err
}

// deadline is until when the next piece must come.
func (b *pacedBody) deadline() time.Time {
	at := time.Now().Add(b.pause)
	if b.kind == part.File {
		return at
	}
	if last := b.began.Add(b.pause + time.Duration(b.read)*time.Second/minRate); last.Before(at) {
		return last
	}
	return at
}

// pay charges for n bytes that came. A small body is charged only for the bytes that
// wait until it is whole.
func (b *pacedBody) pay(n int64) error {
	switch {
	case b.kind == part.File:
		return nil
	case b.packed:
		return payPacked(b.charge, n)
	case b.length >= 0 && b.length <= smallBody:
		if b.ended {
			b.charge.Release()
			return nil
		}
		return busy(b.charge.Add(n))
	case b.kind == part.Data:
		return busy(b.charge.Add(n * madeOfData))
	}
	return busy(b.charge.Add(n * madeOfFields))
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
func payPacked(c *face.Charge, n int64) error {
	return busy(c.Add(max(0, min(n*unpacked, maxUnpacked-c.Held()/madeOfData)) * madeOfData))
}

// busy words a refusal for the faces: those that speak Connect pass it on.
func busy(err error) error {
	if err == nil {
		return nil
	}
	return connect.NewError(connect.CodeResourceExhausted, err)
}

// messageBody is a stream of enveloped messages that may pause between two of
// them for as long as the client likes. A large message is charged from its
// envelope to the next one, and must come at a rate.
type messageBody struct {
	io.ReadCloser
	charge  *face.Charge
	rc      *http.ResponseController
	pause   time.Duration
	packed  bool // compressed
	head    [5]byte
	have    int   // bytes of head
	left    int64 // bytes of the message that are to come
	large   bool
	touched bool // the handler asked for it
	late    *time.Timer
	busy    error
}

func (b *messageBody) Read(p []byte) (int, error) {
	b.touched = true
	if b.busy != nil {
		return 0, b.busy
	}
	n, err := b.ReadCloser.Read(p)
	for rest := p[:n]; len(rest) > 0; {
		if b.left > 0 {
			k := min(b.left, int64(len(rest)))
			rest, b.left = rest[k:], b.left-k
			switch {
			case b.packed:
				b.busy = payPacked(b.charge, k)
			case b.large:
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
	b.have, b.left, b.large = 0, size, size > smallBody
	b.charge.Release()
	if !b.large {
		return
	}
	within := b.pause + time.Duration(size)*time.Second/minRate
	if b.late == nil {
		b.late = time.AfterFunc(within, func() { _ = b.rc.SetReadDeadline(time.Now()) })
	} else {
		b.late.Reset(within)
	}
}

func (b *messageBody) stop() {
	if b.late != nil {
		b.late.Stop()
	}
}
