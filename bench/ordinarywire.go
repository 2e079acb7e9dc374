//go:build linux

package main

// The ordinary client: Connect over net/http, as an SDK has it, with the
// goroutines and buffers of its transport, and every message decoded.

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// ordinary is a client with a pool of connections of its own.
type ordinary struct {
	url string
	hc  *http.Client
}

func newOrdinary(url string) *ordinary {
	d := &net.Dialer{Timeout: 5 * time.Second}
	return &ordinary{url: url, hc: &http.Client{Transport: &http.Transport{
		DialContext:         d.DialContext,
		MaxIdleConns:        4096,
		MaxIdleConnsPerHost: 4096,
		IdleConnTimeout:     5 * time.Minute,
		DisableCompression:  true,
		ReadBufferSize:      64 << 10,
		WriteBufferSize:     64 << 10,
	}}}
}

// cmdline is what a Start asks for.
type cmdline struct {
	Cmd   string
	Args  []string
	Cols  uint32 // >0: pty
	Rows  uint32
	Stdin bool
}

// event is a decoded ProcessEvent.
type event struct {
	Kind     byte // 's'tart 'o'ut 'e'rr 'p'ty 'x' end 'k'eepalive
	PID      uint32
	Data     []byte // valid until the next Next call
	ExitCode int32
	Exited   bool
	Status   string
}

func msg(b []byte, num protowire.Number, body []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), body)
}

func varint(b []byte, num protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), v)
}

func str(b []byte, num protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), s)
}

func encodeStart(c cmdline) []byte {
	var p, b []byte
	p = str(p, 1, c.Cmd)
	for _, a := range c.Args {
		p = str(p, 2, a)
	}
	b = msg(b, 1, p)
	if c.Cols > 0 {
		b = msg(b, 2, msg(nil, 1, varint(varint(nil, 1, uint64(c.Cols)), 2, uint64(c.Rows))))
	}
	v := uint64(0)
	if c.Stdin {
		v = 1
	}
	return varint(b, 4, v)
}

func encodeStartJSON(c cmdline) []byte {
	m := map[string]any{"process": map[string]any{"cmd": c.Cmd, "args": c.Args}, "stdin": c.Stdin}
	if c.Cols > 0 {
		m["pty"] = map[string]any{"size": map[string]any{"cols": c.Cols, "rows": c.Rows}}
	}
	b, _ := json.Marshal(m)
	return b
}

func selector(pid uint32) []byte { return varint(nil, 1, uint64(pid)) }

// stream is an open server stream.
type stream struct {
	resp   *http.Response
	r      *bufio.Reader
	buf    []byte
	json   bool
	cancel context.CancelFunc
	scr    []byte
}

// post sends a request, whose answer must be a success.
func (t *ordinary) post(ctx context.Context, method, contentType string, body io.Reader) *http.Response {
	req := must(http.NewRequestWithContext(ctx, http.MethodPost, t.url+"/process.Process/"+method, body))
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Connect-Protocol-Version", "1")
	resp := must(t.hc.Do(req))
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 512))
		resp.Body.Close()
		fail("%s: HTTP %d: %s", method, resp.StatusCode, b)
	}
	return resp
}

func (t *ordinary) openStream(ctx context.Context, method string, body []byte, asJSON bool) *stream {
	ctx, cancel := context.WithCancel(ctx)
	ct := "application/connect+proto"
	if asJSON {
		ct = "application/connect+json"
	}
	resp := t.post(ctx, method, ct, bytes.NewReader(envelope(nil, body)))
	return &stream{resp: resp, r: bufio.NewReaderSize(resp.Body, 128<<10), json: asJSON, cancel: cancel}
}

func (t *ordinary) Start(ctx context.Context, c cmdline, asJSON bool) *stream {
	b := encodeStart(c)
	if asJSON {
		b = encodeStartJSON(c)
	}
	return t.openStream(ctx, "Start", b, asJSON)
}

func (t *ordinary) Connect(ctx context.Context, pid uint32) *stream {
	return t.openStream(ctx, "Connect", msg(nil, 1, selector(pid)), false)
}

// Next reads the next event. It returns false after the end-of-stream frame.
func (s *stream) Next(e *event) bool {
	var h [5]byte
	_, err := io.ReadFull(s.r, h[:])
	check(unexpected(err))
	n := int(binary.BigEndian.Uint32(h[1:]))
	if cap(s.buf) < n {
		s.buf = make([]byte, n+n/2)
	}
	s.buf = s.buf[:n]
	must(io.ReadFull(s.r, s.buf))
	if h[0]&2 != 0 {
		var end struct {
			Error *struct{ Code, Message string } `json:"error"`
		}
		_ = json.Unmarshal(s.buf, &end)
		_, _ = io.Copy(io.Discard, s.r) // let the connection be reused
		if end.Error != nil {
			fail("%s: %s", end.Error.Code, end.Error.Message)
		}
		return false
	}
	if s.json {
		s.decodeJSON(s.buf, e)
	} else {
		decodeEvent(s.buf, e)
	}
	return true
}

func (s *stream) Close() {
	s.cancel()
	s.resp.Body.Close()
}

func fields(b []byte, f func(num protowire.Number, v uint64, body []byte)) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		switch typ {
		case protowire.VarintType:
			v, n := protowire.ConsumeVarint(b)
			if n < 0 {
				return protowire.ParseError(n)
			}
			f(num, v, nil)
			b = b[n:]
		case protowire.BytesType:
			v, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return protowire.ParseError(n)
			}
			f(num, 0, v)
			b = b[n:]
		default:
			n := protowire.ConsumeFieldValue(num, typ, b)
			if n < 0 {
				return protowire.ParseError(n)
			}
			b = b[n:]
		}
	}
	return nil
}

