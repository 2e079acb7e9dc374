//go:build linux

package main

import (
	"context"
	"fmt"
	"os/exec"
	"time"

	"github.com/tend-run/tend/internal/testdaemon"
)

// benchIdle holds 1,000 processes that do nothing, each with a subscriber.
func benchIdle(ctx context.Context, e *env) ([]row, error) {
	const idle, settle, span = 1000, 2 * time.Second, 10 * time.Second
	r, err := newRunner(ctx, e.d)
	if err != nil {
		return nil, err
	}
	defer r.c.Close()
	for range 20 { // warm: code and pools are no cost of a process
		if _, err := r.once(); err != nil {
			return nil, err
		}
	}
	pids, err := e.d.roles(ctx)
	if err != nil {
		return nil, err
	}
	names := []string{"anchor", "keeper", "server"}
	before, err := pids.memory(names...)
	if err != nil {
		return nil, err
	}
	c := jsonCodec()
	for range idle {
		on, err := dial(ctx, e.d.addr)
		if err != nil {
			return nil, err
		}
		defer on.Close()
		if _, _, err := c.start(on, startRequest(false, "/bin/sleep", "3600")); err != nil {
			return nil, err
		}
	}
	if err := pause(ctx, settle); err != nil {
		return nil, err
	}
	used, err := pids.cpu()
	if err != nil {
		return nil, err
	}
	if err := pause(ctx, span); err != nil {
		return nil, err
	}
	usedAfter, err := pids.cpu()
	if err != nil {
		return nil, err
	}
	after, err := pids.memory(names...)
	if err != nil {
		return nil, err
	}
	spent := usage{}
	spent.add(used, usedAfter)
	sum, each := spent.per(span.Seconds())
	detail := ""
	for _, name := range names {
		m, err := memoryOf(pids[name])
		if err != nil {
			return nil, err
		}
		detail += fmt.Sprintf(", %s %.1f", name, m.rss/1024)
	}
	return []row{
		figure("RSS of all roles per idle process + subscriber, at 1,000", "KiB", 0, (after.rss-before.rss)/idle).atMost(24).
			notes("PSS %.1f KiB; RSS in MiB: %s", (after.pss-before.pss)/idle, detail[2:]),
		figure("CPU of all roles with 1,000 idle, over 10 s", "% of a core", 0, 100*sum).atMost(0.5).notes("CPU seconds a second: %s", each),
	}, nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// benchServe weighs an idle daemon and starts others.
func benchServe(ctx context.Context, e *env) ([]row, error) {
	const starts = 10
	pids, err := e.d.roles(ctx)
	if err != nil {
		return nil, err
	}
	m, err := pids.memory("anchor", "keeper")
	if err != nil {
		return nil, err
	}
	server, err := pids.memory("server")
	if err != nil {
		return nil, err
	}
	launcher, err := memoryOf(e.d.own.Roles()[testdaemon.Launcher])
	if err != nil {
		return nil, err
	}
	var bare, ready []float64
	for range starts {
		start := time.Now()
		if err := exec.CommandContext(ctx, e.tend, "version").Run(); err != nil {
			return nil, fmt.Errorf("tend version: %w", err)
		}
		bare = append(bare, millis(time.Since(start)))
		d, err := serve(ctx, e.tend)
		if err != nil {
			return nil, err
		}
		ready = append(ready, millis(d.ready))
		if err := d.stop(); err != nil {
			return nil, err
		}
	}
	return []row{
		figure("RSS of anchor + keeper, idle", "MiB", 0, m.rss/1024).atMost(8).
			notes("PSS %.1f; server RSS %.1f, launcher %.1f", m.pss/1024, server.rss/1024, launcher.rss/1024),
		figure("tend serve to serving", "ms", median(bare), median(ready)).atMost(25).notes("bare: tend version"),
	}, nil
}
