package server

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// TestStreamsOfInputThatStall: over HTTP/2 many streams share a connection, and
// what stalled ones have sent must leave room for the others.
func TestStreamsOfInputThatStall(t *testing.T) {
	const stalled = 100
	var manager process.Manager
	s := serve(t, func(c *Config) { manager = c.Manager })
	start := func(argv ...string) process.Process {
		p := proctest.Start(t, manager, process.Spec{Argv: argv, Stdin: process.StdinPipe})
		return p
	}
	pid := func(p process.Process) int {
		info := proctest.Info(t, p)
		return info.PID
	}
	deaf, cat := start("sleep", "100000"), start("cat")
	c := s.client(t, "h2", "tcp")
	ctx, leave := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer leave()
	message := func(text string) []byte { return envelope(len(text), []byte(text)) }
	piece := message(`{"data":{"input":{"stdin":"` + base64.StdEncoding.EncodeToString(make([]byte, 48<<10)) + `"}}}`)
	for range stalled {
		body, w := io.Pipe()
		req := proctest.Value(http.NewRequestWithContext(ctx, http.MethodPost, s.tcp+"/process.Process/StreamInput", body))(t)
		req.Header.Set("Content-Type", "application/connect+json")
		wg.Go(func() {
			if res, err := c.Do(req); err == nil {
				res.Body.Close()
			}
			body.Close()
		})
		wg.Go(func() {
			_, err := w.Write(message(fmt.Sprintf(`{"start":{"process":{"pid":%d}}}`, pid(deaf))))
			for err == nil {
				_, err = w.Write(piece)
			}
		})
	}
	proctest.Eventually(t, "input waits for the process that does not read", func() bool {
		info, err := deaf.Info(t.Context())
		return err == nil && info.Stdin.Accepted >= 1<<20
	})
	for i := range 20 {
		body := fmt.Sprintf(`{"process":{"pid":%d},"input":{"stdin":%q}}`, pid(cat), base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", 64<<10))))
		if code, text := do(t, c, http.MethodPost, s.tcp+"/process.Process/SendInput", body, map[string]string{"Content-Type": "application/json"}); code != 200 {
			t.Fatalf("input %d to another process: %d %s", i, code, text)
		}
	}
}
