//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/tend-run/tend"
)

// langsmith is a box of the LangSmith face.
type langsmith struct {
	name string
	url  string // of the control plane's boxes
	data string // dataplane_url
}

func newLangsmith(ctx context.Context, d *daemon) (*langsmith, error) {
	l := &langsmith{url: d.url + "/v2/sandboxes/boxes"}
	var box struct {
		Name         string `json:"name"`
		DataplaneURL string `json:"dataplane_url"`
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url, strings.NewReader("{}"))
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(&box); err != nil || box.DataplaneURL == "" {
		return nil, fmt.Errorf("no box: %s, %w", res.Status, err)
	}
	l.name, l.data = box.Name, box.DataplaneURL
	return l, nil
}

func (l *langsmith) close() error {
	req, err := http.NewRequest(http.MethodDelete, l.url+"/"+l.name, nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	return res.Body.Close()
}

// command is one execution WebSocket.
type command struct {
	ws *websocket.Conn
	id string
	// buf takes messages, to be used again.
	buf bytes.Buffer
}

// open sends the first message and reads the started frame.
func (l *langsmith) open(ctx context.Context, first map[string]any) (*command, error) {
	ws, _, err := websocket.Dial(ctx, l.data+"/execute/ws", nil)
	if err != nil {
		return nil, err
	}
	ws.SetReadLimit(1 << 20)
	c := &command{ws: ws}
	b, err := json.Marshal(first)
	if err == nil {
		err = ws.Write(ctx, websocket.MessageText, b)
	}
	if err == nil {
		err = c.next(ctx)
	}
	var started struct {
		Type string `json:"type"`
		ID   string `json:"command_id"`
	}
	if err == nil {
		err = json.Unmarshal(c.buf.Bytes(), &started)
	}
	if err == nil && started.Type != "started" {
		err = fmt.Errorf("the first frame is %.200s", c.buf.Bytes())
	}
	c.id = started.ID
	if err != nil {
		ws.CloseNow()
		return nil, err
	}
	return c, nil
}

func (l *langsmith) execute(ctx context.Context, line string) (*command, error) {
	return l.open(ctx, map[string]any{"type": "execute", "command": line, "shell": "/bin/sh", "close_stdin": true, "timeout_seconds": 0})
}

// next reads a frame into buf.
func (c *command) next(ctx context.Context) error {
	_, r, err := c.ws.Reader(ctx)
	if err != nil {
		return err
	}
	c.buf.Reset()
	_, err = c.buf.ReadFrom(r)
	return err
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
func (c *command) drain(ctx context.Context) (n int64, err error) {
	defer c.ws.CloseNow()
	for {
		if err := c.next(ctx); err != nil {
			return n, unexpected(err)
		}
		if d, ok := c.data(); ok {
			n += int64(len(d))
			continue
		}
		if c.buf.String() != `{"type":"exit","exit_code":0}` {
			return n, fmt.Errorf("the command ended with %.200s", c.buf.Bytes())
		}
		return n, nil
	}
}

// textFile makes a file of n bytes in lines of 80, which escape to 81.
func textFile(n int64) (path string, err error) {
	f, err := os.CreateTemp("", "tend-bench-text-")
	if err != nil {
		return "", err
	}
	line := strings.Repeat("0123456789abcdef", 5)[:79] + "\n"
	block := strings.Repeat(line, 1<<10)
	for ; n > 0 && err == nil; n -= int64(len(block)) {
		_, err = io.WriteString(f, block[:min(n, int64(len(block)))])
	}
	return f.Name(), errors.Join(err, f.Close())
}

func benchLangsmith(ctx context.Context, e *env) ([]row, error) {
	l, err := newLangsmith(ctx, e.d)
	if err != nil {
		return nil, err
	}
	rows, err := l.bench(ctx, e)
	return rows, errors.Join(err, l.close())
}

func (l *langsmith) bench(ctx context.Context, e *env) ([]row, error) {
	var rows []row
	for _, one := range []func(context.Context, *env) ([]row, error){l.output, l.started, l.atOnce, l.reconnect} {
		got, err := one(ctx, e)
		rows = append(rows, got...)
		if err != nil {
			return rows, err
		}
	}
	return rows, nil
}

// output reads ASCII text from one command.
func (l *langsmith) output(ctx context.Context, e *env) ([]row, error) {
	const n, rounds = 640 * mib / 2, 5 // a multiple of 80
	file, err := textFile(n)
	if err != nil {
		return nil, err
	}
	defer os.Remove(file)
	pids, err := e.d.roles(ctx)
	if err != nil {
		return nil, err
	}
	var bare, face []float64
	spent := usage{}
	buf := make([]byte, 256<<10)
	for range rounds {
		got, took, err := bareRun(buf, "/bin/cat", file)
		if err == nil {
			err = expect(got, n)
		}
		if err != nil {
			return nil, err
		}
		bare = append(bare, rate(n, took))
		before, err := pids.cpu()
		if err != nil {
			return nil, err
		}
		start := time.Now()
		c, err := l.execute(ctx, "exec cat "+file)
		if err != nil {
			return nil, err
		}
		chars, err := c.drain(ctx)
		if err == nil {
			err = expect(chars, n/80*81)
		}
		if err != nil {
			return nil, err
		}
		face = append(face, rate(n, time.Since(start)))
		after, err := pids.cpu()
		if err != nil {
			return nil, err
		}
		spent.add(before, after)
	}
	cpu, each := spent.per(float64(n) * rounds / (1 << 30))
	return []row{
		figure("320 MiB of text out, LangSmith WebSocket", "MiB/s", median(bare), median(face)).atLeast(300),
		figure("  CPU of all roles", "s/GiB", 0, cpu).notes("%s", each),
	}, nil
}

// started compares the time to the first frame with a native Start.
func (l *langsmith) started(ctx context.Context, e *env) ([]row, error) {
	var native, face []float64
	for i := range max(e.n/5, 20) + 10 {
		start := time.Now()
		p, err := e.d.sdk.Spawn(ctx, tend.Command("/bin/sh", "-c", "exec true"))
		if err != nil {
			return nil, err
		}
		n := time.Since(start)
		if _, err := p.Wait(ctx, tend.WaitOptions{}); err != nil {
			return nil, err
		}
		p.Close()
		ws, _, err := websocket.Dial(ctx, l.data+"/execute/ws", nil)
		if err != nil {
			return nil, err
		}
		c := &command{ws: ws}
		start = time.Now()
		if err := ws.Write(ctx, websocket.MessageText, []byte(`{"type":"execute","command":"exec true","shell":"/bin/sh","close_stdin":true}`)); err != nil {
			return nil, err
		}
		if err := c.next(ctx); err != nil {
			return nil, err
		}
		f := time.Since(start)
		if _, err := c.drain(ctx); err != nil {
			return nil, err
		}
		if i >= 10 { // those before warm up both sides
			native, face = append(native, micros(n)), append(face, micros(f))
		}
	}
	return []row{figure("execute→started, LangSmith, p50", "µs", median(native), median(face)).ratioAtMost(1.5).notes("bare: Spawn by the Go client; p99 %s", number(quantile(face, 0.99)))}, nil
}

// atOnce runs 200 commands at a time.
func (l *langsmith) atOnce(ctx context.Context, _ *env) ([]row, error) {
	const commands, lines = 200, 200
	errs := make([]error, commands)
	var wg sync.WaitGroup
	start := time.Now()
	for i := range commands {
		wg.Go(func() {
			c, err := l.execute(ctx, "i=0; while [ $i -lt "+strconv.Itoa(lines)+" ]; do echo 1234567; i=$((i+1)); done")
			if err == nil {
				var n int64
				if n, err = c.drain(ctx); err == nil {
					err = expect(n, lines*9)
				}
			}
			errs[i] = err
		})
	}
	wg.Wait()
	took := time.Since(start)
	return []row{figure("200 LangSmith commands at once, 200 lines each", "ms", 0, millis(took)).notes("every line arrived")}, errors.Join(errs...)
}

// reconnect goes on in the middle of a finished output.
func (l *langsmith) reconnect(ctx context.Context, e *env) ([]row, error) {
	file, err := textFile(320 * mib)
	if err != nil {
		return nil, err
	}
	defer os.Remove(file)
	c, err := l.execute(ctx, "exec cat "+file)
	if err != nil {
		return nil, err
	}
	if _, err := c.drain(ctx); err != nil {
		return nil, err
	}
	var took []float64
	for i := range max(e.n/20, 10) {
		start := time.Now()
		again, err := l.open(ctx, map[string]any{"type": "reconnect", "command_id": c.id, "stdout_offset": int64(300*mib + i)})
		if err != nil {
			return nil, err
		}
		if err := again.next(ctx); err != nil {
			return nil, err
		}
		took = append(took, millis(time.Since(start)))
		again.ws.CloseNow()
	}
	return []row{figure("reconnect to the first byte at 300 MiB, p99", "ms", 0, quantile(took, 0.99)).atMost(20).notes("p50 %s, dial included", number(median(took)))}, nil
}

// benchLangsmithIdle holds 1,000 connections to commands that are silent.
func benchLangsmithIdle(ctx context.Context, e *env) ([]row, error) {
	const idle, settle = 1000, 2 * time.Second
	l, err := newLangsmith(ctx, e.d)
	if err != nil {
		return nil, err
	}
	for range 20 { // warm
		c, err := l.execute(ctx, "true")
		if err != nil {
			return nil, err
		}
		if _, err := c.drain(ctx); err != nil {
			return nil, err
		}
	}
	pids, err := e.d.roles(ctx)
	if err != nil {
		return nil, err
	}
	first, err := l.execute(ctx, "exec sleep 3600")
	if err != nil {
		return nil, err
	}
	conns := []*command{first}
	defer func() {
		for _, c := range conns {
			c.ws.CloseNow()
		}
	}()
	before, err := pids.memory("server")
	if err != nil {
		return nil, err
	}
	for range idle {
		c, err := l.open(ctx, map[string]any{"type": "reconnect", "command_id": first.id})
		if err != nil {
			return nil, err
		}
		conns = append(conns, c)
	}
	if err := pause(ctx, settle); err != nil {
		return nil, err
	}
	after, err := pids.memory("server")
	if err != nil {
		return nil, err
	}
	return []row{
		figure("RSS of the server per idle LangSmith connection, at 1,000", "KiB", 0, (after.rss-before.rss)/idle).atMost(24),
	}, l.close()
}
