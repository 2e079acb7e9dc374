//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tend-run/tend/internal/support/testbin"
	"github.com/tend-run/tend/internal/support/testdaemon"
)

// benchServicesBeside keeps the same programs by tend and by two other supervisors, one
// after the other: restarts after kill -9, and the memory of the supervisor with 100 of
// them. What cannot be installed is left out, and the rows say so.
func benchServicesBeside(ctx context.Context, e *env) {
	const rounds, many, settle = 10, 100, 20 * time.Second
	again := row{Name: "service kill -9 → the next one runs, the same program, p50", Unit: "ms", Peers: map[string]float64{}}
	pss := row{Name: fmt.Sprintf("PSS of the supervisor with %d services, the same program", many), Unit: "MiB", Peers: map[string]float64{}}
	var missing []string
	for _, s := range []supervising{&byTend{d: e.d}, &byPM2{}, &bySupervisord{}} {
		var took []float64
		sum := 0.0
		err := caught(func() {
			s.install(ctx)
			func() {
				k := newKept(ctx, 1)
				defer k.close()
				defer s.end(ctx)
				s.begin(ctx, k)
				for range rounds {
					took = append(took, k.kill())
				}
			}()
			k := newKept(ctx, many)
			defer k.close()
			defer s.end(ctx)
			s.begin(ctx, k)
			pids := s.roles(ctx) // a question wakes who rests
			pause(ctx, settle)
			for _, pid := range pids {
				sum += memoryOf(pid).pss / 1024
			}
		})
		switch name := s.name(); {
		case err != nil && name == "tend":
			fail("%v", err)
		case err != nil:
			fmt.Fprintf(os.Stderr, "bench: without %s: %v\n", name, err)
			missing = append(missing, name+" not installed")
		case name == "tend":
			again.Tend, pss.Tend = median(took), sum
		default:
			again.Peers[name], pss.Peers[name] = median(took), sum
		}
	}
	again, pss = again.atMost(10), pss.atMost(25)
	if len(missing) > 0 {
		again, pss = again.notes("%s", strings.Join(missing, ", ")), pss.notes("%s", strings.Join(missing, ", "))
	}
	e.add(again, pss)
}

// supervising is a supervisor. What goes wrong in its functions ends the benchmark, or
// leaves it out.
type supervising interface {
	name() string
	install(ctx context.Context)
	begin(ctx context.Context, k *kept)
	roles(ctx context.Context) []int
	end(ctx context.Context)
}

// kept are services, all of one program. Each writes its pid when it runs.
type kept struct {
	ctx context.Context
	dir string
	n   int
}

func newKept(ctx context.Context, n int) *kept {
	k := &kept{ctx, must(os.MkdirTemp("", "tend-bench-kept-")), n}
	check(os.WriteFile(k.program(), []byte("echo $$ >>\"$0.$1\"\nexec sleep 100000\n"), 0o600))
	return k
}

func (k *kept) close()          { os.RemoveAll(k.dir) }
func (k *kept) program() string { return filepath.Join(k.dir, "service.sh") }
func (k *kept) started(i int) []string {
	data, _ := os.ReadFile(fmt.Sprintf("%s.%d", k.program(), i)) // not there: not started
	return strings.Fields(string(data))
}

// wait waits until all have started once.
func (k *kept) wait() {
	for i := range k.n {
		k.until(i, 1)
	}
}

// until waits until a service has started so often.
func (k *kept) until(i, times int) (pid int) {
	for end := time.Now().Add(2 * time.Minute); ; pause(k.ctx, 100*time.Microsecond) {
		if all := k.started(i); len(all) >= times {
			return must(strconv.Atoi(all[times-1]))
		}
		if time.Now().After(end) {
			fail("service %d has not started %d times", i, times)
		}
	}
}

// uptime is how long a service runs before it is killed: all take it for a good start then.
const uptime = 1500 * time.Millisecond

// kill kills the first service, and returns after how many ms the next one runs.
func (k *kept) kill() float64 {
	times := len(k.started(0))
	pid := k.until(0, times)
	pause(k.ctx, uptime)
	begin := time.Now()
	check(syscall.Kill(pid, syscall.SIGKILL))
	k.until(0, times+1)
	return millis(time.Since(begin))
}

type byTend struct {
	d *daemon
	s *declaredServices
}

