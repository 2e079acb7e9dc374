package services

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tend-run/tend/internal/core/client"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/local"
	"github.com/tend-run/tend/internal/service/run"
	"github.com/tend-run/tend/internal/service/supervisor"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// serveAt makes the test binary a server.
const serveAt = "SERVICES_TEST_SERVE"

func TestMain(m *testing.M) {
	if addr := os.Getenv(serveAt); addr != "" {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		_ = http.Serve(l, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// yard is services over sandboxes that are isolated.
type yard struct {
	t *testing.T
	m *client.Manager
	d *local.Driver
	*Services
	dir  string
	stop func()
	exe  string // this test binary, as it is found inside
}

func newYard(t *testing.T) *yard {
	t.Helper()
	proctest.Root(t)
	y := &yard{t: t, m: testkeeper.New(t).(*client.Manager), dir: t.TempDir(), exe: proctest.Value(os.Executable())(t)}
	y.d = proctest.Value(local.Open(local.Config{
		Dir: filepath.Join(t.TempDir(), "sandboxes"), Manager: y.m, Engine: y.m.Containers(), Inside: func(r local.Root) process.Manager { return y.m.In(r) },
	}))(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- y.d.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		err := <-done
		ctx := context.WithoutCancel(t.Context())
		for _, in := range proctest.Value(y.d.List(ctx))(t) {
			s, gerr := y.d.Get(ctx, string(in.ID))
			if gerr == nil {
				gerr = s.Destroy(ctx)
			}
			err = errors.Join(err, gerr)
		}
		if err != nil {
			t.Error(err)
		}
	})
	y.begin()
	return y
}

// begin opens the services, as a server after the one before does.
func (y *yard) begin() {
	y.t.Helper()
	y.Services = Open(Config{Manager: y.m, Dir: y.dir, Driver: y.d})
	ctx, cancel := context.WithCancel(y.t.Context())
	done := make(chan error, 1)
	go func() { done <- y.Run(ctx) }()
	y.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			y.t.Errorf("run: %v", err)
		}
	})
	y.t.Cleanup(y.stop)
}

// sandbox makes a sandbox in which the test binary is found.
func (y *yard) sandbox(name string) driver.Sandbox {
	y.t.Helper()
	s, err := y.d.Create(y.t.Context(), driver.Spec{
		Name: name, Env: map[string]string{"OF": "the sandbox"}, Shares: []driver.Share{{Source: filepath.Dir(y.exe), ReadOnly: true}},
	})
	return proctest.Value(s, err)(y.t)
}

// declare applies and starts services.
func (y *yard) declare(services string) {
	y.t.Helper()
	text := "services:\n" + strings.ReplaceAll(services, "$SELF", y.exe)
	proctest.Must(y.t, y.Apply(y.t.Context(), fileOf("/", text, map[string]string{"OF": "tend up", "PATH": os.Getenv("PATH") + ":/tend-up"})))
	proctest.Must(y.t, y.Start(y.t.Context(), "", nil))
}

// until waits until a service is as ok says.
func (y *yard) until(name, what string, ok func(run.Status) bool) run.Status {
	y.t.Helper()
	return proctest.Until(y.t, y.sup.Wait, func(s run.Status) bool { return s.Name == name }, name, what, ok)
}

func (y *yard) ready(name string) run.Status {
	y.t.Helper()
	return y.until(name, "ready", func(s run.Status) bool { return s.State.Ready })
}

// waits waits until a service waits for its sandbox.
func (y *yard) waits(name, why string) run.Status {
	y.t.Helper()
	return y.until(name, "waiting, "+why, func(s run.Status) bool {
		return s.State.Phase == supervisor.Waiting && strings.Contains(s.State.Why, why)
	})
}

func (y *yard) pid(s run.Status) int {
	y.t.Helper()
	return proctest.Info(y.t, proctest.Value(y.m.Get(y.t.Context(), process.Selector{ID: s.ID}))(y.t)).PID
}

// inside is what a command in a sandbox writes.
func (y *yard) inside(s driver.Sandbox, line string) string {
	y.t.Helper()
	p := proctest.Start(y.t, s.Processes(), process.Spec{Shell: line})
	proctest.WantExit(y.t, p, 0)
	return proctest.Output(y.t, p, process.Stdout)
}

