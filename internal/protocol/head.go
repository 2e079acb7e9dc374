package protocol

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"sync"
	"sync/atomic"

	"github.com/tend-run/tend/internal/lib/budget"
)

// maxAnswerLines bounds the lines of the headers of an answer, as [MaxAnswerHeader] does their
// bytes: one of six bytes takes some 200 in memory, so 256 KiB of them would be 7 MiB.
const maxAnswerLines = 1000

// lineSize is about how much a line of a header takes in memory beside its text, in bytes. There
// are two copies of an answer's headers.
const lineSize = 240

// ErrAnswerLines ends an answer whose headers have too many lines.
var ErrAnswerLines = fmt.Errorf("more than %d lines of headers", maxAnswerLines)

// Heads returns a transport that charges for the headers of an answer while they come, and for
// what they and the trailers become: a program may never end them. The connections of the
// transport below are made by [HeadConn]. An answer beyond its bounds ends with a
// [*budget.BusyError] or [ErrAnswerLines].
func Heads(below http.RoundTripper, held *budget.Charge) http.RoundTripper {
	return &heads{below: below, held: held}
}

type heads struct {
	below http.RoundTripper
	held  *budget.Charge
}

// RoundTrip implements http.RoundTripper.
func (t *heads) RoundTrip(r *http.Request) (*http.Response, error) {
	h := &head{held: t.held}
	res, err := t.below.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		GotConn: func(got httptrace.GotConnInfo) {
			if c, ok := got.Conn.(*headConn); ok {
				c.head.Store(h)
			}
		},
		Got1xxResponse: func(int, textproto.MIMEHeader) error { h.next(); return nil },
	})))
	refused := h.end()
	if err != nil {
		return nil, cmp.Or(refused, err) // below it may look like an end in the middle of a line
	}
	if err := t.held.Add(headerSize(res.Header) + headerSize(res.Trailer)); err != nil {
		res.Body.Close()
		return nil, err
	}
	if len(res.TransferEncoding) > 0 && res.StatusCode != http.StatusSwitchingProtocols {
		res.Body = &trailed{res.Body, res, t.held}
	}
	return res, nil
}

// headConn is a connection to a program.
type headConn struct {
	net.Conn
	head atomic.Pointer[head] // that was awaited last; nil: none was
}

// HeadConn makes a connection one of a transport for [Heads].
func HeadConn(c net.Conn) net.Conn { return &headConn{Conn: c} }

// Read implements net.Conn.
func (c *headConn) Read(b []byte) (int, error) {
	if h := c.head.Load(); h != nil { // a reader that only looks ahead forgets the error
		if err := h.refused(); err != nil {
			return 0, err
		}
	}
	n, err := c.Conn.Read(b)
	if h := c.head.Load(); h != nil { // it may have come while nothing was there to be read
		if err := h.count(b[:n]); err != nil {
			return 0, err
		}
	}
	return n, err
}

// CloseWrite ends what is sent, where the connection can do that.
func (c *headConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return http.ErrNotSupported
}

// head is the head of an answer that is awaited. Its end is known from the transport below, so
// that nobody has to find it in the bytes in the same way. Until then up to 4 KiB of what follows
// may have been read, and are charged for.
type head struct {
	held *budget.Charge

	mu          sync.Mutex
	ended       bool  // guarded by mu
	err         error // of count, which stays: bytes are missing; guarded by mu
	lines, last int   // in all, and in the last bytes; guarded by mu
	size, came  int64 // that is charged for, in all and for the last bytes; guarded by mu
}

// count charges for bytes of the head. It refuses what comes after too many lines.
func (h *head) count(b []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended || h.err != nil {
		return h.err
	}
	last := bytes.Count(b, []byte{'\n'})
	came := int64(len(b) + last*lineSize)
	if h.lines > maxAnswerLines {
		h.err = ErrAnswerLines
	} else if h.err = h.held.Add(came); h.err == nil {
		h.last, h.lines = last, h.lines+last
		h.came, h.size = came, h.size+came
	}
	return h.err
}

// refused is the error of count, if the head has not ended otherwise.
func (h *head) refused() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

// next begins with the head after an interim one, which may have come with the last bytes.
func (h *head) next() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held.Give(h.size - h.came)
	h.lines, h.size = h.last, h.came
}

// end gives back what is charged, and says whether the head was refused.
func (h *head) end() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	h.held.Give(h.size)
	return h.err
}

// trailed is the body of an answer that may have trailers.
type trailed struct {
	io.ReadCloser
	res  *http.Response
	held *budget.Charge
}

// Read implements io.Reader.
func (t *trailed) Read(b []byte) (int, error) {
	n, err := t.ReadCloser.Read(b)
	if err == io.EOF {
		if busy := t.held.Add(headerSize(t.res.Trailer)); busy != nil {
			err = busy
		}
	}
	return n, err
}

// headerSize is about how much memory the headers of an answer take that is passed on, in bytes.
func headerSize(h http.Header) (n int64) {
	for name, values := range h {
		n += lineSize - 48 + int64(len(name))
		for _, v := range values {
			n += 48 + int64(len(v))
		}
	}
	return n
}