func (t *byTend) name() string            { return "tend" }
func (t *byTend) install(context.Context) {}
func (t *byTend) begin(ctx context.Context, k *kept) {
	t.s = declareServices(ctx, t.d)
	var all []string
	for i := range k.n {
		all = append(all, fmt.Sprintf("k%d: {command: [/bin/sh, %s, '%d'], restart: {max: 0, delay: 0}}", i, k.program(), i))
	}
	t.s.apply(all...)
	k.wait()
}

func (t *byTend) roles(ctx context.Context) (pids []int) {
	for _, pid := range t.d.roles(ctx) {
		pids = append(pids, pid)
	}
	if t.d.own != nil {
		pids = append(pids, t.d.own.Roles()[testdaemon.Launcher])
	}
	return pids
}

func (t *byTend) end(ctx context.Context) {
	check(t.d.sdk.StopServices(ctx))
	os.RemoveAll(t.s.dir)
}

// others is what the suite beside other supervisors installs.
type others struct {
	dir, path string
	home      string
	daemon    *exec.Cmd
}

func (o *others) install(ctx context.Context) {
	o.dir = filepath.Join(must(testbin.Root()), "test", "conformance", "supervisors")
	cmd := exec.CommandContext(ctx, filepath.Join(o.dir, "install"))
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		fail("%v: %s", err, said.String())
	}
	o.path = strings.TrimSpace(string(out))
}

// command has a home of its own, which is where pm2 looks for its daemon.
func (o *others) command(ctx context.Context, argv ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = o.home
	cmd.Env = append(os.Environ(), "PATH="+o.path, "PM2_HOME="+o.home)
	return cmd
}

type byPM2 struct{ others }

func (p *byPM2) name() string { return "pm2" }

func (p *byPM2) pm2(ctx context.Context, args ...string) {
	argv := append([]string{filepath.Join(p.dir, "js", "node_modules", ".bin", "pm2")}, args...)
	if out, err := p.command(ctx, argv...).CombinedOutput(); err != nil {
		fail("pm2 %s: %v: %.500s", args[0], err, out)
	}
}

func (p *byPM2) begin(ctx context.Context, k *kept) {
	p.home = must(os.MkdirTemp("", "tend-bench-pm2-"))
	var apps []map[string]any
	for i := range k.n {
		apps = append(apps, map[string]any{"name": fmt.Sprintf("k%d", i), "script": k.program(), "interpreter": "/bin/sh", "args": fmt.Sprint(i)})
	}
	file := filepath.Join(p.home, "ecosystem.config.json")
	check(os.WriteFile(file, must(json.Marshal(map[string]any{"apps": apps})), 0o600))
	p.pm2(ctx, "start", file)
	k.wait()
}

func (p *byPM2) roles(context.Context) []int {
	return []int{must(strconv.Atoi(strings.TrimSpace(string(must(os.ReadFile(filepath.Join(p.home, "pm2.pid")))))))}
}

func (p *byPM2) end(ctx context.Context) {
	p.pm2(ctx, "kill")
	os.RemoveAll(p.home)
}

type bySupervisord struct{ others }

func (s *bySupervisord) name() string { return "supervisord" }

func (s *bySupervisord) begin(ctx context.Context, k *kept) {
	s.home = must(os.MkdirTemp("", "tend-bench-supervisord-"))
	var text strings.Builder
	fmt.Fprintf(&text, "[supervisord]\nlogfile=%[1]s/log\npidfile=%[1]s/pid\nchildlogdir=%[1]s\n", s.home)
	for i := range k.n {
		fmt.Fprintf(&text, "[program:k%d]\ncommand=/bin/sh %s %d\nautorestart=true\nstdout_logfile=%s/%d.out\n", i, k.program(), i, s.home, i)
	}
	file := filepath.Join(s.home, "supervisord.conf")
	check(os.WriteFile(file, []byte(text.String()), 0o600))
	s.daemon = s.command(ctx, filepath.Join(s.dir, "python", ".venv", "bin", "supervisord"), "-n", "-c", file)
	check(s.daemon.Start())
	k.wait()
}

func (s *bySupervisord) roles(context.Context) []int { return []int{s.daemon.Process.Pid} }

// end asks it to end its programs and itself.
func (s *bySupervisord) end(context.Context) {
	check(s.daemon.Process.Signal(syscall.SIGTERM))
	_ = s.daemon.Wait() // of how it ends nothing is known
	os.RemoveAll(s.home)
}
