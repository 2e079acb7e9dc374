//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tend-run/tend/internal/support/testdaemon"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// benchServices measures how soon it is seen that something is wrong with a service: until
// a client that watches is told.
func benchServices(ctx context.Context, e *env) {
	s := declareServices(ctx, e.d)
	defer os.RemoveAll(s.dir)
	e.add(s.kills()...)
	e.add(s.hangs(), s.stuck(), s.pressed())
	if os.Geteuid() == 0 {
		e.add(s.full())
	}
}

// benchServicesIdle measures what services cost to which nothing happens.
func benchServicesIdle(ctx context.Context, e *env) {
	s := declareServices(ctx, e.d)
	defer os.RemoveAll(s.dir)
	e.add(s.idle()...)
}

// declaredServices are those of one file.
type declaredServices struct {
	ctx context.Context
	d   *daemon
	dir string
}

func declareServices(ctx context.Context, d *daemon) *declaredServices {
	return &declaredServices{ctx, d, must(os.MkdirTemp("", "tend-bench-services-"))}
}

// apply declares services, starts them, and waits until all can be used.
func (s *declaredServices) apply(services ...string) {
	c := s.d.sdk
	check(c.ApplyServices(s.ctx, tend.ServiceFile{Dir: s.dir, Text: []byte("services:\n  " + strings.Join(services, "\n  ") + "\n")}))
	check(c.StartServices(s.ctx))
	s.until("all are ready", func(all []tend.Service) bool {
		return !slices.ContainsFunc(all, func(one tend.Service) bool { return one.Up && !one.Ready }) && len(all) == len(services)
	})
}

// until waits until services are as ok says, and returns them.
func (s *declaredServices) until(what string, ok func([]tend.Service) bool) []tend.Service {
	ctx, cancel := context.WithTimeout(s.ctx, time.Minute)
	defer cancel()
	for all, err := range s.d.sdk.WatchServices(ctx) {
		check(err)
		if ok(all) {
			return all
		}
	}
	fail("not in time: %s", what)
	return nil
}

// seen waits until each service was restarted by itself, and returns how long after its
// begin that was seen, in ms.
func (s *declaredServices) seen(what string, begin func(name string) time.Time) (took []float64) {
	told := map[string]bool{}
	s.until(what, func(all []tend.Service) bool {
		for _, one := range all {
			if !told[one.Name] && (one.Restarts > 0 || !one.Ready && strings.Contains(one.Why, what)) {
				told[one.Name] = true
				took = append(took, millis(time.Since(begin(one.Name))))
			}
		}
		return len(told) == len(all)
	})
	return took
}

// several is ten services; %d is the number of each. Their restarts are counted by name.
func several(kind, text string) (all []string) {
	for i := range 10 {
		all = append(all, fmt.Sprintf("%s%d: ", kind, i)+strings.ReplaceAll(text, "%d", fmt.Sprint(i)))
	}
	return all
}

// kills ends a service again and again.
func (s *declaredServices) kills() []row {
	const rounds = 30
	s.apply("x: {command: exec sleep 1000, restart: {max: 0, delay: 0}}")
	now := s.until("it runs", func(all []tend.Service) bool { return all[0].PID > 0 })[0]
	var again, seen []float64
	for range rounds {
		pause(s.ctx, 50*time.Millisecond)
		begin := time.Now()
		check(syscall.Kill(now.PID, syscall.SIGKILL))
		next := s.until("it runs again", func(all []tend.Service) bool { return all[0].Runs > now.Runs && all[0].Ready && all[0].PID > 0 })[0]
		seen = append(seen, millis(time.Since(begin)))
		p := must(s.d.sdk.Get(s.ctx, process.Selector{ID: next.Process}))
		again = append(again, millis(must(p.Info(s.ctx)).Started.Sub(begin)))
		now = next
	}
	r := figure("service kill -9 → the next one started, p50", "ms", 0, median(again)).atMost(10).notes("p95 %s", number(quantile(again, 0.95)))
	return []row{r, tail("  until a client that watches is told, p95", seen).atMost(500)}
}

// hangs has services that are asked how they are every 2 s not answer any more.
func (s *declaredServices) hangs() row {
	s.apply(several("deaf", "{command: exec sleep 1000, health: {exec: 'test ! -e hung || sleep 100', interval: 2s, timeout: 1s}, stop: KILL}")...)
	pause(s.ctx, 2*time.Second)
	begin := time.Now()
	check(os.WriteFile(filepath.Join(s.dir, "hung"), nil, 0o600))
	took := s.seen("probe failed", func(string) time.Time { return begin })
	check(os.Remove(filepath.Join(s.dir, "hung")))
	return tail("service does not answer any more, asked every 2 s → told, p95", took).atMost(6000)
}

