//go:build linux

package client_test

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/client"
	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/lib/kernelfault"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// hoarder asks the kernel for its first interface by many netlink sockets, says so, and
// reads nothing. %d: how many sockets.
const hoarder = `python3 -c '
import socket, struct, time
ask = struct.pack("=IHHIIBxHiII", 32, 18, 1, 0, 0, 0, 0, 1, 0, 0) * 64 # RTM_GETLINK
all = []
for _ in range(%d):
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    for _ in range(8):
        s.send(ask)
    all.append(s)
print("hoarded", flush=True)
time.sleep(1000)'`

// startHoard starts a program in a container of its own with 64 MiB.
func startHoard(t *testing.T, m *client.Manager, dirs *containerDirs, shell string) process.Process {
	t.Helper()
	s := dirs.spec(t)
	s.Net, s.Harden, s.Limits = container.NetOwn, hardened, container.Limits{Memory: 64 << 20}
	in, _ := inContainer(t, m, s)
	return proctest.Start(t, in, labelled(s.ID, process.Spec{Shell: shell}))
}

// wantHoardKilled: one that holds too much is killed, and one with a little is not.
func wantHoardKilled(t *testing.T, m *client.Manager) {
	t.Helper()
	dirs := newContainerDirs(t)
	modest := startHoard(t, m, dirs, fmt.Sprintf(hoarder, 4))
	proctest.Wait(t, modest, process.Until{Match: "hoarded"})
	greedy := startHoard(t, m, dirs, fmt.Sprintf(hoarder, 400))
	e := proctest.Wait(t, greedy, process.Until{EOF: true}).Exit
	if e == nil || e.Signal != int(unix.SIGKILL) || e.Cause != process.CauseOOM {
		t.Errorf("with more than a quarter of the memory in its sockets it ended as %+v", e)
	}
	if info := proctest.Info(t, modest); info.Exit != nil {
		t.Errorf("one with a little ended too: %+v", info.Exit)
	}
}

// TestAnswersThatNobodyReadsAreBounded: no control group counts them. The keeper sees that
// the kernel's own memory grows.
func TestAnswersThatNobodyReadsAreBounded(t *testing.T) {
	m, _ := containerManager(t)
	wantHoardKilled(t, m)
}

// TestAnswersThatNobodyReadsAreBoundedBlindly: on this machine, which does not say how much
// memory its kernel has for itself, the keeper looks each second.
func TestAnswersThatNobodyReadsAreBoundedBlindly(t *testing.T) {
	vmstat := kernelfault.Rule{Call: unix.SYS_OPENAT, Arg: 2, Value: unix.O_NONBLOCK | unix.O_CLOEXEC, Errno: unix.ENOENT}
	m, _ := poor(t, kernelfault.World{Rules: []kernelfault.Rule{vmstat}})
	wantHoardKilled(t, m)
}
