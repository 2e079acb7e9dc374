//go:build linux

package keeper

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/support/proctest"
)

func TestAnExitSendsTheKeeperNoSignalAndIsStillCollected(t *testing.T) {
	sets := func(field string) bool {
		t.Helper()
		status := proctest.Value(os.ReadFile("/proc/self/status"))(t)
		m := regexp.MustCompile(field + `:\s+([0-9a-f]+)`).FindSubmatch(status)
		if m == nil {
			t.Fatalf("no %s in %s", field, status)
		}
		set := proctest.Value(strconv.ParseUint(string(m[1]), 16, 64))(t)
		return set&(1<<(unix.SIGCHLD-1)) != 0
	}
	if !sets("SigCgt") {
		t.Fatal("Go does not handle SIGCHLD any more: unsignalled is not needed")
	}
	unsignalled()
	if sets("SigCgt") || sets("SigIgn") {
		t.Errorf("SIGCHLD is caught: %v, ignored: %v; want neither", sets("SigCgt"), sets("SigIgn"))
	}
	cmd := exec.Command("sh", "-c", "exit 7")
	if err := cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 7 {
		t.Errorf("the status of a child: %v", err)
	}
}
