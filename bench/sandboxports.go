//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tend-run/tend/internal/support/testbin"
	"github.com/tend-run/tend/sdk/go"
)

// webArg makes this program a web server: its first argument is the address; it
// prints the one that it has, and serves until its stdin ends.
const webArg = "workload-web"

// webProxyArg makes it a proxy of net/http/httputil before the address in its second one.
const webProxyArg = "workload-web-proxy"

const (
	webPort = 8080
	webBody = 256 * mib
)

func web(addr string) int {
	return serveWeb(addr, http.HandlerFunc(answerWeb))
}

func webProxy(addr, to string) int {
	return serveWeb(addr, &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", to
			r.SetXForwarded()
		},
		Transport: &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true},
	})
}

func serveWeb(addr string, h http.Handler) int {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench: web:", err)
		return 1
	}
	fmt.Println(l.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	fmt.Fprintln(os.Stderr, "bench: web:", http.Serve(l, h))
	return 1
}

func answerWeb(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/much" {
		_, _ = io.WriteString(w, "hello")
		return
	}
	piece := make([]byte, 64<<10)
	w.Header().Set("Content-Length", strconv.Itoa(webBody))
	for left := webBody; left > 0; left -= len(piece) {
		if _, err := w.Write(piece); err != nil {
			return
		}
	}
}

// startWeb starts this program once more, as a web server, or as a proxy before one. It
// returns its address. The server ends with the context, or by end.
func startWeb(ctx context.Context, args ...string) (addr string, end func()) {
	cmd := exec.CommandContext(ctx, must(os.Executable()), args...)
	cmd.Stderr = os.Stderr
	in, out := must(cmd.StdinPipe()), must(cmd.StdoutPipe())
	check(cmd.Start())
	addr = strings.TrimSpace(must(bufio.NewReader(out).ReadString('\n')))
	return addr, func() { check(errors.Join(in.Close(), cmd.Wait())) }
}

// benchSandboxPorts compares a web server in a sandbox, reached through the
// daemon, with the same one outside that is reached directly.
func benchSandboxPorts(ctx context.Context, e *env) {
	self := must(filepath.EvalSymlinks(must(os.Executable())))
	addr, end := startWeb(ctx, webArg, "127.0.0.1:0")
	defer also(end)
	alone, end := startWeb(ctx, webProxyArg, "127.0.0.1:0", addr)
	defer also(end)

	spec := isolated
	spec.Network.Public = true
	spec.Shares = []tend.SandboxShare{{Source: filepath.Dir(self), Target: "/bench", ReadOnly: true}}
	sandbox := must(e.d.sdk.CreateSandbox(ctx, spec))
	defer also(func() { check(sandbox.Destroy(ctx)) })
	cmd := tend.Command("/bench/"+filepath.Base(self), webArg, fmt.Sprintf(":%d", webPort))
	cmd.StdinPipe = true
	p := must(sandbox.Processes().Spawn(ctx, cmd))
	defer p.Close()
	must(bufio.NewReader(p.Stdout()).ReadString('\n'))
	header := fmt.Sprintf("E2b-Sandbox-Id: %s\r\nE2b-Sandbox-Port: %d\r\n", must(sandbox.ID(ctx)), webPort)

	const workers, rounds = 8, 5
	each := max(e.n/2, 10)
	requests := func(addr, header string) float64 {
		conns := make([]*conn, workers)
		for i := range conns {
			conns[i] = dial(ctx, addr)
			defer conns[i].Close()
		}
		took := timed(func() {
			together(workers, func(w int) {
				for range each {
					conns[w].send("GET", "/", header, nil, 0)
					conns[w].answer("/")
				}
			})
		})
		return float64(workers*each) / took.Seconds()
	}
	much := func(addr, header string) float64 {
		c := dial(ctx, addr)
		defer c.Close()
		return rate(webBody, timed(func() {
			c.send("GET", "/much", header, nil, 0)
			resp := c.receive()
			if resp.StatusCode != http.StatusOK {
				fail("GET /much: %s", resp.Status)
			}
			expect(must(io.Copy(io.Discard, resp.Body)), webBody)
		}))
	}
	var bare, library, proxied, bareMuch, libraryMuch, proxiedMuch []float64
	inTurns(rounds,
		func() { bare = append(bare, requests(addr, "")) },
		func() { library = append(library, requests(alone, "")) },
		func() { proxied = append(proxied, requests(e.d.addr, header)) },
		func() { bareMuch = append(bareMuch, much(addr, "")) },
		func() { libraryMuch = append(libraryMuch, much(alone, "")) },
		func() { proxiedMuch = append(proxiedMuch, much(e.d.addr, header)) },
	)
	requestsRow := figure("Web server in a sandbox, 8 connections", "requests/s", median(bare), median(proxied)).ratioAtLeast(0.5).notes("bare: the same outside, reached directly; HTTP alone: by a proxy that is Go's library and nothing else")
	requestsRow.HTTP = median(library)
	muchRow := figure("  one answer of 256 MiB", "MiB/s", median(bareMuch), median(proxiedMuch)).ratioAtLeast(0.5)
	muchRow.HTTP = median(libraryMuch)
	e.add(requestsRow, muchRow)
}

// benchSandboxJS times what a JavaScript program waits for with E2B's own SDK.
func benchSandboxJS(ctx context.Context, e *env) {
	root := must(testbin.Root())
	// The suite of that SDK has it, and a Node.js.
	script := `set -eu; here=$1/test/conformance/e2b; source "$here/../daemon.sh"; install_js; cd "$here/js"; exec node "$1/bench/sandbox.mjs" "$2"`
	cmd := exec.CommandContext(ctx, "bash", "-c", script, "bash", root, strconv.Itoa(max(e.n/20, 5)))
	cmd.Env = append(cmd.Environ(), "TEND_BIN="+e.tend, "E2B_SANDBOX_URL="+e.d.url, "E2B_API_URL="+e.d.url, "E2B_API_KEY=e2b_0000000000000000000000000000000000000000")
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		fail("node: %w: %s", err, text)
	}
	var got struct{ Create, First, Whole []float64 } // ms
	_, line, _ := strings.Cut("\n"+strings.TrimSpace(string(text)), "\n{")
	as("sandbox.mjs", func() { check(json.Unmarshal([]byte("{"+line), &got)) })
	var bare []float64
	for range len(got.First) {
		bare = append(bare, millis(bareFirst("/bin/bash", "-c", "echo x")))
	}
	e.add(
		figure("Sandbox.create() and run, to the first output, E2B's SDK in JavaScript, p50", "ms", median(bare), median(got.First)).atMost(15).notes("bare: bash -c, no sandbox; create() alone %s", number(median(got.Create))),
		figure("  to the end of the command", "ms", 0, median(got.Whole)),
	)
}
