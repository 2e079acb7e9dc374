package envd

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/tend-run/tend/internal/protocol"
)

// taken is what a stream holds of a connection that was taken over from
// net/http. An idle stream is then one goroutine and this, and no buffers.
type taken struct {
	out    connOutlet
	cancel context.CancelCauseFunc
	stop   context.CancelFunc
	token  uint64
	back   protocol.Returner // nil: the connection closes after the response
}

// takeOver takes the connection of an HTTP/1.1 request, so that the response
// can be written to it directly. It reports false if that is not possible and
// nothing was changed.
func (s *stream) takeOver(w http.ResponseWriter, r *http.Request) bool {
	if !r.ProtoAtLeast(1, 1) || r.ProtoMajor != 1 || r.TLS != nil || !canWatch || s.face.ctx.Err() != nil {
		return false
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return false
	}
	t := &s.taken
	if back := protocol.ReturnerOf(r.Context()); back != nil && !r.Close && rw.Reader.Buffered() == 0 {
		t.back = back
	}
	ctx, cancel := context.WithCancelCause(s.face.ctx)
	t.cancel = cancel
	t.out.ctx, t.stop = s.deadline(ctx)
	t.out.conn = conn
	t.out.head = responseHead(w.Header(), s.sink.codec, t.back == nil)
	s.sink.out = &t.out
	// net/http set deadlines of its own; the error shows in the first write.
	_ = conn.SetDeadline(time.Time{})
	// Without the watch, the next write notices that the client has left.
	t.token, _ = s.face.hangups.add(conn, func() { cancel(errClientLeft) })
	return true
}

// runTaken streams on the connection, then gives it back or closes it.
func (s *stream) runTaken() {
	t := &s.taken
	defer t.cancel(nil)
	defer t.stop()
	err := s.pump(t.out.ctx)
	s.reader.Close()
	if errors.Is(context.Cause(t.out.ctx), errClientLeft) {
		t.out.broken = errClientLeft
	}
	ended := s.finish(err) // fails at once on a broken connection
	s.face.hangups.remove(t.token)
	conn := t.out.conn
	if ended != nil || t.back == nil || conn.SetDeadline(time.Time{}) != nil || !t.back.Return(conn) {
		conn.Close()
	}
}

// responseHead writes the status line and the headers.
func responseHead(h http.Header, c codec, closes bool) []byte {
	h = h.Clone()
	h.Set("Content-Type", c.contentType())
	if c != codecLines {
		h.Set("Connect-Accept-Encoding", "gzip")
	}
	h.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	h.Set("Transfer-Encoding", "chunked")
	if closes {
		h.Set("Connection", "close")
	}
	var b bytes.Buffer
	b.WriteString("HTTP/1.1 200 OK\r\n")
	_ = h.Write(&b) // a bytes.Buffer takes all
	b.WriteString("\r\n")
	return b.Bytes()
}
