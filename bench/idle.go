//go:build linux

package main

import (
	"context"
	"fmt"
	"os/exec"
	"syscall"
	"time"

	"github.com/tend-run/tend/internal/support/testdaemon"
)

// rested is how long after the last request both keeper and server have given free
// memory, and the pages of their programs, back: memory is compared at rest.
const rested = 12 * time.Second

// benchIdle holds 1,000 processes that do nothing, each with a subscriber.
func benchIdle(ctx context.Context, e *env) {
	const idle, settle, span = 1000, 2 * time.Second, 10 * time.Second
	r := newRunner(ctx, e.d)
	defer r.c.Close()
	for range 20 { // warm: code and pools are no cost of a process
		r.once()
	}
	pids := e.d.roles(ctx)
	names := []string{"anchor", "keeper", "server"}
	pause(ctx, rested)
	before := pids.memory(names...)
	c := jsonCodec()
	for range idle {
		on := dial(ctx, e.d.addr)
		defer on.Close()
		c.start(on, startRequest(false, "/bin/sleep", "3600"))
	}
	pause(ctx, settle)
	spent := usage{}
	spent.during(pids, func() { pause(ctx, span) })
	after := pids.memory(names...)
	sum, each := spent.per(span.Seconds())
	detail := ""
	for _, name := range names {
		detail += fmt.Sprintf(", %s %.1f", name, memoryOf(pids[name]).rss/1024)
	}
	e.add(
		figure("RSS of all roles per idle process + subscriber, at 1,000", "KiB", 0, (after.rss-before.rss)/idle).atMost(24).
			notes("PSS %.1f KiB; RSS in MiB: %s", (after.pss-before.pss)/idle, detail[2:]),
		figure("CPU of all roles with 1,000 idle, over 10 s", "% of a core", 0, 100*sum).atMost(0.5).notes("CPU seconds a second: %s", each),
	)
}

// benchServe weighs an idle daemon and starts others.
func benchServe(ctx context.Context, e *env) {
	const starts = 10
	pids := e.d.roles(ctx)
	m := pids.memory("anchor", "keeper")
	server := pids.memory("server")
	launcher := memoryOf(e.d.own.Roles()[testdaemon.Launcher])
	var bare, ready []float64
	for range starts {
		as("tend version", func() {
			bare = append(bare, millis(timed(func() { check(exec.CommandContext(ctx, e.tend, "version").Run()) })))
		})
		d := must(serve(ctx, e.tend, ""))
		ready = append(ready, millis(d.ready))
		check(d.stop())
	}
	e.add(
		figure("RSS of anchor + keeper, idle", "MiB", 0, m.rss/1024).atMost(8).
			notes("PSS %.1f; server RSS %.1f, launcher %.1f", m.pss/1024, server.rss/1024, launcher.rss/1024),
		figure("tend serve to serving", "ms", median(bare), median(ready)).atMost(25).notes("bare: tend version"),
		commandRow(e),
	)
}

// commandRow is what each call of the command line costs before it does anything: all
// that tend is linked from begins.
func commandRow(e *env) row {
	buf := make([]byte, 4096)
	var bare, call, beside []float64
	resident := 0.0
	version := func(binary string) float64 {
		var cmd *exec.Cmd
		took := millis(timed(func() {
			cmd = exec.Command(binary, "version")
			check(cmd.Run())
		}))
		resident = float64(cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss) / 1024
		return took
	}
	for i := range 55 {
		b, other := millis(bareRun(buf, 0, truePath)), 0.0
		if e.beside != "" {
			other = version(e.beside)
		}
		c := version(e.tend)
		if i < 5 {
			continue // warms up
		}
		bare, call, beside = append(bare, b), append(call, c), append(beside, other)
	}
	r := figure("tend version, start→end, p50", "ms", median(bare), median(call)).atMost(15).notes("bare: /bin/true; p99 %.1f; RSS %.1f MiB at most", quantile(call, 0.99), resident)
	r.Beside = median(beside)
	return r
}
