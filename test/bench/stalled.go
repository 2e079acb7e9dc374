//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/tend-run/tend/process"
)

// benchStalled weighs what readers that never read cost the process that they
// ask for: half of them by the native API, half by envd's, all from its first
// byte.
func benchStalled(ctx context.Context, e *env) ([]row, error) {
	const readers, rounds = 1000, 5
	const n = 256 * mib
	var alone, beset []float64
	for range rounds {
		for _, with := range []struct {
			readers int
			rates   *[]float64
		}{{0, &alone}, {readers, &beset}} {
			took, err := writeTo(ctx, e.d, with.readers, n)
			if err != nil {
				return nil, err
			}
			*with.rates = append(*with.rates, rate(n, took))
		}
	}
	return []row{
		figure("a process with 1,000 stalled readers", "MiB/s", median(alone), median(beset)).ratioAtLeast(0.70).notes("bare: without readers; 256 MiB"),
	}, nil
}

// stallOn is more than the sockets of one reader hold, in bytes.
const stallOn = 8 * mib

// writeTo returns how long a process needs to write n bytes while clients that
// do not read ask for them.
func writeTo(ctx context.Context, d *daemon, readers int, n int64) (took time.Duration, err error) {
	// What the readers stall on is there before them.
	argv := append([]string{"/bin/sh", "-c", fmt.Sprintf(`head -c %d /dev/zero; read go; exec "$@"`, stallOn), "sh"}, ddArgs(n)...)
	p, err := d.sdk.Start(ctx, process.Spec{Argv: argv, Stdin: process.StdinPipe})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, d.forget(ctx, string(p.ID()))) }()
	info, err := p.Info(ctx)
	if err != nil {
		return 0, err
	}
	for i := range readers {
		on, err := dial(ctx, d.addr)
		if err != nil {
			return 0, err
		}
		defer on.Close()
		if err := on.nc.(*net.TCPConn).SetReadBuffer(1); err != nil { // the least that the kernel allows
			return 0, err
		}
		path, header, body := "/tend.v1.ProcessService/Read", "", fmt.Sprintf(`{"process":{"id":%q}}`, p.ID())
		if i%2 == 1 {
			path, header, body = "/process.Process/Connect", "Tend-From: 0\r\n", fmt.Sprintf(`{"process":{"pid":%d}}`, info.PID)
		}
		if _, err := on.streamWith(path, "Content-Type: application/connect+json\r\n"+header, []byte(body)); err != nil {
			return 0, err
		}
	}
	if err := d.settle(ctx); err != nil {
		return 0, err
	}
	start := time.Now()
	if _, err := p.Write(ctx, process.Input{Data: []byte("\n")}); err != nil {
		return 0, err
	}
	res, err := p.Wait(ctx, process.Until{})
	if err != nil {
		return 0, err
	}
	took = time.Since(start)
	if res.Exit == nil || res.Exit.Code != 0 {
		return 0, fmt.Errorf("the process ended with %v", res.Exit)
	}
	if end := res.Streams[0].End; end != stallOn+n {
		return 0, fmt.Errorf("%d bytes of output; want %d", end, stallOn+n)
	}
	return took, nil
}

// settle waits until the server has nothing to do.
func (d *daemon) settle(ctx context.Context) error {
	const look = 300 * time.Millisecond
	pids, err := d.roles(ctx)
	if err != nil {
		return err
	}
	before, err := pids.cpu()
	if err != nil {
		return err
	}
	for {
		if err := pause(ctx, look); err != nil {
			return err
		}
		now, err := pids.cpu()
		if err != nil {
			return err
		}
		if now["server"]-before["server"] < look/20 {
			return nil
		}
		before = now
	}
}
