//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/tend-run/tend/sdk/go"
)

// langsmith is a box of the LangSmith face.
type langsmith struct {
	name string
	url  string // of the control plane's boxes
	data string // dataplane_url
}

func newLangsmith(ctx context.Context, d *daemon) *langsmith {
	l := &langsmith{url: d.url + "/v2/sandboxes/boxes"}
	var box struct {
		Name         string `json:"name"`
		DataplaneURL string `json:"dataplane_url"`
	}
	req := must(http.NewRequestWithContext(ctx, http.MethodPost, l.url, strings.NewReader("{}")))
	res := must(http.DefaultClient.Do(req))
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(&box); err != nil || box.DataplaneURL == "" {
		fail("no box: %s, %w", res.Status, err)
	}
	l.name, l.data = box.Name, box.DataplaneURL
	return l
}

func (l *langsmith) close() {
	check(must(http.DefaultClient.Do(must(http.NewRequest(http.MethodDelete, l.url+"/"+l.name, nil)))).Body.Close())
}

// command is one execution WebSocket.
type command struct {
	ws *websocket.Conn
	id string
	// buf takes messages, to be used again.
	buf bytes.Buffer
}

func (l *langsmith) dial(ctx context.Context) *command {
	ws, _, err := websocket.Dial(ctx, l.data+"/execute/ws", nil)
	check(err)
	return &command{ws: ws}
}

// open sends the first message and reads the started frame.
func (l *langsmith) open(ctx context.Context, first map[string]any) *command {
	c := l.dial(ctx)
	c.ws.SetReadLimit(1 << 20)
	if err := caught(func() {
		check(c.ws.Write(ctx, websocket.MessageText, must(json.Marshal(first))))
		c.next(ctx)
		var started struct {
			Type string `json:"type"`
			ID   string `json:"command_id"`
		}
		check(json.Unmarshal(c.buf.Bytes(), &started))
		if started.Type != "started" {
			fail("the first frame is %.200s", c.buf.Bytes())
		}
		c.id = started.ID
	}); err != nil {
		c.ws.CloseNow()
		check(err)
	}
	return c
}

func (l *langsmith) execute(ctx context.Context, line string) *command {
	return l.open(ctx, map[string]any{"type": "execute", "command": line, "shell": "/bin/sh", "close_stdin": true, "timeout_seconds": 0})
}

// next reads a frame into buf.
func (c *command) next(ctx context.Context) {
	_, r, err := c.ws.Reader(ctx)
	check(unexpected(err))
	c.buf.Reset()
	must(c.buf.ReadFrom(r))
}

// data is the escaped text of a frame, or false for another frame.
func (c *command) data() ([]byte, bool) {
	b := c.buf.Bytes()
	i := bytes.Index(b[:min(len(b), 80)], []byte(`"data":"`))
	if i < 0 {
		return nil, false
	}
	return b[i+len(`"data":"`) : len(b)-len(`"}`)], true
}

// drain reads to the exit frame and returns the bytes of escaped text.
func (c *command) drain(ctx context.Context) (n int64) {
	defer c.ws.CloseNow()
	for {
		c.next(ctx)
		if d, ok := c.data(); ok {
			n += int64(len(d))
			continue
		}
		if c.buf.String() != `{"type":"exit","exit_code":0}` {
			fail("the command ended with %.200s", c.buf.Bytes())
		}
		return n
	}
}

// textLine escapes to one byte more.
var textLine = strings.Repeat("0123456789abcdef", 5)[:79] + "\n"

// textFile makes a file of n bytes in lines of 80.
func textFile(n int64) (path string) {
	f := must(os.CreateTemp("", "tend-bench-text-"))
	defer f.Close()
	block := strings.Repeat(textLine, 1<<10)
	for ; n > 0; n -= int64(len(block)) {
		must(io.WriteString(f, block[:min(n, int64(len(block)))]))
	}
	return f.Name()
}

// boxText is the same file in the box, which sees none of the machine's /tmp.
const boxText = "/tmp/bench-text"

func (l *langsmith) text(ctx context.Context, n int64) {
	l.execute(ctx, fmt.Sprintf("yes %s | head -c %d >%s", textLine[:79], n, boxText)).drain(ctx)
}

func benchLangsmith(ctx context.Context, e *env) {
	l := newLangsmith(ctx, e.d)
	defer also(l.close)
	for _, one := range []func(context.Context, *env){l.output, l.started, l.atOnce, l.reconnect} {
		one(ctx, e)
	}
}

