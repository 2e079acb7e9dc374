package cli

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/cli/doctor"
	"github.com/tend-run/tend/internal/lib/kernelfault"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testdaemon"
)

// examined runs tend doctor --json, and returns its checks by name.
func examined(t *testing.T, cmd *exec.Cmd, healthy bool) map[string]doctor.Finding {
	t.Helper()
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	var facts doctorFacts
	if jerr := json.Unmarshal(out, &facts); jerr != nil {
		t.Fatalf("%v %v: %s%s", err, jerr, out, errs.String())
	}
	exit, _ := errors.AsType[*exec.ExitError](err)
	if facts.Healthy != healthy || (err == nil) != healthy || !healthy && exit.ExitCode() != 1 {
		t.Errorf("healthy is %v, and it ended with %v: %s", facts.Healthy, err, out)
	}
	all := map[string]doctor.Finding{}
	for _, f := range facts.Checks {
		all[f.Name] = f
	}
	return all
}

func wantFinding(t *testing.T, all map[string]doctor.Finding, name string, state doctor.State, says string) {
	t.Helper()
	if f := all[name]; f.State != state || !strings.Contains(f.Detail+" "+f.Mend, says) {
		t.Errorf("%s: %+v; want %s, and %q", name, f, state, says)
	}
}

func doctorOf(t *testing.T, state string) *exec.Cmd {
	return exec.CommandContext(t.Context(), filepath.Join(binaries, "tend"), "doctor", "--json", "--state-dir", state)
}

func TestADoctorFindsWhatAMachineLacks(t *testing.T) {
	proctest.Root(t)
	t.Run("no clone3 and no Landlock: some is weaker", func(t *testing.T) {
		state := filepath.Join(t.TempDir(), "state")
		world := kernelfault.World{Rules: []kernelfault.Rule{{Call: unix.SYS_CLONE3, Arg: -1, Errno: unix.ENOSYS}}}
		cmd := proctest.Value(kernelfault.Command(world, filepath.Join(binaries, "tend"), "doctor", "--json", "--state-dir", state))(t)
		all := examined(t, cmd, true)
		wantFinding(t, all, "kill_reaches_tree", doctor.Limited, "clone3")
		wantFinding(t, all, "isolation", doctor.Limited, "clone3")
	})
	t.Run("no clone3, an ordinary user: what helps is not root's", func(t *testing.T) {
		dir := proctest.Value(os.MkdirTemp("", "tend-doctor-test-"))(t)
		t.Cleanup(func() { os.RemoveAll(dir) })
		proctest.Must(t, os.Chown(dir, 65534, 65534))
		world := kernelfault.World{Rules: []kernelfault.Rule{{Call: unix.SYS_CLONE3, Arg: -1, Errno: unix.ENOSYS}}}
		program := filepath.Join(dir, "tend")
		proctest.Must(t, os.WriteFile(program, proctest.Value(os.ReadFile(filepath.Join(binaries, "tend")))(t), 0o755))
		cmd := proctest.Value(kernelfault.Command(world, proctest.Value(exec.LookPath("setpriv"))(t), "--reuid=65534", "--regid=65534", "--clear-groups",
			program, "doctor", "--json", "--state-dir", filepath.Join(dir, "state")))(t)
		f := examined(t, cmd, true)["isolation"]
		if f.State != doctor.Limited || !strings.Contains(f.Detail, "systempaths=unconfined") || strings.Contains(f.Detail, "SYS_ADMIN") {
			t.Errorf("%+v", f)
		}
	})
	t.Run("no pidfd_open: nothing works", func(t *testing.T) {
		state := filepath.Join(t.TempDir(), "state")
		world := kernelfault.World{Rules: []kernelfault.Rule{{Call: unix.SYS_PIDFD_OPEN, Arg: -1, Errno: unix.ENOSYS}}}
		cmd := proctest.Value(kernelfault.Command(world, filepath.Join(binaries, "tend"), "doctor", "--json", "--state-dir", state))(t)
		wantFinding(t, examined(t, cmd, false), "daemon", doctor.Broken, "Linux 5.4")
	})
	t.Run("few open files", func(t *testing.T) {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", `ulimit -n 512 && exec "$@"`, "sh", filepath.Join(binaries, "tend"), "doctor", "--json", "--state-dir", filepath.Join(t.TempDir(), "state"))
		wantFinding(t, examined(t, cmd, true), "open_files", doctor.Limited, "512 a role")
	})
}

