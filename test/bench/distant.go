//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/tend-run/tend"
	"github.com/tend-run/tend/face/distant/distanttest"
	"github.com/tend-run/tend/face/distant/secure"
)

// benchDistant measures distant's transports: the encrypted one of the daemon,
// and JSON lines of a `tend distant` beside it.
func benchDistant(ctx context.Context, e *env) ([]row, error) {
	c, err := e.d.distant()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	var rows []row
	for _, part := range []func(context.Context, *env, *distanttest.Client) (row, error){
		distantOutput, distantFirst, distantResume, distantLines,
	} {
		r, err := part(ctx, e, c)
		if err != nil {
			return rows, err
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// distant connects to the encrypted transport.
func (d *daemon) distant() (*distanttest.Client, error) {
	text, err := os.ReadFile(filepath.Join(d.own.StateDir(), "distant", "uri"))
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, err
	}
	shown, _ := u.User.Password()
	key, err := secure.ParseKey(shown)
	if err != nil {
		return nil, err
	}
	return distanttest.Connect(func() (net.Conn, error) { return net.Dial("tcp", u.Host) }, key)
}

// untilType reads to a message of the type and returns how many bytes of
// output came before.
func untilType(c *distanttest.Client, typ string) (int64, error) {
	var size int64
	for {
		all, err := c.Receive()
		if err != nil {
			return size, err
		}
		for _, m := range all {
			switch m.Type {
			case typ:
				return size, nil
			case "proc_stdout":
				size += int64(len(m.Data))
			case "error":
				return size, fmt.Errorf("%s: %s", m.Kind, m.Description)
			}
		}
	}
}

func distantOutput(_ context.Context, _ *env, c *distanttest.Client) (row, error) {
	const n, rounds = 512 * mib, 3
	buf := make([]byte, 256<<10)
	var bare, rates []float64
	for range rounds {
		got, took, err := bareRun(buf, ddArgs(n)...)
		if err == nil {
			err = expect(got, n)
		}
		if err != nil {
			return row{}, err
		}
		bare = append(bare, rate(n, took))
		start := time.Now()
		c.Spawn(strings.Join(ddArgs(n), " "))
		if got, err = untilType(c, "proc_done"); err == nil {
			err = expect(got, n)
		}
		if err != nil {
			return row{}, err
		}
		rates = append(rates, rate(n, time.Since(start)))
	}
	return figure("distant, encrypted output", "MiB/s", median(bare), median(rates)).atLeast(300).notes("the client decrypts on the same cores"), nil
}

// distantFirst compares the time to the first output with the Go SDK's.
func distantFirst(ctx context.Context, e *env, c *distanttest.Client) (row, error) {
	var native, face []float64
	for i := range e.n/2 + 20 {
		start := time.Now()
		p, err := e.d.sdk.Spawn(ctx, tend.Command("/bin/echo", "x"))
		if err != nil {
			return row{}, err
		}
		if _, err := p.Stdout().Read(make([]byte, 1)); err != nil {
			return row{}, err
		}
		n := time.Since(start)
		p.Close()
		if _, err := p.Wait(ctx, tend.WaitOptions{}); err != nil {
			return row{}, err
		}
		start = time.Now()
		c.Spawn("/bin/echo x")
		if _, err := untilType(c, "proc_stdout"); err != nil {
			return row{}, err
		}
		f := time.Since(start)
		if _, err := untilType(c, "proc_done"); err != nil {
			return row{}, err
		}
		if i >= 20 {
			native, face = append(native, micros(n)), append(face, micros(f))
		}
	}
	r := figure("distant, first output of echo", "µs", median(native), median(face)).ratioAtMost(1.5)
	return r.notes("instead of bare: the native Start by the Go SDK"), nil
}

// distantResume cuts the connection under a stream and times until output
// comes again.
func distantResume(_ context.Context, _ *env, c *distanttest.Client) (row, error) {
	const rounds = 30
	c.Retry = 100 * time.Microsecond
	c.Spawn("/bin/sh -c 'while :; do head -c 60000 /dev/zero; sleep 0.001; done'")
	if _, err := untilType(c, "proc_stdout"); err != nil {
		return row{}, err
	}
	var took []float64
	for range rounds {
		c.Cut()
		start := time.Now()
		// Everything that was received before the cut is behind the first
		// failure to read: what comes next is after the resumption.
		resumed := time.Duration(0)
		c.Resumed = func(time.Duration) { resumed = time.Since(start) }
		for resumed == 0 {
			if _, err := untilType(c, "proc_stdout"); err != nil {
				return row{}, err
			}
		}
		took = append(took, millis(time.Since(start)))
	}
	c.Resumed = nil
	return figure("distant, from a cut to the next output", "ms", 0, median(took)).atMost(50).notes("worst %s", number(quantile(took, 1))), nil
}

// distantLines measures JSON lines over TCP of a tend distant that speaks to
// the daemon over its socket. Random bytes: each has 3.6 characters.
func distantLines(ctx context.Context, e *env, _ *distanttest.Client) (row, error) {
	const n = 128 * mib
	data, port := filepath.Join(e.d.dir, "random"), filepath.Join(e.d.dir, "lines")
	b := make([]byte, n)
	rand.Read(b) // never fails
	if err := os.WriteFile(data, b, 0o600); err != nil {
		return row{}, err
	}
	cmd := exec.CommandContext(ctx, e.tend, "--url", e.d.url, "distant", "--listen-json", "127.0.0.1:0", "--port-file", port)
	if err := cmd.Start(); err != nil {
		return row{}, err
	}
	defer func() {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
	}()
	var addr []byte
	for end := time.Now().Add(10 * time.Second); len(addr) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return row{}, errors.New("tend distant did not come up within 10 s")
		}
		addr, _ = os.ReadFile(port)
	}
	nc, err := net.Dial("tcp", strings.TrimSpace(string(addr)))
	if err != nil {
		return row{}, err
	}
	defer nc.Close()
	var rates []float64
	for range 3 {
		start := time.Now()
		if _, err := fmt.Fprintf(nc, "{\"type\":\"proc_spawn\",\"cmd\":\"cat %s\"}\n", data); err != nil {
			return row{}, err
		}
		got, err := countLines(bufio.NewReaderSize(nc, 1<<20))
		if err == nil {
			err = expect(got, n)
		}
		if err != nil {
			return row{}, err
		}
		rates = append(rates, rate(n, time.Since(start)))
	}
	return figure("distant, JSON lines", "MiB/s", 0, median(rates)).atLeast(60).notes("bytes of output; 3.6 characters each"), nil
}

// countLines counts the bytes of output up to proc_done.
func countLines(in *bufio.Reader) (int64, error) {
	var size int64
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return size, err
		}
		switch {
		case bytes.HasPrefix(line, []byte(`{"type":"proc_stdout"`)):
			// Two commas are the object's; between n numbers stand n-1.
			size += int64(bytes.Count(line, []byte{','})) - 1
		case bytes.HasPrefix(line, []byte(`{"type":"proc_done"`)):
			return size, nil
		case bytes.HasPrefix(line, []byte(`{"type":"error"`)):
			return size, fmt.Errorf("%s", line)
		}
	}
}
