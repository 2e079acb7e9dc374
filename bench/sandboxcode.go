//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
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
func (c coder) call(sandbox, token, method, path string, body any) *http.Response {
	req := must(http.NewRequestWithContext(c.ctx, method, c.e.d.url+path, bytes.NewReader(must(json.Marshal(body)))))
	req.Header.Set("X-API-Key", "e2b_0000000000000000000000000000000000000000")
	if sandbox != "" {
		req.Header.Set("E2b-Sandbox-Id", sandbox)
		req.Header.Set("E2b-Sandbox-Port", "49999")
		req.Header.Set("X-Access-Token", token)
	}
	return must(http.DefaultClient.Do(req))
}

// codeBox is a sandbox with a code interpreter.
type codeSandbox struct {
	coder
	SandboxID, EnvdAccessToken string
}

// create creates one. The first creation waits for the template, which comes from PyPI.
func (c coder) create() codeSandbox {
	for {
		res := c.call("", "", "POST", "/v2/sandboxes", map[string]any{"templateID": "code-interpreter-v1", "timeout": 600})
		text := must(io.ReadAll(res.Body))
		res.Body.Close()
		if res.StatusCode == http.StatusServiceUnavailable {
			pause(c.ctx, time.Second)
			continue
		}
		b := codeSandbox{coder: c}
		if check(json.Unmarshal(text, &b)); b.SandboxID == "" {
			fail("no sandbox with a code interpreter: %s %s", res.Status, text)
		}
		return b
	}
}

// run times a cell from the request to its last event.
func (b codeSandbox) run(body map[string]any) float64 {
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
	end := func(b codeSandbox) { c.call("", "", "DELETE", "/sandboxes/"+b.SandboxID, nil).Body.Close() }
	one := map[string]any{"code": "1+1"}
	warm := c.create()
	defer also(func() { end(warm) })
	warm.run(one)
	sandbox := must(e.d.sdk.Sandbox(ctx, warm.SandboxID))
	plain := benchKernel(ctx, sandbox)
	var first, kept, again, contexts, js []float64
	for range min(max(e.n/40, 5), 15) {
		pause(ctx, 15*time.Second)                          // the sandbox that is kept ready has its kernel
		for _, times := range []*[]float64{&kept, &first} { // the second creation comes before there is another
			var b codeSandbox
			took := millis(timed(func() { b = c.create() }))
			*times = append(*times, took+b.run(one))
			end(b)
		}
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
		figure("create and first run_code(1+1), a sandbox was kept ready, p50", "ms", plain.First, median(kept)).atMost(300).
			notes("bare: start of a plain ipykernel and its first 1+1, without a sandbox's creation"),
		figure("  nothing started before", "ms", plain.First, median(first)).atMost(2000),
		figure("another context, p50", "ms", plain.First, median(contexts)),
		figure("run_code(1+1) again, Python, p50", "ms", plain.Again, median(again)),
		figure("  JavaScript", "ms", 0, median(js)),
	)
}

// kernelFigures are those of a plain ipykernel.
type kernelFigures struct{ First, Again, Private, PSS float64 }

// benchKernel starts plain ipykernels in a sandbox, which import what kernels of tend have imported.
func benchKernel(ctx context.Context, sandbox *tend.Sandbox) (f kernelFigures) {
	const script = `
import json, statistics, subprocess, sys, time
subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--target", "/tmp/plain", "ipykernel", "jupyter_client"],
               check=True, stdout=sys.stderr)
sys.path.insert(0, "/tmp/plain")
import os
os.environ["PYTHONPATH"] = "/tmp/plain"
from jupyter_client import KernelManager

def run(client, code):
    begin = time.monotonic()
    client.execute_interactive(code, output_hook=lambda m: None)
    return (time.monotonic() - begin) * 1000

def memory(pid):
    found = {}
    for line in open(f"/proc/{pid}/smaps_rollup"):
        words = line.split()
        if len(words) == 3:
            found[words[0]] = int(words[1]) / 1024
    return found["Private_Clean:"] + found["Private_Dirty:"], found["Pss:"]

first, again, memories = [], [], []
for _ in range(5):
    begin = time.monotonic()
    manager = KernelManager(kernel_cmd=[sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"], transport="ipc")
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    client.wait_for_ready()
    run(client, "1+1")
    first.append((time.monotonic() - begin) * 1000)
    again += [run(client, "1+1") for _ in range(50)]
    run(client, "import numpy, pandas, matplotlib.pyplot, e2b_charts")
    memories.append((manager, client))
private, pss = zip(*(memory(m.provisioner.pid) for m, _ in memories))
for manager, client in memories:
    client.stop_channels()
    manager.shutdown_kernel(now=True)
print(json.dumps(dict(First=statistics.median(first), Again=statistics.median(again),
                      Private=statistics.median(private), PSS=statistics.median(pss))))
`
	p := must(sandbox.Processes().Spawn(ctx, tend.Command("/opt/code-interpreter/bin/python", "-c", script)))
	must(p.Wait(ctx, tend.WaitOptions{}))
	said := must(p.Output(ctx))
	check(p.Close())
	if err := json.Unmarshal([]byte(said.Stdout), &f); err != nil {
		fail("no plain ipykernel: %v: %s", err, said.Stderr)
	}
	return f
}

