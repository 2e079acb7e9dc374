//go:build linux

package client_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/box"
	"github.com/tend-run/tend/internal/core/client"
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

// thrasher reads at random what its memory cannot hold, so that it waits for memory nearly
// all the time, for two minutes at most.
const thrasher = `head -c 160M /dev/zero > /var/tmp/large; exec python3 -c '
import mmap, random, time
m = mmap.mmap(open("/var/tmp/large").fileno(), 0, prot=mmap.PROT_READ)
end = time.monotonic() + 120
while time.monotonic() < end:
    m[random.randrange(len(m))]'`

// startHoard starts a program in a box of its own with 64 MiB.
func startHoard(t *testing.T, m *client.Manager, dirs *boxDirs, shell string) process.Process {
	t.Helper()
	s := dirs.spec(t)
	s.Net, s.Harden, s.Limits = box.NetOwn, hardened, box.Limits{Memory: 64 << 20}
	in, _ := inBox(t, m, s)
	return proctest.Start(t, in, labelled(s.ID, process.Spec{Shell: shell}))
}

// wantHoardKilled: the one that holds too much is killed, and one with a little is not.
func wantHoardKilled(t *testing.T, modest, greedy process.Process) {
	t.Helper()
	e := proctest.Wait(t, greedy, process.Until{EOF: true}).Exit
	if e == nil || e.Signal != int(unix.SIGKILL) || e.Cause != process.CauseOOM {
		t.Errorf("with more than a quarter of the memory in its sockets it ended as %+v", e)
	}
	if info := proctest.Info(t, modest); info.Exit != nil {
		t.Errorf("one with a little ended too: %+v", info.Exit)
	}
}

// TestAnswersThatNobodyReadsAreBounded: no control group counts them. On this machine,
// which does not report memory pressure, the keeper looks each second.
func TestAnswersThatNobodyReadsAreBounded(t *testing.T) {
	pressure := kernelfault.Rule{Call: unix.SYS_OPENAT, Arg: 2, Value: unix.O_RDWR | unix.O_NONBLOCK | unix.O_CLOEXEC, Errno: unix.ENOENT}
	m, _ := poor(t, kernelfault.World{Rules: []kernelfault.Rule{pressure}})
	dirs := newBoxDirs(t)
	modest := startHoard(t, m, dirs, fmt.Sprintf(hoarder, 4))
	proctest.Wait(t, modest, process.Until{Match: "hoarded"})
	wantHoardKilled(t, modest, startHoard(t, m, dirs, fmt.Sprintf(hoarder, 400)))
}

// TestAnswersThatNobodyReadsAreBoundedUnderPressure: where the kernel reports it, the keeper
// waits for the report, and looks when another box waits for memory. Elsewhere it looks
// each second, which this sees as well.
func TestAnswersThatNobodyReadsAreBoundedUnderPressure(t *testing.T) {
	m, stateDir := boxManager(t)
	waits := func() bool {
		fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pids(t, stateDir).Keeper))
		return slices.ContainsFunc(fds, func(fd string) bool {
			to, _ := os.Readlink(fd)
			return to == "/proc/pressure/memory"
		})
	}
	if f, err := os.OpenFile("/proc/pressure/memory", os.O_RDWR, 0); err == nil {
		if _, err := f.WriteString("some 200000 2000000\x00"); err == nil {
			proctest.Eventually(t, "the keeper waits for reports of pressure", waits)
		}
		proctest.Must(t, f.Close())
	}
	dirs := newBoxDirs(t)
	modest, greedy := startHoard(t, m, dirs, fmt.Sprintf(hoarder, 4)), startHoard(t, m, dirs, fmt.Sprintf(hoarder, 400))
	proctest.Wait(t, modest, process.Until{Match: "hoarded"})
	startHoard(t, m, dirs, thrasher)
	wantHoardKilled(t, modest, greedy)
}
