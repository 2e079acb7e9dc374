//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// conn is one keep-alive connection that speaks HTTP/1.1, one call at a time,
// in the caller's goroutine: a transport's own goroutines would cost as much as
// the server.
type conn struct {
	nc   net.Conn
	br   *bufio.Reader
	host string
	out  []byte
	body *bufio.Reader
	stop func() bool
}

// dial opens a connection that dies with ctx.
func dial(ctx context.Context, addr string) *conn {
	nc := must(new(net.Dialer).DialContext(ctx, "tcp", addr))
	c := &conn{nc: nc, br: bufio.NewReaderSize(nc, 4096), host: addr, body: bufio.NewReaderSize(nil, 4096)}
	c.stop = context.AfterFunc(ctx, func() { nc.SetDeadline(time.Unix(1, 0)) })
	return c
}

func (c *conn) Close() {
	c.stop()
	c.nc.Close()
}

// send writes a request. A negative length means chunks, which the caller
// writes.
func (c *conn) send(method, path, header string, body []byte, length int) {
	b := append(c.out[:0], method...)
	b = append(b, ' ')
	b = append(b, path...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, c.host...)
	b = append(b, "\r\n"...)
	b = append(b, header...)
	if length < 0 {
		b = append(b, "Transfer-Encoding: chunked\r\n\r\n"...)
	} else {
		b = fmt.Appendf(b, "Content-Length: %d\r\n\r\n", length)
	}
	if len(body) <= 4096 {
		c.out = append(b, body...)
		must(c.nc.Write(c.out))
		return
	}
	c.out = b
	bufs := net.Buffers{b, body}
	must(bufs.WriteTo(c.nc))
}

func (c *conn) receive() *http.Response { return must(http.ReadResponse(c.br, nil)) }

// call is a request whose response has little or no body; it is read.
func (c *conn) call(method, path, contentType string, body []byte) *http.Response {
	header := ""
	if contentType != "" {
		header = "Content-Type: " + contentType + "\r\n"
	}
	c.send(method, path, header, body, len(body))
	return c.answer(path)
}

// answer reads the response of a unary call.
func (c *conn) answer(path string) *http.Response {
	resp := c.receive()
	text := must(io.ReadAll(io.LimitReader(resp.Body, 64<<10)))
	if resp.StatusCode >= 300 {
		fail("%s: %s: %s", path, resp.Status, text)
	}
	return resp
}

// stream opens a server stream with one message.
func (c *conn) stream(path, contentType string, message []byte) *frames {
	return c.streamWith(path, "Content-Type: "+contentType+"\r\n", message)
}

func (c *conn) streamWith(path, header string, message []byte) *frames {
	c.send("POST", path, header, envelope(nil, message), 5+len(message))
	resp := c.receive()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
		fail("%s: %s: %s", path, resp.Status, text)
	}
	c.body.Reset(resp.Body)
	return &frames{r: c.body, id: resp.Header.Get("Tend-Id")}
}

// wide gives the connection a buffer for streams of much data.
func (c *conn) wide() *conn {
	c.body = bufio.NewReaderSize(nil, 256<<10)
	return c
}

// envelope appends a message with Connect's header: flags and length.
func envelope(b, message []byte) []byte {
	b = append(b, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(len(message)))
	return append(b, message...)
}

// frames reads Connect's envelopes.
type frames struct {
	r  *bufio.Reader
	id string // of the process
}

const (
	flagEnd = 0x02

	// headSize is how much of a frame shows what it is.
	headSize = 64
	// tailSize shows the padding of base64.
	tailSize = 16
)

// frame is one envelope of which only the ends are kept; small ones are whole.
type frame struct {
	flags byte
	size  int
	head  []byte // up to headSize bytes, or all of a frame up to 2 KiB
	tail  []byte // the last tailSize bytes, of the others
}

// next reads a frame into f, which is no end of the stream with an error.
func (s *frames) next(f *frame) {
	header := s.peek(5)
	f.flags, f.size = header[0], int(binary.BigEndian.Uint32(header[1:]))
	s.r.Discard(5)
	n := f.size
	if n > 2048 {
		n = headSize
	}
	f.head = append(f.head[:0], s.peek(n)...)
	f.tail = f.tail[:0]
	s.r.Discard(n)
	if f.flags&flagEnd != 0 && bytes.Contains(f.head, []byte(`"error"`)) {
		fail("the stream ended with %s", f.head)
	}
	if n == f.size {
		return
	}
	_, err := s.r.Discard(f.size - n - tailSize)
	check(unexpected(err))
	f.tail = append(f.tail, s.peek(tailSize)...)
	s.r.Discard(tailSize)
}

func (s *frames) peek(n int) []byte {
	b, err := s.r.Peek(n)
	check(unexpected(err))
	return b
}

// finish reads what is behind the last event: the end-of-stream frame, which
// must report no error, and the end of the body, so that the connection is free.
func (s *frames) finish() {
	var f frame
	s.next(&f)
	if f.flags&flagEnd == 0 {
		fail("an event after the end: %q", f.head)
	}
	if _, err := s.r.Peek(1); err != io.EOF {
		fail("more after the end of the stream: %w", unexpected(err))
	}
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