// benchSandboxCodeMemory measures 100 contexts of one sandbox, and 100 sandboxes with a context each.
func benchSandboxCodeMemory(ctx context.Context, e *env) {
	const all = 100
	c := coder{e, ctx}
	one := map[string]any{"code": "1+1"}
	b := c.create()
	plain := benchKernel(ctx, must(e.d.sdk.Sandbox(ctx, b.SandboxID)))
	before := codeKernels()
	own := map[string]any{"code": "1+1"}
	for range all - 2 { // the two of languages count
		var in struct{ ID string }
		check(json.NewDecoder(b.call(b.SandboxID, "", "POST", "/contexts", map[string]any{}).Body).Decode(&in))
		own["context_id"] = in.ID
		b.run(own)
	}
	b.run(one)
	var private, pss, whole []float64
	for pid, m := range codeKernels() {
		if _, old := before[pid]; !old {
			private = append(private, m.private/1024)
		}
	}
	b.call("", "", "DELETE", "/sandboxes/"+b.SandboxID, nil).Body.Close()
	before = codeKernels()
	var sandboxes []codeSandbox
	for range all {
		b := c.create()
		b.run(one)
		sandboxes = append(sandboxes, b)
	}
	pause(ctx, 10*time.Second)
	sum := 0.0
	for pid, m := range codeKernels() {
		if _, old := before[pid]; old {
			continue
		}
		if sum += m.pss; m.kernel {
			pss = append(pss, m.pss/1024)
		}
	}
	whole = append(whole, sum/1024/all)
	for _, b := range sandboxes {
		b.call("", "", "DELETE", "/sandboxes/"+b.SandboxID, nil).Body.Close()
	}
	e.add(
		figure("private memory of a kernel, 100 contexts in a sandbox, p50", "MiB", plain.Private, median(private)).atMost(10).
			notes("bare: a plain ipykernel that has imported the same"),
		figure("PSS of a kernel, 100 sandboxes with a context each, p50", "MiB", plain.PSS, median(pss)).atMost(60).
			notes("with the process that it was forked from: %.0f MiB", median(whole)),
	)
}

// codeMemory is what a process of a Python context has, in KiB.
type codeMemory struct {
	private, pss float64
	kernel       bool // not the process that kernels are forked from
}

// codeKernels are the processes of all kernels of Python.
func codeKernels() map[int]codeMemory {
	found := map[int]codeMemory{}
	for _, path := range must(filepath.Glob("/proc/[0-9]*/smaps_rollup")) {
		dir := filepath.Dir(path)
		line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || !bytes.Contains(line, []byte("/kernels/python/zygote.py")) || bytes.Contains(line, []byte("\x00attach\x00")) {
			continue
		}
		rollup, err := os.ReadFile(path)
		if err != nil {
			continue // it has just ended
		}
		m := codeMemory{}
		for line := range strings.Lines(string(rollup)) {
			words := strings.Fields(line)
			if len(words) != 3 {
				continue
			}
			n, _ := strconv.ParseFloat(words[1], 64)
			switch words[0] {
			case "Private_Clean:", "Private_Dirty:":
				m.private += n
			case "Pss:":
				m.pss = n
			}
		}
		stat := must(os.ReadFile(filepath.Join(dir, "stat")))
		_, after, _ := strings.Cut(string(stat), ") ")
		pid := must(strconv.Atoi(filepath.Base(dir)))
		m.kernel = strings.Fields(after)[3] == strconv.Itoa(pid) // it leads a session
		found[pid] = m
	}
	return found
}
