//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/tend-run/tend/internal/core/client"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/local"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

const echoPath = "/bin/echo"

// house is the driver of isolated sandboxes over a keeper, in this process: what
// a sandbox costs without a server and its protocols.
type house struct {
	*local.Driver
	machine *client.Manager // the processes outside
}

// withHouse starts roles whose server does nothing but wait, opens the driver on
// them, and ends both after f.
func withHouse(ctx context.Context, e *env, f func(h *house)) {
	dir := must(os.MkdirTemp("", "tend-bench-"))
	defer also(func() { check(os.RemoveAll(dir)) })
	run := filepath.Join(dir, "run")
	check(errors.Join(os.Mkdir(run, 0o700), os.WriteFile(filepath.Join(run, "server.argv"), []byte("/bin/sleep\x00infinity"), 0o600)))
	roles := exec.CommandContext(ctx, cmp.Or(e.keeper, e.tend), "launcher", "--state-dir", dir)
	roles.Args[0] = "tend-keeper" // so the large binary plays the roles, too
	roles.Stderr = must(os.Create(filepath.Join(dir, "log")))
	roles.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGTERM}
	roles.Cancel = func() error { return roles.Process.Signal(syscall.SIGTERM) }
	check(roles.Start())
	defer also(func() {
		_ = roles.Process.Signal(syscall.SIGTERM)
		check(roles.Wait())
	})
	m := must(client.Open(ctx, client.Config{StateDir: dir, Environ: os.Environ(), Log: slog.New(slog.DiscardHandler)}))
	defer m.Close()
	d := must(local.Open(local.Config{
		Dir: filepath.Join(dir, "sandboxes"), State: dir, Manager: m, Engine: m.Containers(), Spare: true,
		Inside: func(r local.Root) process.Manager { return m.In(r) },
	}))
	check(d.Unable(ctx))
	background, stop := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { _ = d.Run(background) })
	defer work.Wait()
	defer stop()
	defer also(func() {
		for _, in := range must(m.Containers().List(ctx)) {
			check(m.Containers().End(ctx, in.ID))
		}
	})
	f(&house{Driver: d, machine: m})
}

// firstOutput starts echo and returns when its first byte is here. done waits for
// its end.
func firstOutput(ctx context.Context, m process.Manager) (done func()) {
	p := must(tend.Spawn(ctx, m, tend.Command(echoPath, "x")))
	must(p.Stdout().Read(make([]byte, 1)))
	return func() {
		defer p.Close()
		must(p.Wait(ctx, tend.WaitOptions{}))
	}
}

// startsToEnd times /bin/true from its start to its end.
func startsToEnd(ctx context.Context, m process.Manager, limits process.Limits) float64 {
	var p *tend.Process
	took := timed(func() {
		cmd := tend.Command(truePath)
		cmd.Limits = limits
		p = must(tend.Spawn(ctx, m, cmd))
		must(p.Wait(ctx, tend.WaitOptions{}))
	})
	check(p.Close())
	return micros(took)
}

// createFirst times a new sandbox to the first output of echo in it, and destroys it.
func (h *house) createFirst(ctx context.Context) time.Duration {
	var s driver.Sandbox
	var done func()
	took := timed(func() {
		s = must(h.Create(ctx, driver.Spec{}))
		done = firstOutput(ctx, s.Processes())
	})
	done()
	check(s.Destroy(ctx))
	return took
}

// isolated is what an SDK of E2B asks for.
var isolated = tend.SandboxSpec{Isolation: tend.IsolationFull}

// apart is the time between two creations of which the second one finds a sandbox that
// was made ready meanwhile.
const apart = 60 * time.Millisecond

// benchSandboxCreate times from nothing to the first output of a program in a new
// sandbox: of one that is asked for by itself, and of one right after another.
func benchSandboxCreate(ctx context.Context, e *env) {
	others := peers(ctx)
	defer others.close()
	withHouse(ctx, e, func(h *house) {
		var bare, keeper, row, api []float64
		at := others.samples()
		// The slowest of the others takes 50 ms and more.
		const warm = 10
		for i := range e.n/5 + warm {
			b := bareFirst(echoPath, "x")
			for _, p := range others {
				if i >= warm && (i-warm)%4 == 0 {
					at.add(p, millis(p.first(ctx)))
				}
			}
			pause(ctx, apart)
			k := millis(h.createFirst(ctx))
			again := millis(h.createFirst(ctx))
			pause(ctx, apart)
			var done func()
			var sandbox *tend.Sandbox
			a := timed(func() {
				sandbox = must(e.d.sdk.CreateSandbox(ctx, isolated))
				done = firstOutput(ctx, must(sandbox.Client(ctx)))
			})
			done()
			check(sandbox.Destroy(ctx))
			if i >= warm {
				bare, keeper, row, api = append(bare, millis(b)), append(keeper, k), append(row, again), append(api, millis(a))
			}
		}
		e.add(
			at.to(figure("New sandbox → first output of echo, by the keeper, p50", "ms", median(bare), median(keeper)).atMost(3)).notes("bare: no sandbox; %d ms after the one before", apart.Milliseconds()),
			figure("  p99", "ms", quantile(bare, 0.99), quantile(keeper, 0.99)),
			figure("  right after another one, p50", "ms", median(bare), median(row)),
			figure("  by the Go client, p50", "ms", median(bare), median(api)),
			figure("  by the Go client, p99", "ms", quantile(bare, 0.99), quantile(api, 0.99)),
		)
	})
}

