//go:build linux

package testkeeper

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/support/testbin"
)

// rootless is in the environment of a test program that Rootless runs.
const rootless = "TEND_TEST_ROOTLESS"

// rootlessID is of a user of whom the machine knows nothing.
const rootlessID = 54321

// IsRootless reports whether this test program was run by Rootless.
func IsRootless() bool { return os.Getenv(rootless) != "" }

// Rootless runs tests of this program, by a pattern as of -test.run, as an ordinary user. They
// fail with the test, which only root can run. variants are the programs that they use
// beside testbin.Roles.
func Rootless(t *testing.T, tests string, variants ...testbin.Variant) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test needs root: it becomes another user")
	}
	// Not below t.TempDir, where other users may not go.
	dir, err := os.MkdirTemp("", "tend-own-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	tmp, bin, test := filepath.Join(dir, "tmp"), filepath.Join(dir, "bin"), filepath.Join(dir, "test")
	if err := errors.Join(os.Chmod(dir, 0o755), os.Mkdir(tmp, 0o700), os.Chown(tmp, rootlessID, rootlessID),
		testbin.Make(bin, append(variants, testbin.Roles)...), testbin.Link("/proc/self/exe", test), os.Chmod(test, 0o755)); err != nil {
		t.Fatal(err)
	}
	args := []string{"-test.run", tests, "-test.timeout", "20m"}
	if testing.Verbose() {
		args = append(args, "-test.v")
	}
	cmd := exec.CommandContext(t.Context(), test, args...)
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(syscall.SIGTERM) }, time.Minute
	cmd.Dir = tmp
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + tmp, "TMPDIR=" + tmp, rootless + "=1", testbin.Made + "=" + bin}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: rootlessID, Gid: rootlessID}, Pdeathsig: syscall.SIGTERM}
	runtime.LockOSThread() // the signal comes with the end of the thread
	defer runtime.UnlockOSThread()
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Errorf("as user %d: %v", rootlessID, err)
	}
}