// soFar is what a process has written.
func soFar(t *testing.T, p process.Process) (text string) {
	t.Helper()
	r := proctest.Read(t, p, process.ReadOptions{NoFollow: true})
	defer r.Close()
	for {
		ev, ok, err := r.Next()
		if err != nil || !ok {
			return text
		}
		if ev.Kind == process.EventOutput {
			text += string(ev.Data)
		}
	}
}

// listenHere answers at a port of this machine.
func listenHere(t *testing.T, addr string) (port string) {
	t.Helper()
	l := proctest.Value(net.Listen("tcp", addr))(t)
	srv := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return port
}

// A service, its probes and its hooks have the files, the network, the environment, the
// user and the directory of the sandbox.
func TestAServiceAndItsProbesAndHooksRunInItsSandbox(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	s := y.sandbox("work")
	y.declare(`
  says:
    sandbox: work
    command: echo "$OF|$MINE|$(hostname)|$PWD|$HOME|$(id -u)|$PATH|$(cat /tmp/made)"; exec sleep 1000
    env: {MINE: "1"}
    cwd: /usr
    hooks: {pre_start: "echo by the hook > /tmp/made"}
    health: {exec: "test -e /tmp/made && test $MINE = 1 && test $PWD = /usr"}
  other:
    sandbox: work
    command: [sh, -c, "id -u; id -g; echo is up; exec sleep 1000"]
    user: "1234:1234"
    limits: {files: 77, nice: 3}
    health: {log: is up}
    depends_on: [says]
`)
	says := proctest.Value(y.m.Get(t.Context(), process.Selector{ID: y.ready("says").ID}))(t)
	proctest.Eventually(t, "it has said where it is", func() bool { return strings.Contains(soFar(t, says), "\n") })
	home := strings.TrimSpace(y.inside(s, "echo $HOME"))
	path := strings.TrimSpace(y.inside(s, "echo $PATH"))
	if got, want := soFar(t, says), "the sandbox|1|work|/usr|"+home+"|0|"+path+"|by the hook\n"; got != want {
		t.Errorf("it says %q; want %q", got, want)
	}
	if _, err := os.Stat("/tmp/made"); err == nil {
		t.Error("the hook has written on the machine")
	}
	other := y.ready("other")
	o := proctest.Value(y.m.Get(t.Context(), process.Selector{ID: other.ID}))(t)
	if got := soFar(t, o); got != "1234\n1234\nis up\n" {
		t.Errorf("as another user it says %q", got)
	}
	limits := string(proctest.Value(os.ReadFile("/proc/" + strconv.Itoa(y.pid(other)) + "/limits"))(t))
	if !strings.Contains(strings.Join(strings.Fields(limits), " "), "Max open files 77 77") {
		t.Errorf("its limits are\n%s", limits)
	}
	// The end of the services is not that of the sandbox, and nothing of them stays there.
	proctest.Must(t, y.Stop(t.Context(), "", nil))
	for _, name := range []string{"says", "other"} {
		y.until(name, "idle", func(s run.Status) bool { return s.State.Phase == supervisor.Idle })
	}
	if in := proctest.Value(s.Info(t.Context()))(t); in.State != driver.Ready {
		t.Errorf("the sandbox is %v", in.State)
	}
	for _, in := range proctest.Value(s.Processes().List(t.Context(), process.Filter{}))(t) {
		if in.Exit == nil || !in.TreeGone {
			t.Errorf("%s lives on", in.Spec.Command())
		}
	}
}