// stuck has services write a last line that says that something is going on.
func (s *declaredServices) stuck() row {
	const quiet = time.Second
	s.apply(several("said", "{command: 'sleep 1; echo Bundling; touch said%d; exec sleep 1000', log: {pattern: Bundling, quiet: 1s}}")...)
	took := s.seen("log is stuck", func(name string) time.Time { return s.touched(name).Add(quiet) })
	return tail("service's log is stuck: after its quiet time → told, p95", took).atMost(1000)
}

// pressed has services use up their descriptors.
func (s *declaredServices) pressed() row {
	const bash = `sleep 2; touch short%d; for i in {3..14}; do eval "exec $i</dev/null"; done; exec sleep 1000`
	s.apply(several("short", "{command: [bash, -c, '"+bash+"'], limits: {files: 16}, pressure: {restart: true}}")...)
	took := s.seen("descriptors are short", func(name string) time.Time { return s.touched(name) })
	return tail("service is short of descriptors → told, p95", took).atMost(5000)
}

// full has services use up their memory: of 64 MiB that each may have they hold 60 in a
// program that then waits. The control groups are root's own, since tend gives a service
// on the host limits of cgroup v2 alone.
func (s *declaredServices) full() row {
	const command = `sleep 2; touch full%d; echo $$ > GROUP-%d/cgroup.procs; dd if=/dev/zero bs=60M count=1 2>/dev/null | sleep 1000`
	group, remove := memoryGroups(10, 64<<20)
	defer also(func() {
		check(s.d.sdk.StopServices(s.ctx))
		remove()
	})
	s.apply(several("full", "{command: '"+strings.ReplaceAll(command, "GROUP", group)+"', pressure: {restart: true}, stop: KILL}")...)
	took := s.seen("memory is short", func(name string) time.Time { return s.touched(name) })
	return tail("service is short of memory → told, p95", took).atMost(5000)
}

// memoryGroups makes control groups with a limit, prefix-0 and so on, in whatever version
// has the controller.
func memoryGroups(n int, limit int64) (prefix string, remove func()) {
	base, file := "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
	if _, err := os.Stat(filepath.Join(base, file)); err != nil {
		base, file = "/sys/fs/cgroup", "memory.max"
		check(os.WriteFile(filepath.Join(base, "cgroup.subtree_control"), []byte("+memory"), 0o600))
	}
	prefix = filepath.Join(base, fmt.Sprintf("tend-bench-%d", os.Getpid()))
	var made []string
	remove = func() {
		for _, dir := range made {
			// The last of its processes may be about to end.
			for try := 0; ; try++ {
				err := os.Remove(dir)
				if err == nil {
					break
				}
				if try == 100 {
					check(err)
				}
				time.Sleep(50 * time.Millisecond)
			}
		}
	}
	for i := range n {
		dir := fmt.Sprintf("%s-%d", prefix, i)
		check(os.Mkdir(dir, 0o755))
		made = append(made, dir)
		check(os.WriteFile(filepath.Join(dir, file), fmt.Append(nil, limit), 0o600))
	}
	return prefix, remove
}

// touched is when a service has touched the file of its name.
func (s *declaredServices) touched(name string) time.Time {
	return must(os.Stat(filepath.Join(s.dir, name))).ModTime()
}

// idle keeps 100 services to which nothing happens.
func (s *declaredServices) idle() []row {
	const n, settle, span = 100, 20 * time.Second, 50 * time.Second
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("i%d: {command: exec sleep 1000}", i))
	}
	s.apply(all...)
	pids := s.d.roles(s.ctx) // a question wakes who rests
	pause(s.ctx, settle)
	names := []string{"anchor", "keeper", "server"}
	if s.d.own != nil {
		pids[testdaemon.Launcher] = s.d.own.Roles()[testdaemon.Launcher]
		names = append(names, testdaemon.Launcher)
	}
	sum, each := 0.0, ""
	for _, name := range names {
		pss := memoryOf(pids[name]).pss / 1024
		sum, each = sum+pss, each+fmt.Sprintf(", %s %.1f", name, pss)
	}
	before := switches(pids)
	pause(s.ctx, span)
	woken, total, text := switches(pids), 0.0, ""
	for _, name := range names {
		one := (woken[name] - before[name]) / span.Seconds()
		total, text = total+one, text+fmt.Sprintf(", %s %.2f", name, one)
	}
	return []row{
		figure("PSS of all roles with 100 services", "MiB", 0, sum).atMost(25).notes("%s", each[2:]),
		figure("  context switches of all their threads, over 50 s", "a second", 0, total).notes("%s", text[2:]),
	}
}

// switches counts how often the threads of each role have begun to run again.
func switches(pids roles) map[string]float64 {
	all := map[string]float64{}
	for name, pid := range pids {
		for _, path := range must(filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))) {
			text, err := os.ReadFile(path)
			if err != nil {
				continue // the thread has ended
			}
			for line := range strings.Lines(string(text)) {
				if f := strings.Fields(line); len(f) == 2 && strings.HasSuffix(f[0], "ctxt_switches:") {
					all[name] += must(strconv.ParseFloat(f[1], 64))
				}
			}
		}
	}
	return all
}