func decodeEvent(b []byte, e *event) {
	*e = event{}
	check(fields(b, func(num protowire.Number, _ uint64, ev []byte) {
		if num != 1 || ev == nil {
			return
		}
		check(fields(ev, func(kind protowire.Number, _ uint64, body []byte) {
			switch kind {
			case 1:
				e.Kind = 's'
				_ = fields(body, func(n protowire.Number, v uint64, _ []byte) {
					if n == 1 {
						e.PID = uint32(v)
					}
				})
			case 2:
				_ = fields(body, func(n protowire.Number, _ uint64, d []byte) {
					e.Kind, e.Data = " oep"[n&3], d
				})
			case 3:
				e.Kind = 'x'
				_ = fields(body, func(n protowire.Number, v uint64, d []byte) {
					switch n {
					case 1:
						e.ExitCode = int32(protowire.DecodeZigZag(v))
					case 2:
						e.Exited = v != 0
					case 3:
						e.Status = string(d)
					}
				})
			case 4:
				e.Kind = 'k'
			}
		}))
	}))
}

type jsonEvent struct {
	Event struct {
		Start *struct{ Pid uint32 }
		Data  *struct{ Stdout, Stderr, Pty []byte }
		End   *struct {
			ExitCode int32
			Exited   bool
			Status   string
		}
		Keepalive *struct{}
	}
}

func (s *stream) decodeJSON(b []byte, e *event) {
	*e = event{}
	// Fast path for the hot frame {"event":{"data":{"stdout":"…"}}}: the load
	// generator must not be the bottleneck.
	if i := bytes.Index(b, []byte(`"stdout":"`)); i >= 0 && i < 40 {
		v := b[i+10:]
		if j := bytes.IndexByte(v, '"'); j >= 0 {
			n := base64.StdEncoding.DecodedLen(j)
			if cap(s.scr) < n {
				s.scr = make([]byte, n+n/2)
			}
			k := must(base64.StdEncoding.Decode(s.scr[:n], v[:j]))
			e.Kind, e.Data = 'o', s.scr[:k]
			return
		}
	}
	var j jsonEvent
	check(json.Unmarshal(b, &j))
	switch v := j.Event; {
	case v.Start != nil:
		e.Kind, e.PID = 's', v.Start.Pid
	case v.Data != nil && v.Data.Stdout != nil:
		e.Kind, e.Data = 'o', v.Data.Stdout
	case v.Data != nil && v.Data.Stderr != nil:
		e.Kind, e.Data = 'e', v.Data.Stderr
	case v.Data != nil:
		e.Kind, e.Data = 'p', v.Data.Pty
	case v.End != nil:
		e.Kind, e.ExitCode, e.Exited, e.Status = 'x', v.End.ExitCode, v.End.Exited, v.End.Status
	default:
		e.Kind = 'k'
	}
}

func (t *ordinary) unary(ctx context.Context, method string, body []byte) {
	resp := t.post(ctx, method, "application/proto", bytes.NewReader(body))
	defer resp.Body.Close()
	must(io.ReadAll(resp.Body))
}

// SendInput writes to stdin (kind 1) or the pty (kind 2).
func (t *ordinary) SendInput(ctx context.Context, pid uint32, kind protowire.Number, data []byte) {
	t.unary(ctx, "SendInput", msg(msg(nil, 1, selector(pid)), 2, msg(nil, kind, data)))
}

func (t *ordinary) CloseStdin(ctx context.Context, pid uint32) {
	t.unary(ctx, "CloseStdin", msg(nil, 1, selector(pid)))
}

func (t *ordinary) Signal(ctx context.Context, pid uint32, sig uint64) {
	t.unary(ctx, "SendSignal", varint(msg(nil, 1, selector(pid)), 2, sig))
}

// StreamInput sends total bytes of stdin in chunks through one client stream.
func (t *ordinary) StreamInput(ctx context.Context, pid uint32, total int64, chunk int) {
	pr, pw := io.Pipe()
	go func() {
		w := bufio.NewWriterSize(pw, 256<<10)
		_, err := w.Write(envelope(nil, msg(nil, 1, msg(nil, 1, selector(pid)))))
		data := bytes.Repeat([]byte{'z'}, chunk)
		for err == nil && total > 0 {
			d := data[:min(int64(chunk), total)]
			total -= int64(len(d))
			_, err = w.Write(envelope(nil, msg(nil, 2, msg(nil, 2, msg(nil, 1, d)))))
		}
		if err == nil {
			err = w.Flush()
		}
		pw.CloseWithError(err)
	}()
	resp := t.post(ctx, "StreamInput", "application/connect+proto", pr)
	defer resp.Body.Close()
	b := must(io.ReadAll(resp.Body))
	if i := bytes.Index(b, []byte(`"error"`)); i >= 0 {
		fail("StreamInput: %s", b[i:])
	}
}

// Run starts c, feeds every event to f, and returns the end event.
func (t *ordinary) Run(ctx context.Context, c cmdline, asJSON bool, f func(*event)) event {
	s := t.Start(ctx, c, asJSON)
	defer s.Close()
	return s.Drain(f)
}

// Drain reads a stream to its end and returns the end event.
func (s *stream) Drain(f func(*event)) event {
	var e, end event
	for s.Next(&e) {
		if e.Kind == 'x' {
			end = e
		}
		if f != nil {
			f(&e)
		}
	}
	if end.Kind != 'x' {
		fail("stream ended without an end event")
	}
	return end
}

// First reads the start event.
func (s *stream) First() uint32 {
	var e event
	if !s.Next(&e) || e.Kind != 's' {
		fail("first event is %q, not a start event", e.Kind)
	}
	return e.PID
}
