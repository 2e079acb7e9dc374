//go:build linux

package cli

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/kernelfault"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testdaemon"
)

func TestServeRefusesAMachineOnWhichItCannotWork(t *testing.T) {
	proctest.Root(t)
	state := filepath.Join(t.TempDir(), "state")
	proctest.Must(t, os.Mkdir(state, 0o700))
	for _, c := range []struct {
		name  string
		world kernelfault.World
		says  []string
	}{
		{"a state directory that is read-only", kernelfault.World{Mounts: []kernelfault.Mount{{Kind: kernelfault.ReadOnly, Path: state}}}, []string{state, "read-only file system", "--state-dir"}},
		{"no /proc", kernelfault.World{Mounts: []kernelfault.Mount{{Kind: kernelfault.Empty, Path: "/proc"}}}, []string{"mount -t proc proc /proc"}},
		{"no pidfd_open", kernelfault.World{Rules: []kernelfault.Rule{{Call: unix.SYS_PIDFD_OPEN, Arg: -1, Errno: unix.ENOSYS}}}, []string{"pidfd_open", "Linux 5.4"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := proctest.Value(kernelfault.Command(c.world, filepath.Join(binaries, "tend"), "serve", "--listen", "none", "--state-dir", state))(t)
			timer := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
			defer timer.Stop()
			out, err := cmd.CombinedOutput()
			exit, ok := errors.AsType[*exec.ExitError](err)
			if !ok || exit.ExitCode() != 1 {
				t.Errorf("it ended with %v", err)
			}
			for _, text := range c.says {
				if !strings.Contains(string(out), text) {
					t.Errorf("it does not say %q:\n%s", text, out)
				}
			}
		})
	}
}

// poorDaemon is a daemon of the programs on a kernel that lacks something.
func poorDaemon(t *testing.T, world kernelfault.World, flags ...string) (state string) {
	t.Helper()
	dir := proctest.Value(os.MkdirTemp("", "tend-poor-"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	cmd := proctest.Value(kernelfault.Command(world, filepath.Join(binaries, "tend")))(t)
	state = testdaemon.StateDir(dir)
	flags = append(flags, "--socket", filepath.Join(state, "tend.sock"))
	testdaemon.Serve(t, testdaemon.Config{Command: cmd.Args, Dir: dir, Flags: flags})
	return state
}

// poorTend runs a command line with the daemon on the state directory.
func poorTend(t *testing.T, state string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(binaries, "tend"), append([]string{"--state-dir", state}, args...)...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// tend status lists what is weaker on this machine, with the reason.
func TestStatusSaysWhatAPoorMachineCannotPromise(t *testing.T) {
	state := poorDaemon(t, kernelfault.World{Rules: []kernelfault.Rule{
		{Call: unix.SYS_IOCTL, Arg: 1, Value: unix.PIDFD_GET_INFO, Errno: unix.ENOTTY},
		{Call: unix.SYS_FALLOCATE, Arg: -1, Errno: unix.EOPNOTSUPP},
		{Call: unix.SYS_CLONE3, Arg: -1, Errno: unix.EPERM},
		{Call: unix.SYS_MEMFD_CREATE, Arg: 1, Value: unix.MFD_CLOEXEC | unix.MFD_EXEC, Errno: unix.EACCES}, // as with vm.memfd_noexec=2
	}}, "--fsync=interval")
	out, _, _ := poorTend(t, state, "status")
	if out, errs, status := poorTend(t, state, "run", "--", "echo", "hello"); status != 0 || out != "hello\n" {
		t.Errorf("tend run says %q, %q, %d", out, errs, status)
	}
	for name, says := range map[string]string{
		"exit_status_survives_two_roles": "no: Linux 6.15 is needed",
		"retention_frees_space":          "no: this filesystem cannot free",
		"kill_reaches_tree":              "no: clone3 is refused",
		"output_survives_keeper":         "yes: splice",
		"output_survives_power_loss":     "yes: --fsync=interval",
		"spool_takes_output":             "yes: ",
	} {
		i := strings.Index(out, name+" ")
		if i < 0 || !strings.HasPrefix(strings.TrimLeft(out[i+len(name):], " "), says) {
			t.Errorf("%s is not said to be %q:\n%s", name, says, out)
		}
	}
}

// A kill after which something runs on that may belong to the process must not
// look like success to a script.
func TestAKillThatIsNotKnownToHaveReachedAllFails(t *testing.T) {
	state := poorDaemon(t, kernelfault.World{Rules: []kernelfault.Rule{{Call: unix.SYS_CLONE3, Arg: -1, Errno: unix.ENOSYS}}})
	start := func(name, line string) {
		t.Helper()
		if _, errs, status := poorTend(t, state, "run", "-d", "--name", name, "-c", line); status != 0 {
			t.Fatalf("run: %d %s", status, errs)
		}
	}

	start("tidy", "sleep 1000")
	if _, errs, status := poorTend(t, state, "kill", "tidy"); status != 0 || !strings.Contains(errs, "cannot confirm") {
		t.Errorf("kill of one that left nothing: %d %q; want 0, and a word that it is not confirmed", status, errs)
	}

	// An orphan with a session of its own and without its mark; but none of the one
	// that is started again.
	pidFile := filepath.Join(t.TempDir(), "pid")
	start("hides", "[ -e "+pidFile+" ] || (prlimit --pid $(sh -c 'echo $PPID') --rttime=1000000:; setsid sh -c 'echo $$ > "+pidFile+".new; mv "+pidFile+".new "+pidFile+"; exec sleep 1000' </dev/null >/dev/null 2>&1 &); exec sleep 1000")
	var stray int
	proctest.Eventually(t, "the orphan has written its pid", func() bool {
		b, err := os.ReadFile(pidFile)
		if err == nil {
			stray, err = strconv.Atoi(strings.TrimSpace(string(b)))
		}
		return err == nil
	})
	t.Cleanup(func() { syscall.Kill(stray, syscall.SIGKILL) })
	pid := strconv.Itoa(stray)
	out, errs, status := poorTend(t, state, "restart", "-t", "0.1", "hides")
	if status != 0 || out == "" || !strings.Contains(errs, pid) {
		t.Errorf("restart: %d %q %q; want a new one, and %s named", status, out, errs, pid)
	}
	all, _, _ := poorTend(t, state, "ps", "-aq", "--filter", "name=hides")
	ids := strings.Fields(all)
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"kill"}, pid + " (sleep)"},
		{[]string{"kill", "--json"}, `"code":"strays","status":1`},
		{[]string{"stop", "-t", "0.1"}, pid + " (sleep)"},
		{[]string{"rm", "-f"}, pid + " (sleep)"},
	} {
		for _, id := range ids {
			if strings.TrimSpace(out) == id {
				continue // the new one began after the orphan
			}
			if _, errs, status := poorTend(t, state, append(c.args, id)...); status != 1 || !strings.Contains(errs, c.says) {
				t.Errorf("%s: %d %q; want 1, and %q", c.args, status, errs, c.says)
			}
		}
	}
	syscall.Kill(stray, syscall.SIGKILL)
	for _, id := range ids {
		proctest.Eventually(t, "a kill succeeds when the orphan is gone", func() bool { // its new parent collects it
			_, _, status := poorTend(t, state, "kill", id)
			return status == 0
		})
	}
}
