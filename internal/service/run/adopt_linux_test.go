package run_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/service/run"
	"github.com/tend-run/tend/internal/service/supervisor"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// byHand starts a server as somebody at a shell does, who leaves then: tend is not above it.
// It is of the test's session. All that it leaves ends with the test.
func byHand(t *testing.T, port int) (pid int) {
	t.Helper()
	mark := "RUN_TEST_MARK=" + rand.Text()
	t.Cleanup(func() {
		proctest.Eventually(t, "nothing is left", func() bool {
			found := false
			for _, pid := range proctest.Value(procfs.PIDs())(t) {
				if env, err := procfs.Read(pid, "environ"); err == nil && bytes.Contains(env, []byte(mark)) {
					found = syscall.Kill(pid, syscall.SIGKILL) == nil || found
				}
			}
			return !found
		})
	})
	cmd := exec.Command("/bin/sh", "-c", "\"$1\" >/dev/null 2>&1 & echo $!", "sh", proctest.Value(os.Executable())(t))
	cmd.Env = append(os.Environ(), mark, fmt.Sprintf("%s=127.0.0.1:%d", role, port))
	return proctest.Value(strconv.Atoi(strings.TrimSpace(string(proctest.Value(cmd.Output())(t)))))(t)
}

func alive(pid int) bool {
	s, ok := procfs.ReadStat(pid)
	return ok && !s.Dead()
}

// answers reports whether somebody listens on a port.
func answers(port int) bool {
	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err == nil {
		c.Close()
	}
	return err == nil
}

// noted is a pid file.
func noted(t *testing.T, pid int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "web.pid")
	proctest.Must(t, os.WriteFile(path, []byte(fmt.Sprintln(pid)), 0o600))
	return path
}

// A process that somebody has started is the service: it is asked how it is, it outlives the
// supervisor, and once it has ended tend starts its own.
func TestAServerThatRunsIsAdopted(t *testing.T) {
	m, dir, port := testkeeper.New(t), t.TempDir(), proctest.FreePort(t)
	pid := byHand(t, port)
	services := fmt.Sprintf("  web: {command: [$SERVE], env: {%s: '127.0.0.1:%d'}, adopt: {pid_file: %s}, health: {http: ':%[2]d/', timeout: 20s, interval: 200ms}}\n", role, port, noted(t, pid))
	l := live(t, m, dir)
	l.declare(services)
	l.up()
	s := l.ready("web")
	if s.State.Adopted == nil || s.State.Adopted.PID != pid || s.ID != "" || s.State.Run != 1 {
		t.Fatalf("it is %+v, %q", s.State, s.ID)
	}
	nothingLives(t, m) // of tend's own
	// Whoever looks after it dies, and another continues.
	for range 2 {
		l.stop()
		l = live(t, m, dir)
		if s := l.ready("web"); s.State.Run != 1 || s.State.Adopted == nil || s.State.Adopted.PID != pid || !alive(pid) {
			t.Fatalf("after the supervisor's death it is %+v", s.State)
		}
	}
	l.declare(services) // and nothing is new
	l.up()
	proctest.Must(t, syscall.Kill(pid, syscall.SIGKILL))
	s = l.until("web", "tend's own", func(s supervisor.State) bool { return s.Run == 2 && s.Ready })
	if s.State.Adopted != nil || pidOf(t, m, s) == pid || s.State.Exit == nil || s.State.Exit.Cause != process.CauseLost || s.State.Exit.Signal != 0 {
		t.Errorf("after its end it is %+v, and ended as %+v", s.State, s.State.Exit)
	}
	if !l.noticed("web exit") {
		t.Error("its end was not noticed")
	}
	l.end(m, "web")
}

