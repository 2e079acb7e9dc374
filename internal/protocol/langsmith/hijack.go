package langsmith

import (
	"bufio"
	"net"
	"net/http"
	"time"
)

// Sizes of the buffers of a WebSocket in bytes. Most connections are silent
// most of the time: they hold a header and a short message, and what is larger
// goes past them.
const (
	readBuffer  = 512
	writeBuffer = 512
)

// hijacker takes a connection over with small buffers, and remembers it so
// that it can be cut when a closing handshake hangs.
type hijacker struct {
	http.ResponseWriter
	conn net.Conn
}

// Hijack implements [http.Hijacker].
func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	// net/http set deadlines of its own; an error shows in the first write.
	_ = conn.SetDeadline(time.Time{})
	if n := rw.Reader.Buffered(); n > 0 {
		// The client did not wait for the answer.
		ahead, err := rw.Reader.Peek(n)
		if err != nil {
			conn.Close()
			return nil, nil, err
		}
		conn = &aheadConn{Conn: conn, ahead: append([]byte(nil), ahead...)}
	}
	h.conn = conn
	return conn, bufio.NewReadWriter(bufio.NewReaderSize(conn, readBuffer), bufio.NewWriterSize(conn, writeBuffer)), nil
}

// aheadConn is a connection of which the first bytes were read already.
type aheadConn struct {
	net.Conn
	ahead []byte
}

func (c *aheadConn) Read(b []byte) (int, error) {
	if len(c.ahead) > 0 {
		n := copy(b, c.ahead)
		c.ahead = c.ahead[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}