// The port that counts is that of the sandbox: what answers at it on the machine, in
// another sandbox or as another program of the same one is not the service.
func TestAPortIsThatOfTheSandbox(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	s := y.sandbox("one")
	y.sandbox("two")
	port := listenHere(t, "127.0.0.1:0")
	at := "env: {" + serveAt + ": '127.0.0.1:" + port + "'}"
	y.declare(`
  inside: {sandbox: one, command: [$SELF], ` + at + `, health: {http: ':` + port + `', interval: 100ms, timeout: 20s}}
  tcp: {sandbox: two, command: [$SELF], ` + at + `, health: {tcp: ` + port + `, interval: 100ms, timeout: 20s}}
`)
	first := y.ready("inside")
	y.ready("tcp")
	// It stops to answer inside; the machine and the other sandbox answer well.
	pid := y.pid(first)
	proctest.Must(t, syscall.Kill(pid, syscall.SIGKILL))
	again := y.until("inside", "restarted", func(s run.Status) bool { return s.State.Ready && s.State.Run == 2 })
	if again.State.Total != 1 || y.pid(again) == pid {
		t.Errorf("after its death: %+v", again.State)
	}
	y.declare(`
  deaf: {sandbox: one, command: exec sleep 1000, health: {http: ':` + port + `', interval: 100ms, timeout: 20s, start: 0}}
`)
	deaf := func(what string) {
		t.Helper()
		y.until("deaf", what, func(s run.Status) bool {
			if s.State.Ready {
				t.Fatalf("it is ready, by what answers elsewhere: %+v", s.State)
			}
			return strings.Contains(why(&s.State), what)
		})
	}
	deaf("nobody listens at [::1]:" + port)
	impostor := proctest.Start(t, s.Processes(), process.Spec{Argv: []string{y.exe}, Env: map[string]string{serveAt: "127.0.0.1:" + port}})
	deaf("the port")
	// And at the other family alone, where the first one is somebody else's.
	y.declare(`
  six: {sandbox: one, command: [$SELF], env: {` + serveAt + `: '[::1]:` + port + `'}, health: {http: 'http://localhost:` + port + `', interval: 100ms, timeout: 20s, start: 0}}
`)
	y.until("six", "told from what listens at 127.0.0.1", func(s run.Status) bool {
		if s.State.Ready {
			t.Fatalf("it is ready, by what answers at 127.0.0.1: %+v", s.State)
		}
		return strings.Contains(why(&s.State), "127.0.0.1:"+port+" answers, but the port")
	})
	proctest.Value(impostor.Kill(t.Context()))(t)
	y.ready("six")
}

// A sandbox that is paused pauses the service: nothing fails, nothing is restarted, also
// by a server that comes while it is so, and afterwards it continues as the same process.
func TestAPausedSandboxPausesTheService(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	s := y.sandbox("nap")
	clock := filepath.Join(t.TempDir(), "clock")
	const strict = "health: {exec: 'true', interval: 50ms, timeout: 10s, failures: 1, retry: 50ms}, restart: {max: 0}, stop: KILL"
	y.declare(`
  web: {sandbox: nap, command: 'echo Bundling; exec sleep 1000', ` + strict + `, log: {pattern: Bundling, quiet: 1s, stuck: report}, pressure: {interval: 100ms}}
  busy: {sandbox: nap, command: [$SELF], env: {` + serveAt + `: '127.0.0.1:80'}, health: {http: ':80', interval: 50ms, timeout: 100ms, failures: 10}, restart: {max: 0}}
  clock: {command: exec sleep 1000, health: {exec: 'echo >> ` + clock + `', interval: 50ms, timeout: 10s}}
`)
	web, busy := y.ready("web"), y.ready("busy")
	pids := [2]int{y.pid(web), y.pid(busy)}
	info := proctest.Value(s.Info(t.Context()))(t)
	ticks := func() int { b, _ := os.ReadFile(clock); return len(b) }
	for _, anew := range []bool{false, true} {
		proctest.Must(t, y.d.Pause(t.Context(), info.ID, driver.PauseSpec{Memory: true}))
		for _, name := range []string{"web", "busy"} {
			st := y.until(name, "paused", func(s run.Status) bool {
				return strings.Contains(why(&s.State), "its sandbox nap is paused; tend sandbox resume nap")
			})
			if st.State.Phase != supervisor.Running || st.State.Ready {
				t.Errorf("%s is %v, ready: %v", name, st.State.Phase, st.State.Ready)
			}
		}
		if anew {
			y.stop()
			y.begin()
		}
		from := ticks()
		proctest.Eventually(t, "many probes were asked elsewhere", func() bool { return ticks() > from+60 })
		proctest.Must(t, y.d.Resume(t.Context(), info.ID))
		for i, name := range []string{"web", "busy"} {
			if st := y.ready(name); st.State.Run != 1 || st.State.Total != 0 || y.pid(st) != pids[i] {
				t.Errorf("%s after the pause, with another server %v: %+v", name, anew, st.State)
			}
		}
	}
	// What is asked for while it is paused is done.
	proctest.Must(t, y.d.Pause(t.Context(), info.ID, driver.PauseSpec{Memory: true}))
	proctest.Must(t, y.Restart(t.Context(), "", []string{"web"}))
	y.waits("web", "is paused")
	proctest.Must(t, y.d.Resume(t.Context(), info.ID))
	if st := y.ready("web"); st.State.Run != 2 || st.State.Total != 0 {
		t.Errorf("after the restart: %+v", st.State)
	}
}

