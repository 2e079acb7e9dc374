//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	envd "github.com/tend-run/tend/internal/gen/envd/process"
)

const pieceSize = 64 << 10

// input feeds one process by unary SendInput.
type input struct {
	c     *conn
	codec codec
	pid   uint32
	pty   bool
}

func newInput(ctx context.Context, d *daemon, c codec, pid uint32) *input {
	return &input{c: dial(ctx, d.addr), codec: c, pid: pid}
}

// message is a SendInput request, which may be sent many times.
func (in *input) message(data []byte) []byte {
	what := &envd.ProcessInput{Input: &envd.ProcessInput_Stdin{Stdin: data}}
	if in.pty {
		what = &envd.ProcessInput{Input: &envd.ProcessInput_Pty{Pty: data}}
	}
	return must(in.codec.marshal(&envd.SendInputRequest{Process: byPID(in.pid), Input: what}))
}

func (in *input) send(data []byte) { in.post("SendInput", in.message(data)) }

func (in *input) post(method string, m []byte) {
	in.c.call("POST", "/process.Process/"+method, in.codec.unary, m)
}

func (in *input) closeStdin() {
	in.post("CloseStdin", must(in.codec.marshal(&envd.CloseStdinRequest{Process: byPID(in.pid)})))
}

// pieces sends total bytes by SendInput; the message is made once, so that its
// encoding is not the limit.
func (in *input) pieces(total int64) {
	m := in.message(make([]byte, pieceSize))
	for range total / pieceSize {
		in.post("SendInput", m)
	}
}

// stream sends total bytes by one StreamInput call, each message a chunk.
func (in *input) stream(total int64) {
	start := must(in.codec.marshal(&envd.StreamInputRequest{Event: &envd.StreamInputRequest_Start{
		Start: &envd.StreamInputRequest_StartEvent{Process: byPID(in.pid)}}}))
	piece := must(in.codec.marshal(&envd.StreamInputRequest{Event: &envd.StreamInputRequest_Data{
		Data: &envd.StreamInputRequest_DataEvent{Input: &envd.ProcessInput{Input: &envd.ProcessInput_Stdin{Stdin: make([]byte, pieceSize)}}}}}))
	in.c.send("POST", "/process.Process/StreamInput", "Content-Type: "+in.codec.stream+"\r\n", nil, -1)
	must(in.c.nc.Write(chunk(envelope(nil, start))))
	piece = chunk(envelope(nil, piece))
	for range total / pieceSize {
		must(in.c.nc.Write(piece))
	}
	must(in.c.nc.Write([]byte("0\r\n\r\n")))
	in.c.body.Reset(in.c.receive().Body)
	s := &frames{r: in.c.body}
	var f frame
	for f.flags&flagEnd == 0 {
		s.next(&f)
	}
}

// chunk wraps data as one chunk of an HTTP/1.1 body.
func chunk(data []byte) []byte {
	b := fmt.Appendf(nil, "%x\r\n", len(data))
	return append(append(b, data...), "\r\n"...)
}

// feedOnce starts wc, feeds it by one of the ways, and checks its count.
func feedOnce(ctx context.Context, d *daemon, c codec, total int64, way func(*input, int64)) time.Duration {
	on := dial(ctx, d.addr)
	defer on.Close()
	start := time.Now()
	s, pid := c.start(on, startRequest(true, wcPath, "-c"))
	in := newInput(ctx, d, c, pid)
	defer in.c.Close()
	way(in, total)
	// A new connection: StreamInput may have left the old one closed.
	last := newInput(ctx, d, c, pid)
	defer last.c.Close()
	last.closeStdin()
	text := c.text(s)
	took := time.Since(start)
	expect(parseCount(text), total)
	return took
}

func benchStdin(ctx context.Context, e *env) {
	const total, rounds = 256 * mib, 3
	ways := []struct {
		name  string
		codec codec
		way   func(*input, int64)
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
		bare = append(bare, rate(total, bareFeed(total, piece)))
		for i, w := range ways {
			as(strings.TrimSpace(w.name), func() {
				tend[i] = append(tend[i], rate(total, feedOnce(ctx, e.d, w.codec, total, w.way)))
			})
		}
	}
	for i, w := range ways {
		r := figure(w.name, "MiB/s", median(bare), median(tend[i]))
		if w.goal > 0 {
			r = r.atLeast(w.goal)
		}
		e.add(r)
	}
}

// echoShell echoes each byte once, by the program and not by the terminal.
var echoShell = []string{"/bin/sh", "-c", "stty raw -echo; echo ready; exec cat"}

// benchPTY times a line to the terminal and back.
func benchPTY(ctx context.Context, e *env) {
	line := []byte("echo of a line, such as people type\n")
	p := openPTY(echoShell...)
	defer p.close()
	p.read(len("ready\n"))

	c := jsonCodec()
	on := dial(ctx, e.d.addr)
	defer on.Close()
	req := startRequest(true, echoShell...)
	req.Pty = &envd.PTY{Size: &envd.PTY_Size{Cols: 80, Rows: 24}}
	s, pid := c.start(on, req)
	in := newInput(ctx, e.d, c, pid)
	defer in.c.Close()
	in.pty = true
	skip(c, s, len("ready\n"))
	m := in.message(line)
	const path = "/process.Process/SendInput"
	var bare, tend []float64
	for i := range e.n + 20 {
		b := p.roundTrip(line)
		start := time.Now()
		in.c.send("POST", path, "Content-Type: "+c.unary+"\r\n", m, len(m))
		skip(c, s, len(line))
		took := time.Since(start)
		in.c.answer(path)
		if i >= 20 {
			bare, tend = append(bare, micros(b)), append(tend, micros(took))
		}
	}
	in.send([]byte{4}) // raw: cat echoes it
	kill := must(c.marshal(&envd.SendSignalRequest{Process: byPID(pid), Signal: envd.Signal_SIGNAL_SIGKILL}))
	in.post("SendSignal", kill)
	e.add(
		figure("pty round trip, envd JSON, p50", "µs", median(bare), median(tend)).ratioAtMost(2.2),
		figure("  p99", "µs", quantile(bare, 0.99), quantile(tend, 0.99)),
	)
}

// skip reads events until n bytes of output have come.
func skip(c codec, s *frames, n int) {
	var f frame
	for n > 0 {
		s.next(&f)
		if got, ok := c.piece(&f); ok {
			n -= got
		} else if bytes.Contains(f.head, []byte(`"end":`)) {
			fail("the echo ended: %s", f.head)
		}
	}
	if n < 0 {
		fail("%d bytes more than were sent", -n)
	}
}
