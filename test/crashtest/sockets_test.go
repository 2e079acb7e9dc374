//go:build linux

package crashtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testdaemon"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// socketRole makes the test binary a service that is given its sockets.
const socketRole = "CRASHTEST_SOCKETS"

// serveSockets answers each line with the pid and the name of the socket, and ends at
// SIGTERM when it has answered all that it has accepted. It never returns.
func serveSockets() {
	names := strings.Split(os.Getenv("LISTEN_FDNAMES"), ":")
	if os.Getenv("LISTEN_PID") != strconv.Itoa(os.Getpid()) || os.Getenv("LISTEN_FDS") != strconv.Itoa(len(names)) {
		fmt.Println("not as sd_listen_fds(3) says:", os.Environ())
		os.Exit(3)
	}
	if fd, err := syscall.Dup(3 + len(names)); err == nil {
		fmt.Println("there is one descriptor more:", fd)
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM) // before anything is accepted
	var all sync.WaitGroup
	var listeners []net.Listener
	for i, name := range names {
		l, err := net.FileListener(os.NewFile(uintptr(3+i), name))
		if err != nil {
			fmt.Println(err)
			os.Exit(3)
		}
		listeners = append(listeners, l)
		all.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				all.Go(func() {
					defer c.Close()
					if _, err := bufio.NewReader(c).ReadString('\n'); err == nil {
						fmt.Fprintf(c, "%d %s\n", os.Getpid(), name)
					}
				})
			}
		})
	}
	<-ended
	for _, l := range listeners {
		l.Close()
	}
	all.Wait()
	os.Exit(0)
}

// called asks a service who it is.
func called(network, addr string) (who string, err error) {
	c, err := net.DialTimeout(network, addr, time.Minute)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return "", err
	}
	if _, err := c.Write([]byte("who\n")); err != nil {
		return "", err
	}
	b, err := io.ReadAll(c)
	if err == nil && len(b) == 0 {
		err = errors.New("the connection has ended without an answer")
	}
	return strings.TrimSpace(string(b)), err
}

// callers call a service without a pause until they are stopped, and count.
type callers struct {
	calls atomic.Int64
	mu    sync.Mutex
	errs  []error         // guarded by mu
	pids  map[string]bool // guarded by mu
	stop  func()
}

func callAll(t *testing.T, targets ...[2]string) *callers {
	c := &callers{pids: map[string]bool{}}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for _, to := range targets {
		all.Go(func() {
			for ctx.Err() == nil {
				who, err := called(to[0], to[1])
				c.calls.Add(1)
				c.mu.Lock()
				if err != nil {
					c.errs = append(c.errs, err)
				}
				pid, _, _ := strings.Cut(who, " ")
				c.pids[pid] = true
				c.mu.Unlock()
			}
		})
	}
	c.stop = sync.OnceFunc(func() { cancel(); all.Wait() })
	t.Cleanup(c.stop)
	return c
}

// more waits until callers have been answered some more times.
func (c *callers) more(t *testing.T) {
	t.Helper()
	until := c.calls.Load() + 20
	proctest.Eventually(t, "calls are answered", func() bool { return c.calls.Load() >= until })
}

func freeAddress(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", proctest.FreePort(t))
}

// holderOf is the process that holds the sockets of a service; nil: there is none.
func holderOf(t *testing.T, c *tend.Client, service string) *process.Info {
	t.Helper()
	for _, in := range proctest.Value(c.List(t.Context(), process.Filter{Live: true}))(t) {
		if in.Spec.Name == service+".sockets" {
			return &in
		}
	}
	return nil
}

// Nobody who connects to a service with sockets is refused or reset, however often it is
// restarted, and whatever role dies meanwhile: what connects waits for the next run.
func TestRestartsRefuseNobodyWhereSocketsAreHeld(t *testing.T) {
	t.Parallel()
	d := serve(t)
	c, dir := d.Connect(t), t.TempDir()
	addr, path := freeAddress(t), filepath.Join(dir, "s")
	text := func(more string) string {
		return fmt.Sprintf("  web: {command: [%s], env: {%s: '1'%s}, sockets: {http: '%s', local: 'unix:s'}, health: {tcp: '%s', interval: 200ms, timeout: 30s}}\n", self, socketRole, more, addr, addr)
	}
	declare(t, c, dir, text(""))
	shown := service(t, c, "web", "ready", isReady)
	if want := []tend.ServiceSocket{{Name: "http", Address: addr}, {Name: "local", Address: "unix:" + path}}; !slices.Equal(shown.Sockets, want) {
		t.Errorf("its sockets are %v; want %v", shown.Sockets, want)
	}
	who := proctest.Value(called("unix", path))(t)
	holder := holderOf(t, c, "web")
	if holder == nil || !strings.HasSuffix(who, " local") {
		t.Fatalf("the holder is %v, and %q answers", holder, who)
	}
	calls := callAll(t, [2]string{"tcp", addr}, [2]string{"tcp", addr}, [2]string{"unix", path})
	runs := int64(1)
	next := func(what string) {
		t.Helper()
		runs++
		service(t, d.Connect(t), "web", "ready after "+what, func(s tend.Service) bool { return s.Runs == runs && isReady(s) })
		calls.more(t)
	}
	for range 5 {
		calls.more(t)
		proctest.Must(t, c.RestartServices(t.Context(), "web"))
		next("a restart")
	}
	for _, roles := range [][]string{{testdaemon.Server}, {testdaemon.Keeper}, {testdaemon.Server, testdaemon.Keeper, testdaemon.Anchor}} {
		proctest.Must(t, d.Connect(t).RestartServices(t.Context(), "web"))
		for _, role := range roles { // in the midst of it
			if pid := d.Roles()[role]; pid > 0 {
				proctest.Must(t, syscall.Kill(pid, syscall.SIGKILL))
			}
		}
		if !d.Settle(t.Context()) {
			t.Fatalf("not all roles came back: %v", d.Roles())
		}
		next(fmt.Sprint("a restart and the death of ", roles))
	}
	proctest.Must(t, d.Upgrade(t.Context(), tend.Upgrade{}))
	calls.more(t)
	declare(t, d.Connect(t), dir, text(", CHANGED: '1'"))
	next("a change")
	calls.stop()
	for _, err := range calls.errs {
		t.Errorf("of %d calls: %v", calls.calls.Load(), err)
	}
	if len(calls.pids) < int(runs)-1 {
		t.Errorf("%d runs, and %d of them have answered", runs, len(calls.pids))
	}
	if now := holderOf(t, d.Connect(t), "web"); now == nil || now.PID != holder.PID {
		t.Errorf("the holder was %d, and is %v", holder.PID, now)
	}
	t.Logf("%d calls, %d runs", calls.calls.Load(), runs)
}