// What ends a sandbox is no failure of the service. It waits, says what to do, and runs
// again when the sandbox does; one that nobody has stopped is started for it.
func TestAServiceWaitsForItsSandbox(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	s := y.sandbox("home")
	y.declare("  web: {sandbox: home, command: exec sleep 1000, restart: {max: 0}, hooks: {pre_start: 'true'}}\n")
	y.ready("web")
	runs := 1
	again := func(after string) {
		t.Helper()
		runs++
		st := y.until("web", "ready after "+after, func(s run.Status) bool { return s.State.Ready && s.State.Away == "" && s.State.Run >= int64(runs) })
		if st.State.Total != 0 {
			t.Errorf("after %s: %+v", after, st.State)
		}
		runs = int(st.State.Run)
	}
	proctest.Must(t, s.Stop(t.Context()))
	y.waits("web", "its sandbox home is stopped; tend sandbox start home")
	proctest.Must(t, s.Start(t.Context()))
	again("a stop")
	in := proctest.Value(s.Info(t.Context()))(t)
	proctest.Must(t, y.d.Pause(t.Context(), in.ID, driver.PauseSpec{}))
	y.waits("web", "is paused")
	y.stop()
	y.begin()
	y.waits("web", "is paused")
	proctest.Must(t, y.d.Resume(t.Context(), in.ID))
	again("a pause without its memory")
	proctest.Must(t, s.Destroy(t.Context()))
	y.waits("web", "its sandbox home is not there any more; tend sandbox create home")
	s = y.sandbox("home")
	again("another one was made")
	// What ends its first process ends all of it.
	sandboxes := proctest.Value(y.m.Containers().List(t.Context()))(t)
	if len(sandboxes) != 1 {
		t.Fatalf("there are %+v", sandboxes)
	}
	proctest.Must(t, syscall.Kill(sandboxes[0].PID, syscall.SIGKILL))
	y.until("web", "restarted in a sandbox that was started again", func(s run.Status) bool { return s.State.Ready && s.State.Run > int64(runs) && s.State.Away == "" })
	if in := proctest.Value(s.Info(t.Context()))(t); in.State != driver.Ready {
		t.Errorf("the sandbox is %v", in.State)
	}
	// A service that nobody wants wakes nothing.
	proctest.Must(t, y.Stop(t.Context(), "", nil))
	y.until("web", "idle", func(s run.Status) bool { return s.State.Phase == supervisor.Idle })
}

func TestASandboxThatThereIsNotIsRefused(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.sandbox("there")
	y.declare("  web: {sandbox: there, command: exec sleep 1000}\n")
	id := y.ready("web").ID
	err := y.Apply(t.Context(), fileOf("/", "services: {web: {sandbox: ther, command: x}}", nil))
	if invalid, ok := errors.AsType[*process.InvalidError](err); !ok || invalid.Field != "services.web.sandbox" || !strings.Contains(err.Error(), "tend sandbox create ther ") {
		t.Errorf("got %v", err)
	}
	if st := y.ready("web"); st.ID != id {
		t.Errorf("what was refused has changed something: %+v", st.State)
	}
	// Out of the sandbox it is another process.
	y.declare("  web: {command: exec sleep 1000}\n")
	st := y.until("web", "outside", func(s run.Status) bool { return s.State.Ready && s.ID != id })
	ours, its := proctest.Value(os.Readlink("/proc/self/ns/mnt"))(t), proctest.Value(os.Readlink("/proc/"+strconv.Itoa(y.pid(st))+"/ns/mnt"))(t)
	if ours != its {
		t.Error("it is in a sandbox still")
	}
}

// What is looked at from outside, and a log, mean the same in a sandbox.
func TestPressureAndAStuckLogAreSeenInASandbox(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.sandbox("small")
	y.declare(`
  files: {sandbox: small, command: 'for i in 3 4 5 6 7 8; do eval "exec $i</dev/null"; done; exec sleep 1000', limits: {files: 12}, pressure: {descriptors: 0.5, interval: 100ms, restart: true}, restart: {max: 1, retry: 0}}
  stuck: {sandbox: small, command: 'echo Bundling; exec sleep 1000', log: {pattern: Bundling, quiet: 200ms}, restart: {max: 1, retry: 0}}
`)
	for name, want := range map[string]string{"files": "descriptors are short", "stuck": "its log is stuck"} {
		y.until(name, "failed, "+want, func(s run.Status) bool {
			return s.State.Phase == supervisor.Failed && strings.Contains(s.State.Why, want)
		})
	}
}
