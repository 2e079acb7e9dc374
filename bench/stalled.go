//go:build linux

package main

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/tend-run/tend/process"
)

// benchStalled weighs what readers that never read cost the process that they
// ask for: half of them by the native API, half by envd's, all from its first
// byte.
func benchStalled(ctx context.Context, e *env) {
	const readers, rounds = 1000, 5
	const n = 256 * mib
	var alone, beset []float64
	for range rounds {
		for _, with := range []struct {
			readers int
			rates   *[]float64
		}{{0, &alone}, {readers, &beset}} {
			*with.rates = append(*with.rates, rate(n, writeTo(ctx, e.d, with.readers, n)))
		}
	}
	e.add(
		figure("a process with 1,000 stalled readers", "MiB/s", median(alone), median(beset)).ratioAtLeast(0.70).notes("bare: without readers; 256 MiB"),
	)
}

// stallOn is more than the sockets of one reader hold, in bytes.
const stallOn = 8 * mib

// writeTo returns how long a process needs to write n bytes while clients that
// do not read ask for them.
func writeTo(ctx context.Context, d *daemon, readers int, n int64) (took time.Duration) {
	// What the readers stall on is there before them.
	argv := append([]string{"/bin/sh", "-c", fmt.Sprintf(`head -c %d /dev/zero; read go; exec "$@"`, stallOn), "sh"}, ddArgs(n)...)
	p := must(d.sdk.Start(ctx, process.Spec{Argv: argv, Stdin: process.StdinPipe}))
	defer also(func() { d.forget(ctx, string(p.ID())) })
	info := must(p.Info(ctx))
	for i := range readers {
		on := dial(ctx, d.addr)
		defer on.Close()
		check(on.nc.(*net.TCPConn).SetReadBuffer(1)) // the least that the kernel allows
		path, header, body := "/tend.v1.ProcessService/Read", "", fmt.Sprintf(`{"process":{"id":%q}}`, p.ID())
		if i%2 == 1 {
			path, header, body = "/process.Process/Connect", "Tend-From: 0\r\n", fmt.Sprintf(`{"process":{"pid":%d}}`, info.PID)
		}
		on.streamWith(path, "Content-Type: application/connect+json\r\n"+header, []byte(body))
	}
	d.settle(ctx)
	start := time.Now()
	must(p.Write(ctx, process.Input{Data: []byte("\n")}))
	res := must(p.Wait(ctx, process.Until{}))
	took = time.Since(start)
	if res.Exit == nil || res.Exit.Code != 0 {
		fail("the process ended with %v", res.Exit)
	}
	if end := res.Streams[0].End; end != stallOn+n {
		fail("%d bytes of output; want %d", end, stallOn+n)
	}
	return took
}

// settle waits until the server has nothing to do.
func (d *daemon) settle(ctx context.Context) {
	const look = 300 * time.Millisecond
	pids := d.roles(ctx)
	for used := look; used >= look/20; {
		spent := usage{}
		spent.during(pids, func() { pause(ctx, look) })
		used = spent["server"]
	}
}
