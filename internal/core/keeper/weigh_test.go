//go:build linux

package keeper

import (
	"bufio"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/internal/support/proctest"
)

// TestProcessesOfAContainerWeighAsOneWithoutAutogroups: TestSessionsOfAContainerWeighAsOneWithoutCgroups has the rest.
func TestProcessesOfAContainerWeighAsOneWithoutAutogroups(t *testing.T) {
	proctest.Root(t)
	cmd := exec.CommandContext(t.Context(), "sh", "-c",
		"for i in 1 2 3 4 5 6 7 8 9; do sleep 1000 & done; nice -n 15 sh -c 'echo made; exec sleep 1000' & wait")
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWPID}
	out := proctest.Value(cmd.StdoutPipe())(t)
	proctest.Must(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	proctest.Value(bufio.NewReader(out).ReadString('\n'))(t)
	b := &heldContainer{}
	b.first.Store(int32(cmd.Process.Pid))
	proctest.Eventually(t, "ten that weigh as one have a niceness of 11, and who was nicer keeps that", func() bool {
		weigh(map[string]*heldContainer{pidSpace(cmd.Process.Pid): b}, false)
		found := map[int]int{}
		for _, pid := range procfs.Children(cmd.Process.Pid) {
			raw := proctest.Value(unix.Getpriority(unix.PRIO_PROCESS, pid))(t)
			found[20-raw]++
		}
		return len(found) == 2 && found[11] == 9 && found[15] == 1
	})
	if raw := proctest.Value(unix.Getpriority(unix.PRIO_PROCESS, cmd.Process.Pid))(t); raw != 20 {
		t.Errorf("the first process has a niceness of %d", 20-raw)
	}
}
