package probe_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/service/probe"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// role makes the test binary a service.
const role = "PROBE_TEST_LISTEN"

func TestMain(m *testing.M) {
	if addr := os.Getenv(role); addr != "" {
		serve(addr)
		return
	}
	goleak.VerifyTestMain(m)
}

// serve answers HTTP, and prints its port. In a network of its own it brings lo up first.
func serve(addr string) {
	if fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0); err == nil {
		if r, err := unix.NewIfreq("lo"); err == nil {
			r.SetUint16(unix.IFF_UP)
			_ = unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r) // it is up, or not ours
		}
		unix.Close(fd)
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("port", l.Addr().(*net.TCPAddr).Port)
	_ = http.Serve(l, handler())
}

func handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/health", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "all is well ", r.Header.Get("X-Who")) })
	mux.HandleFunc("/bad", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	mux.HandleFunc("/away", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/health", http.StatusFound) })
	mux.HandleFunc("/hang", func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.HandleFunc("/flood", func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				return
			}
		}
	})
	return mux
}

// service starts a shell line in which $SERVE is the service, and returns its port.
func service(t *testing.T, m process.Manager, line, listen string) (*probe.Target, int) {
	t.Helper()
	exe := proctest.Value(os.Executable())(t)
	p := proctest.Start(t, m, process.Spec{Shell: line, Dir: "/", Env: map[string]string{"SERVE": exe, role: listen}})
	res := proctest.Wait(t, p, process.Until{Match: `port \d+`})
	if !res.Met {
		t.Fatalf("the service does not serve: %+v", res)
	}
	port := proctest.Value(strconv.Atoi(strings.TrimPrefix(res.Match, "port ")))(t)
	return &probe.Target{Process: p, Leader: proctest.Info(t, p).PID, Manager: m, Spec: process.Spec{Dir: "/"}}, port
}

// rule reads a probe as a file has it; PORT stands for the port.
func rule(t *testing.T, text string, port int) *config.Probe {
	t.Helper()
	text = strings.ReplaceAll(text, "PORT", strconv.Itoa(port))
	if !strings.Contains(text, "timeout") {
		text += ", timeout: 30s"
	}
	return proctest.Value(config.Parse("x", []byte("services: {web: {command: x, readiness: {"+text+"}}}")))(t).Services["web"].Readiness
}

// want asks, and compares: "" is a success.
func want(t *testing.T, target *probe.Target, r *config.Probe, text string) {
	t.Helper()
	a := probe.Ask(t.Context(), r, target)
	if a.OK != (text == "") || !strings.Contains(a.Text, text) {
		t.Errorf("%+v gives %+v; want %q", r, a, text)
	}
}

func TestAServiceIsAskedByHTTPAndTCP(t *testing.T) {
	target, port := service(t, testkeeper.New(t), "exec $SERVE", "127.0.0.1:0")
	for text, failure := range map[string]string{
		"http: ':PORT/health'":  "",
		"tcp: PORT":             "",
		"tcp: '127.0.0.1:PORT'": "",
		"http: {url: ':PORT/health', body: '^all is well me$', headers: {X-Who: me}}": "",
		"http: {url: ':PORT/health', body: nothing}":                                  "does not match",
		"http: {url: ':PORT/bad', status: [503]}":                                     "",
		"http: ':PORT/bad'":                   "status 503",
		"http: ':PORT/away'":                  "status 302",
		"http: ':PORT/flood'":                 "",
		"http: {url: ':PORT/flood', body: x}": "does not match",
		"http: ':PORT/hang', timeout: 100ms":  "no answer within 100ms",
		"http: 'http://[::1]:PORT/health'":    "nobody listens",
	} {
		want(t, target, rule(t, text, port), failure)
	}
}

func TestADescendantThatAnswersIsTheService(t *testing.T) {
	target, port := service(t, testkeeper.New(t), "(cd /; $SERVE; true) & wait", "0.0.0.0:0")
	want(t, target, rule(t, "http: ':PORT/health'", port), "")
	want(t, target, rule(t, "tcp: PORT", port), "")
}

// An orphan of an earlier run, or any other program, answers on the port while the
// service itself is deaf.
func TestAnImpostorIsNoHealth(t *testing.T) {
	m := testkeeper.New(t)
	orphan, port := service(t, m, "exec $SERVE", "127.0.0.1:0")
	deaf := proctest.Start(t, m, process.Spec{Shell: "exec sleep 1000", Dir: "/"})
	target := &probe.Target{Process: deaf, Leader: proctest.Info(t, deaf).PID}
	for _, text := range []string{"http: ':PORT/health'", "tcp: PORT"} {
		want(t, target, rule(t, text, port), fmt.Sprintf("belongs to another process: probe.test (pid %d)", orphan.Leader))
		want(t, target, rule(t, text+", anyone: true", port), "")
	}
	proctest.Kill(t, deaf)
	want(t, target, rule(t, "tcp: PORT", port), "no process is left")
}

