//go:build linux

package cleansignals

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/support/proctest"
)

// roleVariable makes the test binary a program that starts with unclean
// signals ("unclean"), or that continues from there ("clean", "as is").
const roleVariable = "TEND_CLEANSIGNALS"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		if err := play(role); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func play(role string) error {
	switch role {
	case "unclean":
		runtime.LockOSThread()
		for _, s := range []uintptr{uintptr(unix.SIGHUP), uintptr(unix.SIGPIPE), 32, 33, 34, 64} {
			if !action(s, &sigaction{handler: ignore}, nil) {
				return fmt.Errorf("signal %d can't be ignored", s)
			}
		}
		mask := uint64(1)<<(unix.SIGUSR1-1) | 1<<(40-1)
		if _, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGPROCMASK, 2, uintptr(unsafe.Pointer(&mask)), 0, maskSize, 0, 0); errno != 0 {
			return errno
		}
		os.Setenv(roleVariable, os.Args[1])
		return unix.Exec("/proc/self/exe", os.Args, os.Environ())
	case "clean":
		if err := Exec(os.Args, os.Environ()); err != nil {
			return err
		}
	}
	show := exec.Command("grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status")
	show.Stdout, show.Stderr = os.Stdout, os.Stderr
	return show.Run()
}

func TestChildrenStartWithNothingIgnoredAndNothingBlocked(t *testing.T) {
	const clean = "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n"
	run := func(role string) string {
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", role)
		cmd.Env = append(os.Environ(), roleVariable+"=unclean")
		cmd.Stderr = os.Stderr
		out := proctest.Value(cmd.Output())(t)
		return string(out)
	}
	if got := run("as is"); got == clean {
		t.Fatalf("the test does not make signals unclean: %q", got)
	}
	if got := run("clean"); got != clean {
		t.Errorf("got %q; want %q", got, clean)
	}
}