// benchSandboxHand compares a new sandbox with what a script does by hand, and nothing else, so that it can be
// measured in a machine that has little: an emulated one with another kernel (make kernel-test).
func benchSandboxHand(ctx context.Context, e *env) {
	hand := handPeer(must(exec.LookPath("unshare")))
	defer hand.close()
	withHouse(ctx, e, func(h *house) {
		var by, keeper, row []float64
		const warm = 3
		for i := range e.n + warm {
			b := millis(hand.first(ctx))
			k := millis(h.createFirst(ctx))
			again := millis(h.createFirst(ctx))
			pause(ctx, apart+time.Duration(3*again*float64(time.Millisecond))) // where that is slow, so is making one ready
			if i >= warm {
				by, keeper, row = append(by, b), append(keeper, k), append(row, again)
			}
		}
		e.add(
			figure("Linux "+kernelRelease()+": new sandbox → first output of echo, by the keeper, p50", "ms", median(by), median(keeper)).
				ratioAtMost(2).notes("bare: unshare and an overlay by hand; %d of each in turns", e.n),
			figure("  right after another one, p50", "ms", median(by), median(row)).ratioAtMost(2),
		)
	})
}

// limited is what a start with rlimits has, by the numbers of the kernel: files,
// size of a file, size of a core.
var limited = process.Limits{Rlimits: []process.Rlimit{{Resource: 7, Soft: 1024, Hard: 4096}, {Resource: 1, Soft: 1 << 30, Hard: 1 << 30}, {Resource: 4}}}

// benchSandboxStart compares starts in a sandbox, and with limits, with starts
// beside it.
func benchSandboxStart(ctx context.Context, e *env) {
	withHouse(ctx, e, func(h *house) {
		s := must(h.Create(ctx, driver.Spec{}))
		sandbox := must(e.d.sdk.CreateSandbox(ctx, isolated))
		defer also(func() { check(sandbox.Destroy(ctx)) })
		type series struct {
			m      process.Manager
			limits process.Limits
			took   []float64
		}
		outside, inside := &series{m: h.machine}, &series{m: s.Processes()}
		withLimits := &series{m: h.machine, limits: limited}
		sdkOutside, sdkInside := &series{m: e.d.sdk}, &series{m: must(sandbox.Client(ctx))}
		var turns []func()
		for _, one := range []*series{outside, inside, withLimits, sdkOutside, sdkInside} {
			for range 20 { // warms up
				startsToEnd(ctx, one.m, one.limits)
			}
			turns = append(turns, func() { one.took = append(one.took, startsToEnd(ctx, one.m, one.limits)) })
		}
		inTurns(e.n, turns...)
		e.add(
			figure("Start→end of /bin/true in a sandbox, by the keeper, p50", "µs", median(outside.took), median(inside.took)).ratioAtMost(1.1).notes("bare: the same outside"),
			figure("  p99", "µs", quantile(outside.took, 0.99), quantile(inside.took, 0.99)),
			figure("  by the Go client, p50", "µs", median(sdkOutside.took), median(sdkInside.took)).notes("bare: the same outside"),
			figure("Start→end of /bin/true with rlimits, by the keeper, p50", "µs", median(outside.took), median(withLimits.took)).ratioAtMost(1.1).notes("bare: without; three limits"),
		)
	})
}

// benchSandboxBusy compares starts while many processes run with starts while
// none does.
func benchSandboxBusy(ctx context.Context, e *env) {
	const many = 5000
	withHouse(ctx, e, func(h *house) {
		var alone, among []float64
		n := max(e.n/2, 10)
		some := func(into *[]float64) {
			for range n {
				*into = append(*into, startsToEnd(ctx, h.machine, process.Limits{}))
			}
		}
		var warm []float64
		some(&warm)
		some(&alone)
		sleeps := make([]process.Process, many)
		together(4, func(w int) {
			for i := w; i < many; i += 4 {
				sleeps[i] = must(h.machine.Start(ctx, process.Spec{Argv: []string{"/bin/sleep", "3600"}}))
			}
		})
		some(&among)
		together(4, func(w int) {
			for i := w; i < many; i += 4 {
				must(sleeps[i].Kill(ctx))
			}
		})
		some(&alone)
		e.add(figure("Start→end of /bin/true while 5,000 processes run, p50", "µs", median(alone), median(among)).ratioAtMost(1.2).notes("bare: while none runs"))
	})
}
