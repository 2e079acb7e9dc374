//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/tend-run/tend/internal/support/testbin"
)

const e2bSDK = "E2B SDK"

// language is one in which both tend and E2B have a client. Its scripts install what
// they need and become a program that answers as clients.py says.
type language struct{ name, tend, e2b string }

var languages = []language{
	{
		name: "Python",
		tend: `scripts/python install >&2; exec sdk/python/.venv/bin/python bench/clients.py tend`,
		e2b:  `d=test/conformance/e2b/python; scripts/python-venv $d/.venv $d/requirements.txt >&2; exec $d/.venv/bin/python bench/clients.py e2b`,
	},
	{
		name: "JavaScript",
		tend: `scripts/packages build >&2; exec "$(scripts/node)/node" bench/clients.mjs tend "$PWD/sdk/js"`,
		e2b:  `here=$PWD/test/conformance/e2b; (. test/conformance/daemon.sh; install_js) >&2; exec "$(scripts/node)/node" bench/clients.mjs e2b "$here/js"`,
	},
}

// benchClients compares the clients of other languages with E2B's SDKs, which start a
// login shell for each command: so do tend's here.
func benchClients(ctx context.Context, e *env) {
	const batch, size, rounds = 5, 64 * mib, 3
	for _, l := range languages {
		run := row{Name: "start to end of true in a login shell, client for " + l.name + ", p50", Unit: "ms", Peers: map[string]float64{}}
		output := row{Name: "output, client for " + l.name, Unit: "MiB/s", Peers: map[string]float64{}}
		var ours, theirs *clientProgram
		err := caught(func() { ours = startClient(ctx, e, l.tend) })
		if err == nil {
			err = caught(func() { theirs = startClient(ctx, e, l.e2b) })
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "bench: without the clients for %s: %v\n", l.name, err)
			ours.close()
			continue
		}
		func() {
			defer ours.close()
			defer theirs.close()
			var took, peer, fast, peerFast []float64
			for i := range max(e.n/20/batch, 2) + 1 {
				a, b := ours.run(batch), theirs.run(batch)
				if i > 0 { // the first warms up
					took, peer = append(took, a...), append(peer, b...)
				}
			}
			for range rounds {
				fast, peerFast = append(fast, ours.output(size)), append(peerFast, theirs.output(size))
			}
			run.Tend, run.Peers[e2bSDK] = median(took), median(peer)
			output.Tend, output.Peers[e2bSDK] = median(fast), median(peerFast)
		}()
		e.add(
			run.goal(run.Tend <= run.Peers[e2bSDK], "≤ E2B's"),
			output.goal(output.Tend >= output.Peers[e2bSDK], "≥ E2B's").notes("of `yes`, %d MiB", size/mib),
		)
	}
}

// clientProgram is a program of clients.py, clients.mjs or page.mjs.
type clientProgram struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	said bytes.Buffer // on stderr
}

func startClient(ctx context.Context, e *env, script string) *clientProgram {
	c := startProgram(ctx, e, script)
	if err := caught(func() { c.run(1) }); err != nil {
		c.close()
		check(err)
	}
	return c
}

func startProgram(ctx context.Context, e *env, script string) *clientProgram {
	c := &clientProgram{cmd: exec.CommandContext(ctx, "bash", "-euc", script)}
	c.cmd.Dir = must(testbin.Root())
	c.cmd.Env = append(c.cmd.Environ(), "TEND_BIN="+e.tend, "TEND_URL="+e.d.url, "E2B_DEBUG=true", "E2B_SANDBOX_URL="+e.d.url, "E2B_API_KEY=e2b_0000000000000000000000000000000000000000")
	c.cmd.Stderr = &c.said
	c.in = must(c.cmd.StdinPipe())
	c.out = bufio.NewReader(must(c.cmd.StdoutPipe()))
	check(c.cmd.Start())
	return c
}

// run returns how long each of n commands took, in ms.
func (c *clientProgram) run(n int) (took []float64) {
	c.ask(&took, "run %d\n", n)
	return took
}

// output returns how fast so many bytes came, in MiB/s.
func (c *clientProgram) output(size int) (speed float64) {
	c.ask(&speed, "output %d\n", size)
	return speed
}

func (c *clientProgram) ask(answer any, format string, args ...any) {
	_, err := fmt.Fprintf(c.in, format, args...)
	var line []byte
	if err == nil {
		line, err = c.out.ReadBytes('\n')
	}
	if err == nil {
		if answer == nil {
			answer = new(any)
		}
		err = json.Unmarshal(line, answer)
	}
	if err != nil {
		c.in.Close()
		_ = c.cmd.Wait() // what it said is whole then
		fail("%w: %s", err, c.said.String())
	}
}

func (c *clientProgram) close() {
	if c == nil {
		return
	}
	c.in.Close()
	_, _ = io.Copy(io.Discard, c.out)
	_ = c.cmd.Wait() // it has said what it measured
}