// By its port, and its end while nobody looks is found.
func TestAServerIsAdoptedByItsPortAndEndedAsOthers(t *testing.T) {
	m, dir, port := testkeeper.New(t), t.TempDir(), proctest.FreePort(t)
	pid := byHand(t, port)
	services := fmt.Sprintf("  web: {command: [$SERVE], env: {%s: '127.0.0.1:%d'}, adopt: {port: %[2]d}}\n  twin: {command: exec sleep 1000, adopt: {port: %[2]d}, depends_on: [web], restart: never}\n", role, port)
	proctest.Eventually(t, "it listens", func() bool { return answers(port) })
	l := live(t, m, dir)
	l.declare(services)
	l.up()
	if s := l.ready("web"); s.State.Adopted == nil || s.State.Adopted.PID != pid {
		t.Fatalf("it is %+v", s.State)
	}
	// Of two services for one process the first one has it.
	if s := l.phase("twin", supervisor.Failed); !strings.Contains(s.State.Why, "is the service web already") {
		t.Errorf("the second one says %q", s.State.Why)
	}
	l.down()
	l.phase("web", supervisor.Idle)
	if alive(pid) {
		t.Error("it lives on")
	}
	// Now there is none, and tend starts its own.
	l.up("web")
	s := l.ready("web")
	if s.State.Adopted != nil || s.State.Run != 2 {
		t.Errorf("it is %+v", s.State)
	}
	l.down()
	l.phase("web", supervisor.Idle)

	// One that ends while no supervisor runs is not confused with another of its pid.
	pid = byHand(t, port)
	proctest.Eventually(t, "it listens", func() bool { return answers(port) })
	l.up("web")
	l.ready("web")
	l.stop()
	proctest.Must(t, syscall.Kill(pid, syscall.SIGKILL))
	l = live(t, m, dir)
	if s := l.until("web", "tend's own", func(s supervisor.State) bool { return s.Run == 4 && s.Ready }); s.State.Adopted != nil {
		t.Errorf("it is %+v", s.State)
	}
	l.end(m, "web")
}

func TestAProcessThatSomebodyNamesIsAdopted(t *testing.T) {
	m, port := testkeeper.New(t), proctest.FreePort(t)
	pid := byHand(t, port)
	l := live(t, m, t.TempDir())
	l.declare(fmt.Sprintf(`
  web: {command: [$SERVE], env: {%s: '127.0.0.1:%d'}, health: {tcp: %[2]d, timeout: 20s, interval: 200ms}}
  own: {command: exec sleep 1000}
  logs: {command: exec sleep 1000, health: {log: up}}
`, role, port))
	proctest.Must(t, l.Adopt(t.Context(), "web", pid))
	if s := l.ready("web"); s.State.Adopted == nil || s.State.Adopted.PID != pid {
		t.Fatalf("it is %+v", s.State)
	}
	l.up("own")
	own := pidOf(t, m, l.ready("own"))
	for _, tt := range []struct {
		name string
		pid  int
		is   error
		text string
	}{
		{"nope", pid, process.ErrNotFound, "nope"},
		{"web", pid, process.ErrRunning, "tend down web"},
		{"logs", pid, nil, "its log goes where it went before"},
		{"own", 1, process.ErrPermission, "first process"},
		{"own", 1 << 22, process.ErrNotFound, "4194304"},
	} {
		err := l.Adopt(t.Context(), tt.name, tt.pid)
		if err == nil || tt.is != nil && !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%s, pid %d: %v; want %q", tt.name, tt.pid, err, tt.text)
		}
	}
	// A restart is tend's own, and has what it writes.
	proctest.Must(t, l.Restart(t.Context(), "web"))
	s := l.until("web", "tend's own", func(s supervisor.State) bool { return s.Run == 2 && s.Ready })
	if alive(pid) || s.ID == "" {
		t.Errorf("it is %+v", s)
	}
	l.down("web")
	l.phase("web", supervisor.Idle)
	if err := l.Adopt(t.Context(), "web", own); !errors.Is(err, process.ErrPermission) || !strings.Contains(err.Error(), "of tend already") {
		t.Errorf("what tend has started: %v", err)
	}
	l.end(m, "own")
}

func TestOtherRolesAreNotAdopted(t *testing.T) {
	m := testkeeper.New(t)
	pid := byHand(t, proctest.FreePort(t))
	l := liveConfig(t, run.Config{Manager: m, Dir: t.TempDir(), Roles: func() []int { return []int{pid} }})
	c := proctest.Value(config.Parse("x", []byte("services: {web: {command: x}}")))(t)
	proctest.Must(t, l.Apply(t.Context(), c))
	if err := l.Adopt(t.Context(), "web", pid); !errors.Is(err, process.ErrPermission) || !strings.Contains(err.Error(), "tend itself") {
		t.Errorf("a role: %v", err)
	}
}
