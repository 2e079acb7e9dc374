//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	envd "github.com/tend-run/tend/gen/envd/process"
	"github.com/tend-run/tend/process"
)

const wcPath = "/usr/bin/wc"

// ddArgs writes n bytes of zeros in pieces of 64 KiB.
func ddArgs(n int64) []string {
	return []string{"/bin/dd", "if=/dev/zero", "bs=64K", fmt.Sprintf("count=%d", n>>16), "status=none"}
}

func startRequest(stdin bool, argv ...string) *envd.StartRequest {
	return &envd.StartRequest{Process: &envd.ProcessConfig{Cmd: argv[0], Args: argv[1:]}, Stdin: &stdin}
}

// throughput is what one kind of stream costs.
type throughput struct {
	bare, tend float64 // MiB/s
	file       float64 // what dd alone writes to the disk of the spool, MiB/s
	cpu        float64 // of all roles, s/GiB
	each       string  // the same of each role
}

// throughputOf takes turns: n bytes through a bare pipe, n through the face.
func throughputOf(ctx context.Context, e *env, c codec, n int64, rounds int) (t throughput, err error) {
	buf := make([]byte, 256<<10)
	pids, err := e.d.roles(ctx)
	if err != nil {
		return t, err
	}
	var bare, file, face []float64
	spent := usage{}
	for range rounds {
		got, took, err := bareRun(buf, ddArgs(n)...)
		if err == nil {
			err = expect(got, n)
		}
		if err != nil {
			return t, fmt.Errorf("bare pipe: %w", err)
		}
		bare = append(bare, rate(n, took))

		if took, err = e.d.fileOnce(256 * mib); err != nil {
			return t, err
		}
		file = append(file, rate(256*mib, took))

		before, err := pids.cpu()
		if err != nil {
			return t, err
		}
		if took, err = streamOnce(ctx, e.d, c, n); err != nil {
			return t, err
		}
		after, err := pids.cpu()
		if err != nil {
			return t, err
		}
		face = append(face, rate(n, took))
		spent.add(before, after)
	}
	cpu, each := spent.per(float64(n) * float64(rounds) / (1 << 30))
	return throughput{median(bare), median(face), median(file), cpu, each}, nil
}

func streamOnce(ctx context.Context, d *daemon, c codec, n int64) (time.Duration, error) {
	on, err := dial(ctx, d.addr)
	if err != nil {
		return 0, err
	}
	defer on.Close()
	start := time.Now()
	s, _, err := c.start(on.wide(), startRequest(false, ddArgs(n)...))
	if err != nil {
		return 0, err
	}
	got, err := c.drain(s)
	took := time.Since(start)
	if err == nil {
		err = expect(got, n)
	}
	return took, errors.Join(err, d.forget(ctx, s.id))
}

// fileOnce writes n bytes to a file beside the spool, which shows what the disk
// leaves possible.
func (d *daemon) fileOnce(n int64) (time.Duration, error) {
	f, err := os.CreateTemp(d.dir, "tend-bench-file-")
	if err != nil {
		return 0, err
	}
	f.Close()
	defer os.Remove(f.Name())
	_, took, err := bareRun(make([]byte, 4096), append(ddArgs(n), "of="+f.Name())...)
	return took, err
}

// forget removes a finished process, so that no sample pays for the pages that
// those before it have left to be written.
func (d *daemon) forget(ctx context.Context, id string) error {
	p, err := d.sdk.Get(ctx, process.Selector{ID: process.ID(id)})
	if err != nil {
		return err
	}
	return p.Remove(ctx)
}

func benchBinary(ctx context.Context, e *env) ([]row, error) {
	t, err := throughputOf(ctx, e, binaryCodec(), 1<<30, 3)
	if err != nil {
		return nil, err
	}
	return []row{
		figure("1 GiB out, envd binary", "MiB/s", t.bare, t.tend).ratioAtLeast(0.40).notes("dd into a file: %s", number(t.file)),
		figure("  CPU of all roles", "s/GiB", 0, t.cpu).atMost(1.0).notes("%s", t.each),
	}, nil
}

func benchJSON(ctx context.Context, e *env) ([]row, error) {
	t, err := throughputOf(ctx, e, jsonCodec(), 256*mib, 5)
	if err != nil {
		return nil, err
	}
	return []row{
		figure("256 MiB out, envd JSON", "MiB/s", t.bare, t.tend).atLeast(400).notes("dd into a file: %s", number(t.file)),
		figure("  CPU of all roles", "s/GiB", 0, t.cpu).atMost(1.8).notes("%s", t.each),
	}, nil
}

// benchReaders lets ten clients read one stream. It starts when a line comes,
// so that all are there from the first byte.
func benchReaders(ctx context.Context, e *env) ([]row, error) {
	const readers, rounds = 10, 3
	const n = 256 * mib
	buf := make([]byte, 256<<10)
	var bare, slowest, middle []float64
	for range rounds {
		got, took, err := bareRun(buf, ddArgs(n)...)
		if err == nil {
			err = expect(got, n)
		}
		if err != nil {
			return nil, err
		}
		bare = append(bare, rate(n, took))
		rates, err := readTogether(ctx, e.d, readers, n)
		if err != nil {
			return nil, err
		}
		slowest, middle = append(slowest, quantile(rates, 0)), append(middle, median(rates))
	}
	return []row{
		figure("10 readers of one 256 MiB stream, slowest", "MiB/s", median(bare), median(slowest)).atLeast(250).
			notes("median reader %s; bare: one reader", number(median(middle))),
	}, nil
}

func readTogether(ctx context.Context, d *daemon, readers int, n int64) ([]float64, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	c := binaryCodec()
	owner, err := dial(ctx, d.addr)
	if err != nil {
		return nil, err
	}
	defer owner.Close()
	line := append([]string{"/bin/sh", "-c", `read go; exec "$@"`, "sh"}, ddArgs(n)...)
	own, pid, err := c.start(owner.wide(), startRequest(true, line...))
	if err != nil {
		return nil, err
	}
	streams := []*frames{own}
	for range readers - 1 {
		on, err := dial(ctx, d.addr)
		if err != nil {
			return nil, err
		}
		defer on.Close()
		s, err := c.connect(on.wide(), pid, "")
		if err != nil {
			return nil, err
		}
		streams = append(streams, s)
	}
	in, err := newInput(ctx, d, c, pid)
	if err != nil {
		return nil, err
	}
	defer in.c.Close()
	rates, errs := make([]float64, readers), make([]error, readers)
	var wg sync.WaitGroup
	start := time.Now()
	for i, s := range streams {
		wg.Go(func() {
			got, err := c.drain(s)
			rates[i] = rate(n, time.Since(start))
			if err == nil {
				err = expect(got, n)
			}
			errs[i] = err
		})
	}
	sendErr := in.send([]byte("\n"))
	if sendErr != nil {
		stop() // the streams end with it
	}
	wg.Wait()
	return rates, errors.Join(append(errs, sendErr, d.forget(ctx, own.id))...)
}
