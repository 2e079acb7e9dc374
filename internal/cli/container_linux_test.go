//go:build linux

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/internal/support/proctest"
)

// container is a pid namespace of its own, whose first process is tend up. It ends with it.
type playedContainer struct {
	t    *testing.T
	cmd  *exec.Cmd
	init int // the pid of its first process, as we see it

	mu  sync.Mutex
	out bytes.Buffer // guarded by mu
}

func (c *playedContainer) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.Write(b)
}

func (c *playedContainer) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.String()
}

// says waits for a text of the whole output.
func (c *playedContainer) says(text string) {
	c.t.Helper()
	for end := time.Now().Add(time.Minute); !strings.Contains(c.text(), text); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("it does not say %q:\n%s", text, c.text())
		}
	}
}

func contain(t *testing.T, dir string, port int) *playedContainer {
	t.Helper()
	c := &playedContainer{t: t}
	c.cmd = exec.CommandContext(t.Context(), "unshare", "--pid", "--fork", "--kill-child", "--mount-proc", filepath.Join(binaries, "tend"), "--state-dir", filepath.Join(dir, "state"), "up", "--config", "ecosystem.config.cjs")
	c.cmd.Dir, c.cmd.Stdout, c.cmd.Stderr, c.cmd.WaitDelay = dir, c, c, time.Minute
	c.cmd.Env = append(os.Environ(), fmt.Sprintf("PORT=%d", port))
	proctest.Must(t, c.cmd.Start())
	t.Cleanup(func() { c.cmd.Process.Kill() })
	proctest.Eventually(t, "it has a first process", func() bool {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", c.cmd.Process.Pid))
		c.init, _ = strconv.Atoi(strings.TrimSpace(string(b)))
		return c.init > 0
	})
	return c
}

// running are the command lines of its processes; that of a zombie is "zombie".
func (c *playedContainer) running() map[int]string {
	c.t.Helper()
	space := func(pid int) string {
		at, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
		return at
	}
	own, found := space(c.init), map[int]string{}
	for _, e := range proctest.Value(os.ReadDir("/proc"))(c.t) {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || space(pid) != own {
			continue
		}
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		stat, ok := procfs.ReadStat(pid)
		switch {
		case ok && stat.Dead():
			found[pid] = "zombie"
		case ok:
			found[pid] = strings.ReplaceAll(string(line), "\x00", " ")
		}
	}
	return found
}

// pids are those of the processes whose command lines match.
func (c *playedContainer) pids(pattern string) (pids []int) {
	c.t.Helper()
	for pid, line := range c.running() {
		if regexp.MustCompile(pattern).MatchString(line) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// end sends a signal to the first process, and returns the status of the container.
func (c *playedContainer) end(signal syscall.Signal) int {
	c.t.Helper()
	proctest.Must(c.t, syscall.Kill(c.init, signal))
	err := c.cmd.Wait()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		c.t.Fatal(err)
	}
	return c.cmd.ProcessState.ExitCode()
}

var startedAs = regexp.MustCompile(`I am (\d+)`)

// tend up is fit to be the first process of a container, with the seed's shape of a file of
// pm2 and real Node.js servers: nothing of the container stays a zombie, whichever role of tend is
// killed; the signal of a stop ends the servers by their own; and a container that was killed
// starts again on the same directory as if nothing had been.
func TestUpIsTheFirstProcessOfAContainer(t *testing.T) {
	t.Parallel()
	proctest.Root(t)
	dir := t.TempDir()
	port := proctest.FreePort(t)
	for name, text := range map[string]string{
		"ecosystem.config.cjs": `module.exports = { apps: [
  { name: 'shmastra', script: 'server.js', max_restarts: 1, min_uptime: 10000, restart_delay: 2000, env: { PORT: process.env.PORT } },
  { name: 'healer', script: 'healer.js', autorestart: true },
] };`,
		"server.js": `process.on('SIGINT', () => { console.log('good', 'bye'); process.exit(0); });
require('http').createServer((q, s) => s.end('ok')).listen(+process.env.PORT, '127.0.0.1', () => console.log('I am', process.pid));`,
		"healer.js": `console.log('healer', 'on'); setInterval(() => {}, 1000);`,
	} {
		proctest.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	up := func() *playedContainer {
		c := contain(t, dir, port)
		c.says("shmastra is ready")
		c.says("healer | healer on")
		c.says("shmastra | I am ")
		return c
	}
	c := up()
	first := startedAs.FindString(c.text())
	// Its own child dies, and one that it gets by the death of a parent.
	roles := c.pids(`^tend-keeper launcher `)
	if len(roles) != 1 {
		t.Fatalf("it runs %v", c.running())
	}
	proctest.Must(t, syscall.Kill(roles[0], syscall.SIGKILL))
	proctest.Must(t, exec.CommandContext(t.Context(), "nsenter", "--target", strconv.Itoa(c.init), "--pid", "sh", "-c", "sh -c 'exec sleep 0.2' & exit 0").Run())
	proctest.Eventually(t, "they are collected", func() bool { return len(c.pids("^(zombie|sleep .*)$")) == 0 && !slices.Contains(c.pids(""), roles[0]) })
	if again := startedAs.FindAllString(c.text(), -1); len(again) != 1 {
		t.Errorf("it was started as %v", again)
	}
	// docker kill, and docker start.
	if status := c.end(syscall.SIGKILL); status == 0 {
		t.Errorf("it has ended with %d after %s", status, first)
	}
	c = up()
	if n := len(c.pids(`^node .*server\.js`)); n != 1 {
		t.Errorf("the server runs %d times", n)
	}
	// docker stop.
	if status := c.end(syscall.SIGTERM); status != 0 || !strings.Contains(c.text(), "shmastra | good bye") {
		t.Errorf("it has ended with %d:\n%s", status, c.text())
	}
}
