//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// loners is a program with 32 children that each have a session of their own, and
// write a line once they have. They sleep for span seconds, which marks them.
func loners(span string) []string {
	return []string{"/bin/sh", "-c", `for i in $(seq 32); do setsid sh -c 'echo x; exec sleep "$1"' sh "$1" & done; wait`, "sh", span}
}

// lonersOutput is what they write, in bytes.
const lonersOutput = 64

// startLoners returns when all of them have their sessions.
func startLoners(ctx context.Context, m process.Manager, span string) *tend.Process {
	argv := loners(span)
	p := must(tend.Spawn(ctx, m, tend.Command(argv[0], argv[1:]...)))
	must(io.ReadFull(p.Stdout(), make([]byte, lonersOutput)))
	return p
}

// destroyed times the end of a sandbox, which nothing survives that sleeps for
// span.
func destroyed(span string, destroy func() error) float64 {
	took := timed(func() { check(destroy()) })
	n := 0
	for _, path := range must(filepath.Glob("/proc/[0-9]*/cmdline")) {
		if line, _ := os.ReadFile(path); bytes.HasPrefix(line, []byte("sleep\x00"+span)) {
			n++
		}
	}
	if n > 0 {
		fail("%d processes survive their sandbox", n)
	}
	return millis(took)
}

// endOf times the end of a peer's sandbox with the loners: until none of them
// holds its output any more.
func (p *peer) endOf(ctx context.Context, span string) time.Duration {
	id := p.id()
	c := spawn(false, p.argv(id, loners(span)...)...)
	defer func() {
		c.close()
		_, _ = unix.Wait4(c.pid, nil, 0, nil)
	}()
	buf := make([]byte, lonersOutput)
	for got := 0; got < lonersOutput; {
		n := must(unix.Read(c.out, buf))
		if n == 0 {
			fail("%s ended early", p.name)
		}
		got += n
	}
	return timed(func() {
		p.end(ctx, id, c)
		drain(c.out, buf)
	})
}

// benchSandboxEnd times the end of a sandbox in which much runs, and its pauses.
func benchSandboxEnd(ctx context.Context, e *env) {
	const rounds = 40
	span := fmt.Sprintf("3600.%d", os.Getpid())
	others := peers(ctx)
	defer others.close()
	withHouse(ctx, e, func(h *house) {
		var destroy, paused, api, freeze, thaw []float64
		at := others.samples()
		for range rounds {
			for _, p := range others {
				at.add(p, millis(p.endOf(ctx, span)))
			}
			s := must(h.Create(ctx, driver.Spec{}))
			p := startLoners(ctx, s.Processes(), span)
			destroy = append(destroy, destroyed(span, func() error { return s.Destroy(ctx) }))
			p.Close()
			s = must(h.Create(ctx, driver.Spec{}))
			p = startLoners(ctx, s.Processes(), span)
			id := must(s.Info(ctx)).ID
			for range 5 {
				freeze = append(freeze, millis(timed(func() { check(h.Pause(ctx, id, driver.PauseSpec{Memory: true})) })))
				thaw = append(thaw, millis(timed(func() { check(h.Resume(ctx, id)) })))
			}
			paused = append(paused, destroyed(span, func() error { return s.Destroy(ctx) }))
			p.Close()
			sandbox := must(e.d.sdk.CreateSandbox(ctx, isolated))
			p = startLoners(ctx, must(sandbox.Client(ctx)), span)
			api = append(api, destroyed(span, func() error { return sandbox.Destroy(ctx) }))
			p.Close()
		}
		e.add(
			at.to(figure("Sandbox with 32 children, each a session: destroy, by the keeper, p50", "ms", 0, median(destroy)).atMost(10)).notes("0 survivors; the others: until none holds its output"),
			figure("  p99", "ms", 0, quantile(destroy, 0.99)),
			figure("  after pauses, p50", "ms", 0, median(paused)),
			figure("  by the Go client, p50", "ms", 0, median(api)),
			figure("Pause of a sandbox with 34 processes, by the keeper, p50", "ms", 0, median(freeze)).atMost(1).notes("p99 %s", number(quantile(freeze, 0.99))),
			figure("Resume, p50", "ms", 0, median(thaw)).atMost(1).notes("p99 %s", number(quantile(thaw, 0.99))),
		)
	})
}