func TestADoctorFindsWhatIsWrongWithADaemon(t *testing.T) {
	dir := proctest.Value(os.MkdirTemp("", "tend-doctor-test-"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	state, token := testdaemon.StateDir(dir), filepath.Join(dir, "token")
	proctest.Must(t, os.WriteFile(token, []byte("secret\n"), 0o600))
	// A program that plays the roles itself: to this tend, that of another version.
	testdaemon.Serve(t, testdaemon.Config{
		Command: []string{bare}, Dir: dir,
		Flags: []string{"--socket", filepath.Join(state, "tend.sock"), "--listen", "127.0.0.1:0", "--insecure", "--token-file", token},
	})
	all := examined(t, doctorOf(t, state), true)
	wantFinding(t, all, "exposure", doctor.Limited, "--insecure")
	wantFinding(t, all, "secrets", doctor.OK, token)
	for _, role := range []string{"role_launcher", "role_anchor", "role_keeper"} {
		wantFinding(t, all, role, doctor.Limited, "another program")
	}
	wantFinding(t, all, "role_server", doctor.OK, "pid")

	proctest.Must(t, os.Chmod(token, 0o644))
	wantFinding(t, examined(t, doctorOf(t, state), false), "secrets", doctor.Broken, "chmod 600 "+token)
	proctest.Must(t, os.Chmod(token, 0o600))

	out, err := exec.CommandContext(t.Context(), filepath.Join(binaries, "tend"), "upgrade", "--state-dir", state, "--binary", filepath.Join(binaries, "tend")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	all = examined(t, doctorOf(t, state), true)
	wantFinding(t, all, "role_keeper", doctor.OK, "pid")
	wantFinding(t, all, "role_anchor", doctor.Limited, "another program")
}

func TestADoctorSaysWhichRoleStands(t *testing.T) {
	state := poorDaemon(t, kernelfault.World{})
	server := roles(state, "")["server"]
	proctest.Must(t, syscall.Kill(server, syscall.SIGSTOP))
	t.Cleanup(func() { _ = syscall.Kill(server, syscall.SIGCONT) })
	wantFinding(t, examined(t, doctorOf(t, state), false), "daemon", doctor.Broken, "stopped")
}

func TestADoctorSaysThatThePortIsTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:49983")
	if err == nil { // else somebody else has it, which is as good
		defer l.Close()
	}
	wantFinding(t, examined(t, doctorOf(t, filepath.Join(t.TempDir(), "state")), true), "port", doctor.Limited, "in use")
}

// A doctor that is interrupted leaves nothing.
func TestADoctorThatIsInterruptedLeavesNothing(t *testing.T) {
	for {
		dir := t.TempDir()
		cmd := doctorOf(t, filepath.Join(dir, "state"))
		proctest.Must(t, cmd.Start())
		trial := ""
		proctest.Eventually(t, "a daemon is tried, or it has been", func() bool {
			if all, _ := filepath.Glob(filepath.Join(dir, "tend-doctor-*")); len(all) > 0 {
				trial = all[0]
			}
			return trial != ""
		})
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err == nil {
			continue // it was faster
		}
		if left := testdaemon.Holders(trial); len(left) > 0 {
			t.Errorf("roles are left: %v", left)
		}
		if all, _ := filepath.Glob(filepath.Join(dir, "*")); len(all) > 0 {
			t.Errorf("files are left: %v", all)
		}
		return
	}
}