func TestAServiceInANetworkOfItsOwnIsAskedThere(t *testing.T) {
	proctest.Root(t)
	m := testkeeper.New(t)
	target, port := service(t, m, "exec unshare --net $SERVE", "127.0.0.1:0")
	// One of the machine answers on the same port: it is another network.
	impostor := &http.Server{Handler: handler()}
	l := proctest.Value(net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)))(t)
	served := make(chan struct{})
	go func() { defer close(served); _ = impostor.Serve(l) }()
	defer func() { impostor.Close(); <-served }()
	want(t, target, rule(t, "http: ':PORT/health'", port), "the service has one of its own")
	target.Dial = func(ctx context.Context, network, address string) (c net.Conn, err error) {
		// The thread comes back: the end of the one that started the roles would end them.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		own, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		defer unix.Close(own)
		its, err := unix.Open(fmt.Sprintf("/proc/%d/ns/net", target.Leader), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		defer unix.Close(its)
		if err := unix.Setns(its, unix.CLONE_NEWNET); err != nil {
			return nil, err
		}
		c, err = (&net.Dialer{}).DialContext(ctx, network, address)
		if serr := unix.Setns(own, unix.CLONE_NEWNET); serr != nil {
			panic(serr) // nothing may run on this thread any more
		}
		return c, err
	}
	want(t, target, rule(t, "http: ':PORT/health'", port), "")
	want(t, target, rule(t, "tcp: PORT", port), "")
}

func TestACommandIsAskedAndLeavesNothing(t *testing.T) {
	m := testkeeper.New(t)
	p := proctest.Start(t, m, process.Spec{Shell: "exec sleep 1000", Dir: "/"})
	target := &probe.Target{Process: p, Manager: m, Spec: process.Spec{Dir: "/", Env: map[string]string{"ANSWER": "42"}}}
	want(t, target, rule(t, `exec: 'test "$ANSWER" = 42'`, 0), "")
	want(t, target, rule(t, `exec: [sh, -c, 'echo one; echo the db is away >&2; exit 3']`, 0), "exit status 3: the db is away")
	want(t, target, rule(t, `exec: [no-such-program]`, 0), "no-such-program")
	want(t, target, rule(t, `exec: 'sleep 1000 & sleep 1000', timeout: 200ms`, 0), "no answer within 200ms")
	left := proctest.Value(m.List(t.Context(), process.Filter{}))(t)
	if len(left) != 1 {
		t.Errorf("%d processes are left: %+v", len(left), left)
	}
}

// replaced is a manager whose keeper is just being replaced when a process is to be killed,
// so many times.
type replaced struct {
	process.Manager
	kills atomic.Int64
}

func (m *replaced) Start(ctx context.Context, s process.Spec) (process.Process, error) {
	p, err := m.Manager.Start(ctx, s)
	return replacedProcess{p, m}, err
}

type replacedProcess struct {
	process.Process
	m *replaced
}

func (p replacedProcess) Kill(ctx context.Context) (process.KillResult, error) {
	if p.m.kills.Add(-1) >= 0 {
		return process.KillResult{}, process.ErrUnavailable
	}
	return p.Process.Kill(ctx)
}

func TestACommandLeavesNothingThoughAKeeperDiesMeanwhile(t *testing.T) {
	m := &replaced{Manager: testkeeper.New(t)}
	m.kills.Store(1)
	p := proctest.Start(t, m.Manager, process.Spec{Shell: "exec sleep 1000", Dir: "/"})
	want(t, &probe.Target{Process: p, Manager: m, Spec: process.Spec{Dir: "/"}}, rule(t, `exec: 'sleep 1000 & exit 0'`, 0), "")
	if left := proctest.Value(m.List(t.Context(), process.Filter{}))(t); len(left) != 1 || m.kills.Load() >= 0 {
		t.Errorf("%d processes are left: %+v", len(left), left)
	}
}

func TestALineIsWaitedFor(t *testing.T) {
	m := testkeeper.New(t)
	p := proctest.Start(t, m, process.Spec{Shell: "echo starting; echo listening on 80; exec sleep 1000", Dir: "/"})
	if ok, err := probe.Line(t.Context(), p, "listening on [0-9]+"); !ok || err != nil {
		t.Errorf("got %v, %v", ok, err)
	}
	p = proctest.Start(t, m, process.Spec{Shell: "echo nothing", Dir: "/"})
	if ok, err := probe.Line(t.Context(), p, "listening"); ok || err != nil {
		t.Errorf("got %v, %v of a process that has ended", ok, err)
	}
}

func TestAnAnswerAfterAStandstillIsInDoubt(t *testing.T) {
	m := testkeeper.New(t)
	p := proctest.Start(t, m, process.Spec{Shell: "exec sleep 1000", Dir: "/"})
	target := &probe.Target{Process: p, Leader: proctest.Info(t, p).PID, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		time.Sleep(400 * time.Millisecond) // the prober has no time
		return nil, ctx.Err()
	}}
	if a := probe.Ask(t.Context(), rule(t, "tcp: 80, timeout: 50ms", 0), target); a.OK || !a.Doubt {
		t.Errorf("got %+v", a)
	}
}
