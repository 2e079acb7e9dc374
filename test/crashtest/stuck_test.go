//go:build linux

package crashtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testdaemon"
)

// own is a daemon as a user has it, by its state directory alone.
type own struct {
	t   *testing.T
	dir string
}

func ownDaemon(t *testing.T) *own {
	t.Helper()
	dir, err := os.MkdirTemp("", "tend-own-") // short: a socket is in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return &own{t: t, dir: dir}
}

// tend runs one command and returns its output and status. The command must end
// within a minute.
func (o *own) tend(args ...string) (said string, status int) {
	o.t.Helper()
	ctx, cancel := context.WithTimeout(o.t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, append([]string{"--state-dir", o.dir}, args...)...)
	cmd.Env = append(os.Environ(), "TEND_URL=", "TEND_STATE_DIR=")
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		o.t.Errorf("tend %s does not end; it says %q", strings.Join(args, " "), out)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		o.t.Error(err)
		return err.Error(), -1
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// holder is the pid of a role; 0: there is none.
func (o *own) holder(role string) int { return testdaemon.Holders(o.dir)[role] }

// ready asks the readiness probe over the daemon's socket.
func (o *own) ready() (status int, said string) {
	c := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", filepath.Join(o.dir, "tend.sock"))
	}}, Timeout: 30 * time.Second}
	defer c.CloseIdleConnections()
	resp, err := c.Get("http://tend/-/readyz")
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(b)
}

// If a role of a daemon stands still, each command ends within seconds, and its
// error names the role.
func TestCommandsEndWhenARoleStandsStill(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		role string
		fail []string // the commands that cannot do their work
	}{
		{"keeper", []string{"run true", "kill sleeper", "signal sleeper HUP"}},
		{"server", []string{"ps", "status", "run true", "kill sleeper", "logs sleeper", "wait sleeper", "attach sleeper", "events"}},
		{"anchor", []string{"status"}},
	} {
		t.Run(c.role, func(t *testing.T) {
			t.Parallel()
			o := ownDaemon(t)
			if out, status := o.tend("run", "--detach", "--name", "sleeper", "sleep", "1000"); status != 0 {
				t.Fatalf("%d: %s", status, out)
			}
			pid := o.holder(c.role)
			if pid == 0 {
				t.Fatalf("nobody is the %s", c.role)
			}
			proctest.Must(t, syscall.Kill(pid, syscall.SIGSTOP))
			defer syscall.Kill(pid, syscall.SIGCONT)
			// A signal is delivered when its process is next on a processor.
			proctest.Eventually(t, "the "+c.role+" stands still", func() bool {
				s, ok := procfs.ReadStat(pid)
				return ok && s.Stopped()
			})
			var wg sync.WaitGroup
			for _, line := range c.fail {
				wg.Go(func() {
					out, status := o.tend(strings.Fields(line)...)
					if status == 0 || !strings.Contains(out, "the "+c.role+" (pid") || !strings.Contains(out, "is stopped") {
						t.Errorf("tend %s: status %d, %q; want that the %s is stopped", line, status, out, c.role)
					}
				})
			}
			wg.Wait()
			if c.role == "keeper" {
				if out, status := o.tend("status"); status != 0 || !strings.Contains(out, "the keeper (pid") {
					t.Errorf("tend status: status %d, %q", status, out)
				}
				if out, status := o.tend("ps"); status != 0 || !strings.Contains(out, "sleeper") {
					t.Errorf("tend ps: status %d, %q", status, out)
				}
				if status, said := o.ready(); status != http.StatusServiceUnavailable || !strings.Contains(said, "keeper") {
					t.Errorf("readyz: %d %q; want 503", status, said)
				}
			}
			if out, status := o.tend("shutdown"); status != 0 {
				t.Errorf("tend shutdown: status %d, %q", status, out)
			}
			for _, role := range []string{"anchor", "keeper", "server"} {
				if pid := o.holder(role); pid != 0 {
					t.Errorf("the %s (pid %d) outlives the shutdown", role, pid)
					syscall.Kill(pid, syscall.SIGKILL)
				}
			}
		})
	}
}

// The anchor has died, and its launcher does not start another one yet: a daemon runs,
// and says that this role is not there. A shutdown waits for the next anchor.
func TestADaemonBetweenTwoAnchorsRuns(t *testing.T) {
	t.Parallel()
	o := ownDaemon(t)
	if out, status := o.tend("run", "--detach", "--name", "sleeper", "sleep", "1000"); status != 0 {
		t.Fatalf("%d: %s", status, out)
	}
	anchor := o.holder("anchor")
	s, ok := procfs.ReadStat(anchor)
	if !ok {
		t.Fatal("nobody is the anchor")
	}
	proctest.Must(t, syscall.Kill(s.PPID, syscall.SIGSTOP))
	goOn := sync.OnceFunc(func() { syscall.Kill(s.PPID, syscall.SIGCONT) })
	defer goOn()
	proctest.Must(t, syscall.Kill(anchor, syscall.SIGKILL))
	proctest.Eventually(t, "the anchor has died", func() bool { return o.holder("anchor") == 0 })
	if out, status := o.tend("status"); status != 0 || !strings.Contains(out, "not there") || !strings.Contains(out, "1 running") {
		t.Errorf("tend status: status %d, %q; want what is so", status, out)
	}
	ended := make(chan string, 1)
	go func() {
		out, status := o.tend("shutdown")
		ended <- fmt.Sprintf("%d %s", status, out)
	}()
	time.Sleep(300 * time.Millisecond) // it has asked; if not, the test proves less
	goOn()
	if said := <-ended; !strings.HasPrefix(said, "0 ") {
		t.Errorf("tend shutdown: %s", said)
	}
	for _, role := range []string{"anchor", "keeper", "server"} {
		if pid := o.holder(role); pid != 0 {
			t.Errorf("the %s (pid %d) outlives the shutdown", role, pid)
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// A role that cannot start says so, and why, within some seconds, instead of being
// started again and again.
func TestARoleThatCannotStartSaysSo(t *testing.T) {
	t.Parallel()
	o := ownDaemon(t)
	proctest.Must(t, os.WriteFile(filepath.Join(o.dir, "spool"), []byte("no directory"), 0o600))
	out, status := o.tend("run", "true")
	if status == 0 || !strings.Contains(out, "cannot start") || !strings.Contains(out, "not a directory") {
		t.Errorf("tend run: status %d, %q", status, out)
	}
	out, status = o.tend("status")
	if status == 0 || !strings.Contains(out, "cannot start") || !strings.Contains(out, "not a directory") {
		t.Errorf("tend status: status %d, %q", status, out)
	}
	log, err := os.ReadFile(filepath.Join(o.dir, "daemon.log"))
	if err != nil {
		t.Error(err)
	}
	if !bytes.Contains(log, []byte("the keeper cannot start (5 times in a row; exit status 1)")) {
		t.Errorf("its log does not say so:\n%s", log)
	}
	if out, status := o.tend("shutdown"); status != 0 || o.holder("anchor") != 0 {
		t.Errorf("tend shutdown: status %d, %q", status, out)
	}
	if out, status := o.tend("run", "true"); status == 0 {
		t.Errorf("tend run: %q", out)
	}
	proctest.Must(t, os.Remove(filepath.Join(o.dir, "spool")))
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(200 * time.Millisecond) { // the daemon still tries
		if _, status := o.tend("run", "true"); status == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the cause is gone, and no process can be started")
		}
	}
	if out, status := o.tend("shutdown"); status != 0 {
		t.Errorf("tend shutdown: status %d, %q", status, out)
	}
}
