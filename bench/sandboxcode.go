//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/tend-run/tend/sdk/go"
)

// coder is a client of the code interpreter, as E2B's SDKs are.
type coder struct {
	e   *env
	ctx context.Context
}

// call makes a request for a sandbox; "": for the control plane.
func (c coder) call(box, token, method, path string, body any) *http.Response {
	req := must(http.NewRequestWithContext(c.ctx, method, c.e.d.url+path, bytes.NewReader(must(json.Marshal(body)))))
	req.Header.Set("X-API-Key", "e2b_0000000000000000000000000000000000000000")
	if box != "" {
		req.Header.Set("E2b-Sandbox-Id", box)
		req.Header.Set("E2b-Sandbox-Port", "49999")
		req.Header.Set("X-Access-Token", token)
	}
	return must(http.DefaultClient.Do(req))
}

// codeBox is a sandbox with a code interpreter.
type codeBox struct {
	coder
	SandboxID, EnvdAccessToken string
}

// create creates one. The first creation waits for the template, which comes from PyPI.
func (c coder) create() codeBox {
	for {
		res := c.call("", "", "POST", "/v2/sandboxes", map[string]any{"templateID": "code-interpreter-v1", "timeout": 600})
		text := must(io.ReadAll(res.Body))
		res.Body.Close()
		if res.StatusCode == http.StatusServiceUnavailable {
			pause(c.ctx, time.Second)
			continue
		}
		b := codeBox{coder: c}
		if check(json.Unmarshal(text, &b)); b.SandboxID == "" {
			fail("no sandbox with a code interpreter: %s %s", res.Status, text)
		}
		return b
	}
}

// run times a cell from the request to its last event.
func (b codeBox) run(body map[string]any) float64 {
	return millis(timed(func() {
		res := b.call(b.SandboxID, b.EnvdAccessToken, "POST", "/execute", body)
		defer res.Body.Close()
		last, lines := "", bufio.NewScanner(res.Body)
		for lines.Scan() {
			if last = lines.Text(); strings.HasPrefix(last, `{"type": "error"`) {
				fail("a cell: %s", last)
			}
		}
		if check(lines.Err()); !strings.Contains(last, "end_of_execution") {
			fail("a cell ends with %s %q", res.Status, last)
		}
	}))
}

// benchSandboxCode times E2B's code interpreter. Bare is a Python of the sandbox that imports the same and computes the same.
func benchSandboxCode(ctx context.Context, e *env) {
	c := coder{e, ctx}
	end := func(b codeBox) { c.call("", "", "DELETE", "/sandboxes/"+b.SandboxID, nil).Body.Close() }
	one := map[string]any{"code": "1+1"}
	warm := c.create()
	defer also(func() { end(warm) })
	warm.run(one)
	box := must(e.d.sdk.Sandbox(ctx, warm.SandboxID))
	var first, ready, again, contexts, js, bare []float64
	for range min(max(e.n/40, 5), 15) {
		var b codeBox
		took := millis(timed(func() { b = c.create() }))
		first = append(first, took+b.run(one))
		end(b)
		b = c.create()
		pause(ctx, 3*time.Second) // its zygote has imported everything
		ready = append(ready, b.run(one))
		end(b)
		bare = append(bare, millis(timed(func() {
			p := must(box.Processes().Spawn(ctx, tend.Command("/opt/code-interpreter/bin/python", "-c",
				"import IPython, pandas, matplotlib.pyplot; print(1+1)")))
			must(p.Wait(ctx, tend.WaitOptions{}))
			check(p.Close())
		})))
		contexts = append(contexts, millis(timed(func() {
			res := warm.call(warm.SandboxID, "", "POST", "/contexts", map[string]any{})
			if res.Body.Close(); res.StatusCode != http.StatusOK {
				fail("no context: %s", res.Status)
			}
		})))
	}
	cell := map[string]any{"code": "1+1", "language": "javascript"}
	warm.run(cell)
	for range e.n {
		again = append(again, warm.run(one))
		js = append(js, warm.run(cell))
	}
	e.add(
		figure("create and first run_code(1+1), nothing started before, p50", "ms", median(bare), median(first)).atMost(2000).
			notes("bare: a Python in the sandbox that imports IPython, pandas and matplotlib"),
		figure("  first run_code(1+1), three seconds after the creation", "ms", 0, median(ready)),
		figure("another context, p50", "ms", 0, median(contexts)),
		figure("run_code(1+1) again, Python, p50", "ms", 0, median(again)),
		figure("  JavaScript", "ms", 0, median(js)),
	)
}
