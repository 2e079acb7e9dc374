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
func dial(ctx context.Context, addr string) (*conn, error) {
	nc, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	c := &conn{nc: nc, br: bufio.NewReaderSize(nc, 4096), host: addr, body: bufio.NewReaderSize(nil, 4096)}
	c.stop = context.AfterFunc(ctx, func() { nc.SetDeadline(time.Unix(1, 0)) })
	return c, nil
}

func (c *conn) Close() error {
	c.stop()
	return c.nc.Close()
}

// send writes a request. A negative length means chunks, which the caller
// writes.
func (c *conn) send(method, path, header string, body []byte, length int) error {
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
		b = append(b, body...)
		c.out = b
		_, err := c.nc.Write(b)
		return err
	}
	c.out = b
	bufs := net.Buffers{b, body}
	_, err := bufs.WriteTo(c.nc)
	return err
}

func (c *conn) receive() (*http.Response, error) { return http.ReadResponse(c.br, nil) }

// call is a request whose response has little or no body; it is read.
func (c *conn) call(method, path, contentType string, body []byte) (*http.Response, error) {
	header := ""
	if contentType != "" {
		header = "Content-Type: " + contentType + "\r\n"
	}
	if err := c.send(method, path, header, body, len(body)); err != nil {
		return nil, err
	}
	return c.answer(path)
}

// answer reads the response of a unary call.
func (c *conn) answer(path string) (*http.Response, error) {
	resp, err := c.receive()
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= 300 {
		return nil, fmt.Errorf("%s: %s: %s", path, resp.Status, text)
	}
	return resp, nil
}

// stream opens a server stream with one message.
func (c *conn) stream(path, contentType string, message []byte) (*frames, error) {
	return c.streamWith(path, "Content-Type: "+contentType+"\r\n", message)
}

func (c *conn) streamWith(path, header string, message []byte) (*frames, error) {
	if err := c.send("POST", path, header, envelope(nil, message), 5+len(message)); err != nil {
		return nil, err
	}
	resp, err := c.receive()
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
		return nil, fmt.Errorf("%s: %s: %s", path, resp.Status, text)
	}
	c.body.Reset(resp.Body)
	return &frames{r: c.body, id: resp.Header.Get("Tend-Id")}, nil
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

// next reads a frame into f. It returns io.EOF after the end-of-stream frame
// and the end of the body.
func (s *frames) next(f *frame) error {
	header, err := s.r.Peek(5)
	if err != nil {
		if err == io.EOF && len(header) > 0 {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	f.flags, f.size = header[0], int(binary.BigEndian.Uint32(header[1:]))
	s.r.Discard(5)
	n := f.size
	if n > 2048 {
		n = headSize
	}
	part, err := s.r.Peek(n)
	if err != nil {
		return unexpected(err)
	}
	f.head = append(f.head[:0], part...)
	f.tail = f.tail[:0]
	s.r.Discard(n)
	if n == f.size {
		return nil
	}
	if _, err := s.r.Discard(f.size - n - tailSize); err != nil {
		return unexpected(err)
	}
	if part, err = s.r.Peek(tailSize); err != nil {
		return unexpected(err)
	}
	f.tail = append(f.tail, part...)
	s.r.Discard(tailSize)
	return nil
}

// finish reads what is behind the last event: the end-of-stream frame, which
// must report no error, and the end of the body, so that the connection is free.
func (s *frames) finish() error {
	var f frame
	if err := s.next(&f); err != nil {
		return unexpected(err)
	}
	if err := f.check(); err != nil {
		return err
	}
	if f.flags&flagEnd == 0 {
		return fmt.Errorf("an event after the end: %q", f.head)
	}
	if err := s.next(&f); err != io.EOF {
		return fmt.Errorf("more after the end of the stream: %w", unexpected(err))
	}
	return nil
}

// check returns the error in an end-of-stream frame.
func (f *frame) check() error {
	if f.flags&flagEnd != 0 && bytes.Contains(f.head, []byte(`"error"`)) {
		return fmt.Errorf("the stream ended with %s", f.head)
	}
	return nil
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
