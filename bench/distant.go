//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/tend-run/tend/internal/protocol/distant/distanttest"
	"github.com/tend-run/tend/internal/protocol/distant/secure"
	"github.com/tend-run/tend/sdk/go"
)

// benchDistant measures distant's transports: the encrypted one of the daemon,
// and JSON lines of a `tend distant` beside it.
func benchDistant(ctx context.Context, e *env) {
	c := e.d.distant(ctx)
	defer c.Close()
	for _, part := range []func(context.Context, *env, *distanttest.Client) row{distantOutput, distantFirst, distantResume, distantLines} {
		e.add(part(ctx, e, c))
	}
}

// distant connects to the encrypted transport.
func (d *daemon) distant(ctx context.Context) *distanttest.Client {
	u := must(url.Parse(written(ctx, filepath.Join(d.own.StateDir(), "distant", "uri"))))
	shown, _ := u.User.Password()
	key := must(secure.ParseKey(shown))
	return must(distanttest.Connect(func() (net.Conn, error) { return net.Dial("tcp", u.Host) }, key))
}

// written waits until a file is there, which a part of the daemon writes as it
// comes up, and returns its text.
func written(ctx context.Context, path string) string {
	for end := time.Now().Add(10 * time.Second); ; pause(ctx, time.Millisecond) {
		if b, _ := os.ReadFile(path); len(b) > 0 {
			return strings.TrimSpace(string(b))
		}
		if time.Now().After(end) {
			fail("%s is not written within 10 s", path)
		}
	}
}

// untilType reads to a message of the type and returns how many bytes of
// output came before.
func untilType(c *distanttest.Client, typ string) int64 {
	var size int64
	for {
		for _, m := range must(c.Receive()) {
			switch m.Type {
			case typ:
				return size
			case "proc_stdout":
				size += int64(len(m.Data))
			case "error":
				fail("%s: %s", m.Kind, m.Description)
			}
		}
	}
}

func distantOutput(_ context.Context, _ *env, c *distanttest.Client) row {
	const n, rounds = 512 * mib, 3
	buf := make([]byte, 256<<10)
	var bare, rates []float64
	for range rounds {
		bare = append(bare, rate(n, bareRun(buf, n, ddArgs(n)...)))
		rates = append(rates, rate(n, timed(func() {
			c.Spawn(strings.Join(ddArgs(n), " "))
			expect(untilType(c, "proc_done"), n)
		})))
	}
	return figure("distant, encrypted output", "MiB/s", median(bare), median(rates)).atLeast(300).notes("the client decrypts on the same cores")
}

// distantFirst compares the time to the first output with the Go SDK's.
func distantFirst(ctx context.Context, e *env, c *distanttest.Client) row {
	var native, face []float64
	for i := range e.n/2 + 20 {
		start := time.Now()
		p := must(e.d.sdk.Spawn(ctx, tend.Command("/bin/echo", "x")))
		must(p.Stdout().Read(make([]byte, 1)))
		n := time.Since(start)
		p.Close()
		must(p.Wait(ctx, tend.WaitOptions{}))
		start = time.Now()
		c.Spawn("/bin/echo x")
		untilType(c, "proc_stdout")
		f := time.Since(start)
		untilType(c, "proc_done")
		if i >= 20 {
			native, face = append(native, micros(n)), append(face, micros(f))
		}
	}
	r := figure("distant, first output of echo", "µs", median(native), median(face)).ratioAtMost(1.5)
	return r.notes("instead of bare: the native Start by the Go SDK")
}

// distantResume cuts the connection under a stream and times until output
// comes again.
func distantResume(_ context.Context, _ *env, c *distanttest.Client) row {
	const rounds = 30
	c.Retry = 100 * time.Microsecond
	c.Spawn("/bin/sh -c 'while :; do head -c 60000 /dev/zero; sleep 0.001; done'")
	untilType(c, "proc_stdout")
	var took []float64
	for range rounds {
		c.Cut()
		start := time.Now()
		// Everything that was received before the cut is behind the first
		// failure to read: what comes next is after the resumption.
		resumed := time.Duration(0)
		c.Resumed = func(time.Duration) { resumed = time.Since(start) }
		for resumed == 0 {
			untilType(c, "proc_stdout")
		}
		took = append(took, millis(time.Since(start)))
	}
	c.Resumed = nil
	return figure("distant, from a cut to the next output", "ms", 0, median(took)).atMost(50).notes("worst %s", number(quantile(took, 1)))
}

// distantLines measures JSON lines over TCP of a tend distant that speaks to
// the daemon over its socket. Random bytes: each has 3.6 characters.
func distantLines(ctx context.Context, e *env, _ *distanttest.Client) row {
	const n = 128 * mib
	data, port := filepath.Join(e.d.dir, "random"), filepath.Join(e.d.dir, "lines")
	b := make([]byte, n)
	rand.Read(b) // never fails
	check(os.WriteFile(data, b, 0o600))
	cmd := exec.CommandContext(ctx, e.tend, "--url", e.d.url, "distant", "--listen-json", "127.0.0.1:0", "--port-file", port)
	check(cmd.Start())
	defer func() {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
	}()
	nc := must(net.Dial("tcp", written(ctx, port)))
	defer nc.Close()
	var rates []float64
	for range 3 {
		rates = append(rates, rate(n, timed(func() {
			must(fmt.Fprintf(nc, "{\"type\":\"proc_spawn\",\"cmd\":\"cat %s\"}\n", data))
			expect(countLines(bufio.NewReaderSize(nc, 1<<20)), n)
		})))
	}
	return figure("distant, JSON lines", "MiB/s", 0, median(rates)).atLeast(60).notes("bytes of output; 3.6 characters each")
}

// countLines counts the bytes of output up to proc_done.
func countLines(in *bufio.Reader) int64 {
	var size int64
	for {
		line := must(in.ReadSlice('\n'))
		switch {
		case bytes.HasPrefix(line, []byte(`{"type":"proc_stdout"`)):
			// Two commas are the object's; between n numbers stand n-1.
			size += int64(bytes.Count(line, []byte{','})) - 1
		case bytes.HasPrefix(line, []byte(`{"type":"proc_done"`)):
			return size
		case bytes.HasPrefix(line, []byte(`{"type":"error"`)):
			fail("%s", line)
		}
	}
}
