//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	envd "github.com/tend-run/tend/gen/envd/process"
)

const pieceSize = 64 << 10

// input feeds one process by unary SendInput.
type input struct {
	c     *conn
	codec codec
	pid   uint32
	pty   bool
}

func newInput(ctx context.Context, d *daemon, c codec, pid uint32) (*input, error) {
	on, err := dial(ctx, d.addr)
	return &input{c: on, codec: c, pid: pid}, err
}

// message is a SendInput request, which may be sent many times.
func (in *input) message(data []byte) ([]byte, error) {
	what := &envd.ProcessInput{Input: &envd.ProcessInput_Stdin{Stdin: data}}
	if in.pty {
		what = &envd.ProcessInput{Input: &envd.ProcessInput_Pty{Pty: data}}
	}
	return in.codec.marshal(&envd.SendInputRequest{Process: byPID(in.pid), Input: what})
}

func (in *input) send(data []byte) error {
	m, err := in.message(data)
	if err != nil {
		return err
	}
	return in.post("SendInput", m)
}

func (in *input) post(method string, m []byte) error {
	_, err := in.c.call("POST", "/process.Process/"+method, in.codec.unary, m)
	return err
}

func (in *input) closeStdin() error {
	m, err := in.codec.marshal(&envd.CloseStdinRequest{Process: byPID(in.pid)})
	if err != nil {
		return err
	}
	return in.post("CloseStdin", m)
}

// pieces sends total bytes by SendInput; the message is made once, so that its
// encoding is not the limit.
func (in *input) pieces(total int64) error {
	m, err := in.message(make([]byte, pieceSize))
	if err != nil {
		return err
	}
	for range total / pieceSize {
		if err := in.post("SendInput", m); err != nil {
			return err
		}
	}
	return nil
}

// stream sends total bytes by one StreamInput call, each message a chunk.
func (in *input) stream(total int64) error {
	start, err := in.codec.marshal(&envd.StreamInputRequest{Event: &envd.StreamInputRequest_Start{
		Start: &envd.StreamInputRequest_StartEvent{Process: byPID(in.pid)}}})
	if err != nil {
		return err
	}
	piece, err := in.codec.marshal(&envd.StreamInputRequest{Event: &envd.StreamInputRequest_Data{
		Data: &envd.StreamInputRequest_DataEvent{Input: &envd.ProcessInput{Input: &envd.ProcessInput_Stdin{Stdin: make([]byte, pieceSize)}}}}})
	if err != nil {
		return err
	}
	if err := in.c.send("POST", "/process.Process/StreamInput", "Content-Type: "+in.codec.stream+"\r\n", nil, -1); err != nil {
		return err
	}
	if _, err := in.c.nc.Write(chunk(envelope(nil, start))); err != nil {
		return err
	}
	piece = chunk(envelope(nil, piece))
	for range total / pieceSize {
		if _, err := in.c.nc.Write(piece); err != nil {
			return err
		}
	}
	if _, err := in.c.nc.Write([]byte("0\r\n\r\n")); err != nil {
		return err
	}
	resp, err := in.c.receive()
	if err != nil {
		return err
	}
	in.c.body.Reset(resp.Body)
	s := &frames{r: in.c.body}
	var f frame
	for {
		if err := s.next(&f); err != nil {
			return unexpected(err)
		}
		if f.flags&flagEnd != 0 {
			return f.check()
		}
	}
}

// chunk wraps data as one chunk of an HTTP/1.1 body.
func chunk(data []byte) []byte {
	b := fmt.Appendf(nil, "%x\r\n", len(data))
	return append(append(b, data...), "\r\n"...)
}

// feedOnce starts wc, feeds it by one of the ways, and checks its count.
func feedOnce(ctx context.Context, d *daemon, c codec, total int64, way func(*input, int64) error) (time.Duration, error) {
	on, err := dial(ctx, d.addr)
	if err != nil {
		return 0, err
	}
	defer on.Close()
	start := time.Now()
	s, pid, err := c.start(on, startRequest(true, wcPath, "-c"))
	if err != nil {
		return 0, err
	}
	in, err := newInput(ctx, d, c, pid)
	if err != nil {
		return 0, err
	}
	defer in.c.Close()
	if err := way(in, total); err != nil {
		return 0, err
	}
	// A new connection: StreamInput may have left the old one closed.
	last, err := newInput(ctx, d, c, pid)
	if err != nil {
		return 0, err
	}
	defer last.c.Close()
	if err := last.closeStdin(); err != nil {
		return 0, err
	}
	text, err := c.text(s)
	if err != nil {
		return 0, err
	}
	took := time.Since(start)
	count, err := parseCount(text)
	if err != nil {
		return 0, err
	}
	return took, expect(count, total)
}

