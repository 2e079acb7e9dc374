//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"time"

	envd "github.com/tend-run/tend/internal/gen/envd/process"
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
func throughputOf(ctx context.Context, e *env, c codec, n int64, rounds int) (t throughput) {
	buf := make([]byte, 256<<10)
	pids := e.d.roles(ctx)
	var bare, file, face []float64
	spent := usage{}
	for range rounds {
		bare = append(bare, rate(n, bareRun(buf, n, ddArgs(n)...)))
		file = append(file, rate(256*mib, e.d.fileOnce(256*mib)))
		spent.during(pids, func() { face = append(face, rate(n, streamOnce(ctx, e.d, c, n))) })
	}
	cpu, each := spent.per(float64(n) * float64(rounds) / (1 << 30))
	return throughput{median(bare), median(face), median(file), cpu, each}
}

func streamOnce(ctx context.Context, d *daemon, c codec, n int64) time.Duration {
	on := dial(ctx, d.addr)
	defer on.Close()
	start := time.Now()
	s, _ := c.start(on.wide(), startRequest(false, ddArgs(n)...))
	defer also(func() { d.forget(ctx, s.id) })
	got := c.drain(s)
	took := time.Since(start)
	expect(got, n)
	return took
}

// fileOnce writes n bytes to a file beside the spool, which shows what the disk
// leaves possible.
func (d *daemon) fileOnce(n int64) time.Duration {
	f := must(os.CreateTemp(d.dir, "tend-bench-file-"))
	f.Close()
	defer os.Remove(f.Name())
	return bareRun(make([]byte, 4096), 0, append(ddArgs(n), "of="+f.Name())...)
}

// forget removes a finished process, so that no sample pays for the pages that
// those before it have left to be written.
func (d *daemon) forget(ctx context.Context, id string) {
	check(must(d.sdk.Get(ctx, process.Selector{ID: process.ID(id)})).Remove(ctx))
}

func benchBinary(ctx context.Context, e *env) {
	t := throughputOf(ctx, e, binaryCodec(), 1<<30, 3)
	e.add(
		figure("1 GiB out, envd binary", "MiB/s", t.bare, t.tend).ratioAtLeast(0.40).notes("dd into a file: %s", number(t.file)),
		figure("  CPU of all roles", "s/GiB", 0, t.cpu).atMost(1.0).notes("%s", t.each),
	)
}

func benchJSON(ctx context.Context, e *env) {
	t := throughputOf(ctx, e, jsonCodec(), 256*mib, 5)
	e.add(
		figure("256 MiB out, envd JSON", "MiB/s", t.bare, t.tend).atLeast(400).notes("dd into a file: %s", number(t.file)),
		figure("  CPU of all roles", "s/GiB", 0, t.cpu).atMost(1.8).notes("%s", t.each),
	)
}

// benchReaders lets ten clients read one stream. It starts when a line comes,
// so that all are there from the first byte.
func benchReaders(ctx context.Context, e *env) {
	const readers, rounds = 10, 3
	const n = 256 * mib
	buf := make([]byte, 256<<10)
	var bare, slowest, middle []float64
	for range rounds {
		bare = append(bare, rate(n, bareRun(buf, n, ddArgs(n)...)))
		rates := readTogether(ctx, e.d, readers, n)
		slowest, middle = append(slowest, quantile(rates, 0)), append(middle, median(rates))
	}
	e.add(
		figure("10 readers of one 256 MiB stream, slowest", "MiB/s", median(bare), median(slowest)).atLeast(250).
			notes("median reader %s; bare: one reader", number(median(middle))),
	)
}

func readTogether(ctx context.Context, d *daemon, readers int, n int64) []float64 {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	c := binaryCodec()
	owner := dial(ctx, d.addr)
	defer owner.Close()
	line := append([]string{"/bin/sh", "-c", `read go; exec "$@"`, "sh"}, ddArgs(n)...)
	own, pid := c.start(owner.wide(), startRequest(true, line...))
	streams := []*frames{own}
	for range readers - 1 {
		on := dial(ctx, d.addr)
		defer on.Close()
		streams = append(streams, c.connect(on.wide(), pid, ""))
	}
	in := newInput(ctx, d, c, pid)
	defer in.c.Close()
	defer also(func() { d.forget(ctx, own.id) })
	rates := make([]float64, readers)
	start := time.Now()
	together(readers+1, func(i int) {
		if i < readers {
			got := c.drain(streams[i])
			rates[i] = rate(n, time.Since(start))
			expect(got, n)
		} else if err := caught(func() { in.send([]byte("\n")) }); err != nil {
			stop() // the streams end with it
			check(err)
		}
	})
	return rates
}
