//go:build linux

package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/poorkernel"
)

// mayMount reports whether this process may change mounts, in a namespace of
// its own.
func mayMount() bool {
	cmd := exec.Command("/bin/true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	return os.Geteuid() == 0 && cmd.Run() == nil
}

func TestServeRefusesAMachineOnWhichItCannotWork(t *testing.T) {
	mounts := mayMount()
	state := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		world poorkernel.World
		says  []string
	}{
		{"a state directory that is read-only", poorkernel.World{Mounts: []poorkernel.Mount{{Kind: poorkernel.ReadOnly, Path: state}}}, []string{state, "read-only file system", "--state-dir"}},
		{"no /proc", poorkernel.World{Mounts: []poorkernel.Mount{{Kind: poorkernel.Empty, Path: "/proc"}}}, []string{"mount -t proc proc /proc"}},
		{"no pidfd_open", poorkernel.World{Rules: []poorkernel.Rule{{Call: unix.SYS_PIDFD_OPEN, Arg: -1, Errno: unix.ENOSYS}}}, []string{"pidfd_open", "Linux 5.4"}},
	} {
		if len(c.world.Mounts) > 0 && !mounts {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			cmd, err := poorkernel.Command(c.world, filepath.Join(binaries, "tend"), "serve", "--listen", "none", "--state-dir", state)
			if err != nil {
				t.Fatal(err)
			}
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

// What is weaker on this machine is told by tend status, with the reason.
func TestStatusSaysWhatAPoorMachineCannotPromise(t *testing.T) {
	state, err := os.MkdirTemp("", "tend-poor-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(state) })
	cmd, err := poorkernel.Command(poorkernel.World{Rules: []poorkernel.Rule{
		{Call: unix.SYS_IOCTL, Arg: 1, Value: unix.PIDFD_GET_INFO, Errno: unix.ENOTTY},
		{Call: unix.SYS_FALLOCATE, Arg: -1, Errno: unix.EOPNOTSUPP},
		{Call: unix.SYS_CLONE3, Arg: -1, Errno: unix.EPERM},
		{Call: unix.SYS_MEMFD_CREATE, Arg: 1, Value: unix.MFD_CLOEXEC | unix.MFD_EXEC, Errno: unix.EACCES}, // as with vm.memfd_noexec=2
	}}, filepath.Join(binaries, "tend"), "serve", "--listen", "none", "--fsync=interval", "--state-dir", state)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("tend serve ended with %v:\n%s", err, &log)
		}
	})
	var out []byte
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if out, err = exec.Command(filepath.Join(binaries, "tend"), "--state-dir", state, "status").Output(); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("status: %v", err)
		}
	}
	if out, err := exec.Command(filepath.Join(binaries, "tend"), "--state-dir", state, "run", "--", "echo", "hello").Output(); err != nil || string(out) != "hello\n" {
		t.Errorf("tend run says %q, %v", out, err)
	}
	for name, says := range map[string]string{
		"exit_status_survives_two_roles": "no: Linux 6.15 is needed",
		"retention_frees_space":          "no: this filesystem cannot free",
		"kill_reaches_tree":              "no: clone3 is refused",
		"output_survives_keeper":         "yes: splice",
		"output_survives_power_loss":     "yes: --fsync=interval",
		"spool_takes_output":             "yes: ",
	} {
		i := strings.Index(string(out), name+" ")
		if i < 0 || !strings.HasPrefix(strings.TrimLeft(string(out)[i+len(name):], " "), says) {
			t.Errorf("%s is not said to be %q:\n%s", name, says, out)
		}
	}
}
