//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/tend-run/tend/sdk/go"
)

// asker calls tools at /mcp, on one connection.
type asker struct {
	client http.Client
	url    string
}

// ask returns the text that a tool answers.
func (a *asker) ask(ctx context.Context, tool string, args map[string]any) string {
	body := must(json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{"name": tool, "arguments": args}}))
	req := must(http.NewRequestWithContext(ctx, http.MethodPost, a.url, bytes.NewReader(body)))
	req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Mcp-Protocol-Version": {"2025-11-25"}}
	resp := must(a.client.Do(req))
	defer resp.Body.Close()
	return string(must(io.ReadAll(resp.Body)))
}

// benchMCP compares a run by MCP with the native API's, and asks for the answer about a
// large output.
func benchMCP(ctx context.Context, e *env) {
	a := &asker{url: "http://" + e.d.addr + "/mcp"}
	defer a.client.CloseIdleConnections()
	var native, mcp []float64
	for i := range e.n + 20 {
		start := time.Now()
		p := must(e.d.sdk.Spawn(ctx, tend.Command(truePath)))
		must(p.Wait(ctx, tend.WaitOptions{}))
		n := time.Since(start)
		p.Close()
		start = time.Now()
		text := a.ask(ctx, "run", map[string]any{"argv": []string{truePath}})
		m := time.Since(start)
		if !strings.Contains(text, "exited with code 0") {
			fail("MCP run of true: %s", text)
		}
		if i < 20 {
			continue // warms up both sides
		}
		native, mcp = append(native, micros(n)), append(mcp, micros(m))
	}
	e.add(figure("MCP run of /bin/true, beside the Go client, p50", "µs", median(native), median(mcp)).ratioAtMost(1.5))

	const size = 1 << 30
	const tokens = 2000
	text := a.ask(ctx, "run", map[string]any{"command": fmt.Sprintf("yes | head -c %d", size), "name": "bench-mcp", "timeout_s": 300})
	if !strings.Contains(text, "exited with code 0") {
		fail("MCP run of 1 GiB: %.500s", text)
	}
	var took []float64
	for range 20 {
		start := time.Now()
		text := a.ask(ctx, "output", map[string]any{"id": "bench-mcp", "max_tokens": tokens})
		took = append(took, float64(time.Since(start).Microseconds())/1000)
		if len(text) > 4*tokens*2 || !strings.Contains(text, "bytes left out") {
			fail("an answer of %d bytes for %d tokens", len(text), tokens)
		}
	}
	e.add(figure("MCP answer of 2,000 tokens for 1 GiB of output, p50", "ms", 0, median(took)).atMost(50))
}