func benchStdin(ctx context.Context, e *env) ([]row, error) {
	const total, rounds = 256 * mib, 3
	ways := []struct {
		name  string
		codec codec
		way   func(*input, int64) error
		goal  float64
	}{
		{"stdin in 64 KiB pieces, SendInput, binary", binaryCodec(), (*input).pieces, 400},
		{"  SendInput, JSON", jsonCodec(), (*input).pieces, 0},
		{"  StreamInput, binary", binaryCodec(), (*input).stream, 1000},
		{"  StreamInput, JSON", jsonCodec(), (*input).stream, 0},
	}
	piece := make([]byte, pieceSize)
	var bare []float64
	tend := make([][]float64, len(ways))
	for range rounds {
		took, err := bareFeed(total, piece)
		if err != nil {
			return nil, fmt.Errorf("bare pipe: %w", err)
		}
		bare = append(bare, rate(total, took))
		for i, w := range ways {
			took, err := feedOnce(ctx, e.d, w.codec, total, w.way)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", strings.TrimSpace(w.name), err)
			}
			tend[i] = append(tend[i], rate(total, took))
		}
	}
	var rows []row
	for i, w := range ways {
		r := figure(w.name, "MiB/s", median(bare), median(tend[i]))
		if w.goal > 0 {
			r = r.atLeast(w.goal)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// echoShell echoes each byte once, by the program and not by the terminal.
var echoShell = []string{"/bin/sh", "-c", "stty raw -echo; echo ready; exec cat"}

// benchPTY times a line to the terminal and back.
func benchPTY(ctx context.Context, e *env) ([]row, error) {
	line := []byte("echo of a line, such as people type\n")
	p, err := openPTY(echoShell...)
	if err != nil {
		return nil, err
	}
	defer p.close()
	if err := p.read(len("ready\n")); err != nil {
		return nil, err
	}

	c := jsonCodec()
	on, err := dial(ctx, e.d.addr)
	if err != nil {
		return nil, err
	}
	defer on.Close()
	req := startRequest(true, echoShell...)
	req.Pty = &envd.PTY{Size: &envd.PTY_Size{Cols: 80, Rows: 24}}
	s, pid, err := c.start(on, req)
	if err != nil {
		return nil, err
	}
	in, err := newInput(ctx, e.d, c, pid)
	if err != nil {
		return nil, err
	}
	defer in.c.Close()
	in.pty = true
	if err := skip(c, s, len("ready\n")); err != nil {
		return nil, err
	}
	m, err := in.message(line)
	if err != nil {
		return nil, err
	}
	const path = "/process.Process/SendInput"
	var bare, tend []float64
	for i := range e.n + 20 {
		b, err := p.roundTrip(line)
		if err != nil {
			return nil, fmt.Errorf("bare pty: %w", err)
		}
		start := time.Now()
		if err := in.c.send("POST", path, "Content-Type: "+c.unary+"\r\n", m, len(m)); err != nil {
			return nil, err
		}
		if err := skip(c, s, len(line)); err != nil {
			return nil, err
		}
		took := time.Since(start)
		if _, err := in.c.answer(path); err != nil {
			return nil, err
		}
		if i >= 20 {
			bare, tend = append(bare, micros(b)), append(tend, micros(took))
		}
	}
	if err := in.send([]byte{4}); err != nil { // raw: cat echoes it
		return nil, err
	}
	kill, err := c.marshal(&envd.SendSignalRequest{Process: byPID(pid), Signal: envd.Signal_SIGNAL_SIGKILL})
	if err != nil {
		return nil, err
	}
	if err := in.post("SendSignal", kill); err != nil {
		return nil, err
	}
	return []row{
		figure("pty round trip, envd JSON, p50", "µs", median(bare), median(tend)).ratioAtMost(2.2),
		figure("  p99", "µs", quantile(bare, 0.99), quantile(tend, 0.99)),
	}, nil
}

// skip reads events until n bytes of output have come.
func skip(c codec, s *frames, n int) error {
	var f frame
	for n > 0 {
		if err := s.next(&f); err != nil {
			return unexpected(err)
		}
		if err := f.check(); err != nil {
			return err
		}
		if got, ok := c.piece(&f); ok {
			n -= got
		} else if bytes.Contains(f.head, []byte(`"end":`)) {
			return fmt.Errorf("the echo ended: %s", f.head)
		}
	}
	if n < 0 {
		return fmt.Errorf("%d bytes more than were sent", -n)
	}
	return nil
}