// benchSandboxMany holds 1,000 sandboxes in which nothing runs.
func benchSandboxMany(ctx context.Context, e *env) {
	const many, callers, settle = 1000, 8, 2 * time.Second
	withHouse(ctx, e, func(h *house) {
		check(must(h.Create(ctx, driver.Spec{})).Destroy(ctx)) // what is made once
		pause(ctx, settle)
		before := occupied()
		all := make([]driver.Sandbox, many)
		made := timed(func() {
			together(callers, func(w int) {
				for i := w; i < many; i += callers {
					all[i] = must(h.Create(ctx, driver.Spec{}))
				}
			})
		})
		pause(ctx, settle)
		after := occupied()
		ended := timed(func() {
			together(callers, func(w int) {
				for i := w; i < many; i += callers {
					check(all[i].Destroy(ctx))
				}
			})
		})
		e.add(
			figure("1,000 sandboxes made, by the keeper", "s", 0, made.Seconds()).atMost(3).notes("by %d callers at once; destroyed in %s s", callers, number(ended.Seconds())),
			figure("  memory of each while idle, the kernel's with it", "KiB", 0, after.less(before)/many).atMost(160).notes("%s", after.each(before, many)),
		)
	})
}

// meminfo is /proc/meminfo, in KiB.
type meminfo map[string]float64

// unreclaimable is the memory that the kernel cannot take back when it needs some.
var unreclaimable = []string{"AnonPages", "Shmem", "SUnreclaim", "KernelStack", "PageTables", "Percpu"}

func occupied() meminfo {
	runtime.GC()
	debug.FreeOSMemory() // this process holds the driver
	m := meminfo{}
	f := must(os.Open("/proc/meminfo"))
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		name, rest, _ := strings.Cut(s.Text(), ":")
		m[name], _ = strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 64)
	}
	return m
}

func (m meminfo) less(before meminfo) (sum float64) {
	for _, name := range unreclaimable {
		sum += m[name] - before[name]
	}
	return sum
}

func (m meminfo) each(before meminfo, n float64) string {
	var parts []string
	for _, name := range unreclaimable {
		parts = append(parts, fmt.Sprintf("%s %.0f", name, (m[name]-before[name])/n))
	}
	return strings.Join(parts, ", ")
}

// benchSandboxFiles times copies of a sandbox that has 1 GiB of files.
func benchSandboxFiles(ctx context.Context, e *env) {
	const rounds = 3
	withHouse(ctx, e, func(h *house) {
		var copied, snapshot, fork []float64
		for i := range rounds {
			s := must(h.Create(ctx, driver.Spec{}))
			id := must(s.Info(ctx)).ID
			p := must(tend.Spawn(ctx, s.Processes(), tend.Shell("cd && dd if=/dev/urandom of=workspace bs=1M count=1024 status=none && realpath workspace")))
			res := must(p.Wait(ctx, tend.WaitOptions{}))
			p.Close()
			file := strings.TrimSpace(res.Stdout)
			if !strings.HasPrefix(file, "/") {
				fail("no workspace: %+v", res)
			}
			unix.Sync() // the copies are measured, and not what is still to be written
			var kept driver.Snapshot
			snapshot = append(snapshot, millis(timed(func() { kept = must(h.Snapshot(ctx, id, driver.SnapshotSpec{Name: fmt.Sprintf("bench-%d", i)})) })))
			var forks []driver.ForkResult
			fork = append(fork, millis(timed(func() { forks = must(h.Fork(ctx, id, driver.ForkSpec{})) })))
			check(forks[0].Err)
			size := must(tend.Spawn(ctx, forks[0].Sandbox.Processes(), tend.Command("stat", "-c", "%s", file)))
			if res := must(size.Wait(ctx, tend.WaitOptions{})); strings.TrimSpace(res.Stdout) != strconv.Itoa(1<<30) {
				fail("the workspace of the copy has %q bytes", res.Stdout)
			}
			size.Close()
			from := filepath.Join(must(os.MkdirTemp("", "tend-bench-copy-")), "workspace")
			defer os.RemoveAll(filepath.Dir(from))
			check(exec.CommandContext(ctx, "/bin/dd", "if=/dev/urandom", "of="+from, "bs=1M", "count=1024", "status=none").Run())
			unix.Sync()
			copied = append(copied, millis(timed(func() { check(exec.CommandContext(ctx, "/bin/cp", "--reflink=auto", from, from+".copy").Run()) })))
			check(os.RemoveAll(filepath.Dir(from)))
			check(forks[0].Sandbox.Destroy(ctx))
			check(s.Destroy(ctx))
			check(h.DeleteSnapshot(ctx, string(kept.ID)))
		}
		e.add(
			figure("Snapshot of 1 GiB of files, by the keeper", "ms", median(copied), median(snapshot)).atMost(20).notes("bare: cp; %d rounds, the worst %s", rounds, number(quantile(snapshot, 1))),
			figure("Fork of the same", "ms", median(copied), median(fork)).atMost(20).notes("the worst %s", number(quantile(fork, 1))),
		)
	})
}
