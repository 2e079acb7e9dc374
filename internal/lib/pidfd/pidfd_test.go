//go:build linux

package pidfd

import (
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/support/proctest"
)

func TestOnlyAProcessThatIsStillTheOneIsSignalled(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sleep", "60")
	proctest.Must(t, cmd.Start())
	defer cmd.Wait()
	fd := proctest.Value(unix.PidfdOpen(cmd.Process.Pid, 0))(t)
	defer unix.Close(fd)
	if Signal(cmd.Process.Pid, unix.SIGKILL, func() bool { return false }) || Ended(fd, 0) {
		t.Error("another was signalled")
	}
	if !Signal(cmd.Process.Pid, unix.SIGKILL, func() bool { return true }) || !Ended(fd, -1) {
		t.Error("it was not signalled, or did not end")
	}
	if Signal(1<<30, unix.SIGKILL, func() bool { return true }) {
		t.Error("a process that cannot be was signalled")
	}
}