// output reads ASCII text from one command.
func (l *langsmith) output(ctx context.Context, e *env) {
	const n, rounds = 640 * mib / 2, 5 // a multiple of 80
	file := textFile(n)
	defer os.Remove(file)
	l.text(ctx, n)
	pids := e.d.roles(ctx)
	var bare, face []float64
	spent := usage{}
	buf := make([]byte, 256<<10)
	for range rounds {
		bare = append(bare, rate(n, bareRun(buf, n, "/bin/cat", file)))
		spent.during(pids, func() {
			face = append(face, rate(n, timed(func() { expect(l.execute(ctx, "exec cat "+boxText).drain(ctx), n/80*81) })))
		})
	}
	cpu, each := spent.per(float64(n) * rounds / (1 << 30))
	e.add(
		figure("320 MiB of text out, LangSmith WebSocket", "MiB/s", median(bare), median(face)).atLeast(300),
		figure("  CPU of all roles", "s/GiB", 0, cpu).notes("%s", each),
	)
}

// started compares the time to the first frame with a native Start.
func (l *langsmith) started(ctx context.Context, e *env) {
	var native, face []float64
	for i := range max(e.n/5, 20) + 10 {
		start := time.Now()
		p := must(e.d.sdk.Spawn(ctx, tend.Command("/bin/sh", "-c", "exec true")))
		n := time.Since(start)
		must(p.Wait(ctx, tend.WaitOptions{}))
		p.Close()
		c := l.dial(ctx)
		start = time.Now()
		check(c.ws.Write(ctx, websocket.MessageText, []byte(`{"type":"execute","command":"exec true","shell":"/bin/sh","close_stdin":true}`)))
		c.next(ctx)
		f := time.Since(start)
		c.drain(ctx)
		if i >= 10 { // those before warm up both sides
			native, face = append(native, micros(n)), append(face, micros(f))
		}
	}
	e.add(figure("execute→started, LangSmith, p50", "µs", median(native), median(face)).ratioAtMost(1.5).notes("bare: Spawn by the Go client; p99 %s", number(quantile(face, 0.99))))
}

// atOnce runs 200 commands at a time.
func (l *langsmith) atOnce(ctx context.Context, e *env) {
	const commands, lines = 200, 200
	took := timed(func() {
		together(commands, func(int) {
			expect(l.execute(ctx, "i=0; while [ $i -lt "+strconv.Itoa(lines)+" ]; do echo 1234567; i=$((i+1)); done").drain(ctx), lines*9)
		})
	})
	e.add(figure("200 LangSmith commands at once, 200 lines each", "ms", 0, millis(took)).notes("every line arrived"))
}

// reconnect continues in the middle of a finished output.
func (l *langsmith) reconnect(ctx context.Context, e *env) {
	l.text(ctx, 320*mib)
	c := l.execute(ctx, "exec cat "+boxText)
	c.drain(ctx)
	var took []float64
	for i := range max(e.n/20, 10) {
		var again *command
		took = append(took, millis(timed(func() {
			again = l.open(ctx, map[string]any{"type": "reconnect", "command_id": c.id, "stdout_offset": int64(300*mib + i)})
			again.next(ctx)
		})))
		again.ws.CloseNow()
	}
	e.add(figure("reconnect to the first byte at 300 MiB, p99", "ms", 0, quantile(took, 0.99)).atMost(20).notes("p50 %s, dial included", number(median(took))))
}

// benchLangsmithIdle holds 1,000 connections to commands that are silent.
func benchLangsmithIdle(ctx context.Context, e *env) {
	const idle = 1000
	l := newLangsmith(ctx, e.d)
	for range 20 { // warm
		l.execute(ctx, "true").drain(ctx)
	}
	pids := e.d.roles(ctx)
	first := l.execute(ctx, "exec sleep 3600")
	conns := []*command{first}
	defer func() {
		for _, c := range conns {
			c.ws.CloseNow()
		}
	}()
	pause(ctx, rested)
	before := pids.memory("server")
	for range idle {
		conns = append(conns, l.open(ctx, map[string]any{"type": "reconnect", "command_id": first.id}))
	}
	pause(ctx, rested)
	after := pids.memory("server")
	e.add(figure("RSS of the server per idle LangSmith connection, at 1,000", "KiB", 0, (after.rss-before.rss)/idle).atMost(24))
	l.close()
}
