//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/process"
)

// benchPageViewers weighs what people who look at a terminal cost the process in it: with
// none, with 100 pages that hang, and with ten of these that do not. Those that read take
// their share of the cores, as their browsers would.
func benchPageViewers(ctx context.Context, e *env) {
	const viewers, reading, rounds = 100, 10, 9
	const n = 32 * mib
	kinds := []struct{ viewers, reading int }{{0, 0}, {viewers, 0}, {viewers, reading}}
	rates, cpu := make([][]float64, len(kinds)), make([][]float64, len(kinds))
	for range rounds {
		for k, kind := range kinds {
			took, used := writeToTerminal(ctx, e.d, kind.viewers, kind.reading, n)
			rates[k], cpu[k] = append(rates[k], rate(n, took)), append(cpu[k], millis(used))
		}
	}
	e.add(
		figure("Page: a process in a terminal with 100 viewers that never read", "MiB/s", median(rates[0]), median(rates[1])).ratioAtLeast(0.90).notes("bare: nobody looks; %d MiB", n/mib),
		figure("  its CPU time", "ms", median(cpu[0]), median(cpu[1])).ratioAtMost(1.10),
		figure("  10 of the 100 read all of it", "MiB/s", median(rates[0]), median(rates[2])).notes("they use the same cores"),
		figure("  … its CPU time", "ms", median(cpu[0]), median(cpu[2])),
	)
}

// writeToTerminal returns how long a process in a terminal needs to write n bytes while
// pages show it, and its CPU time, with that of the shell that it was. Those that do not
// read have stalled before.
func writeToTerminal(ctx context.Context, d *daemon, viewers, reading int, n int64) (took, cpu time.Duration) {
	argv := append([]string{"/bin/sh", "-c", fmt.Sprintf(`stty raw -echo; head -c %d /dev/zero; read go; exec "$@"`, stallOn), "sh"}, ddArgs(n)...)
	p := must(d.sdk.Start(ctx, process.Spec{Argv: argv, PTY: &process.Size{Cols: 80, Rows: 24}}))
	defer also(func() { d.forget(ctx, string(p.ID())) })
	// As src/screen.ts of the page asks.
	message := must(proto.Marshal(&tendv1.ReadRequest{
		Process: &tendv1.Selector{By: &tendv1.Selector_Id{Id: string(p.ID())}},
		Streams: []tendv1.Stream{tendv1.Stream_STREAM_PTY},
		From:    []*tendv1.StreamOffset{{Stream: tendv1.Stream_STREAM_PTY}},
		Drain:   durationpb.New(-time.Second),
	}))
	var readers sync.WaitGroup
	defer readers.Wait()
	for i := range viewers {
		on := dial(ctx, d.addr)
		defer on.Close()
		if i < reading {
			stream := on.wide().stream("/tend.v1.ProcessService/Read", "application/connect+proto", message)
			readers.Go(func() { io.Copy(io.Discard, stream.r) }) // until it ends, or is closed
			continue
		}
		check(on.nc.(*net.TCPConn).SetReadBuffer(1)) // the least that the kernel allows
		on.stream("/tend.v1.ProcessService/Read", "application/connect+proto", message)
	}
	for must(p.Info(ctx)).Streams[0].End < stallOn {
		pause(ctx, 10*time.Millisecond)
	}
	d.settle(ctx)
	before := must(p.Info(ctx)).Streams[0].End
	start := time.Now()
	must(p.Write(ctx, process.Input{Data: []byte("\n")}))
	x := ended(ctx, p)
	took = time.Since(start)
	if wrote := must(p.Info(ctx)).Streams[0].End - before; before != stallOn || wrote != n {
		fail("%d bytes of output, then %d; want %d and %d", before, wrote, stallOn, n)
	}
	return took, x.UserTime + x.SystemTime
}
