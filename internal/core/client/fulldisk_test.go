//go:build linux

package client_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/kernelfault"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

func TestAFullFilesystemHoldsOutputBackAndLosesNothing(t *testing.T) {
	disk := smallDisk(t)
	state := filepath.Join(disk, "s")
	daemonOn(t, state)
	m := testkeeper.Open(t, state)

	small := proctest.Start(t, m, process.Spec{Shell: "read x; echo hello $x; echo said >&2; exit 7", Stdin: process.StdinPipe})
	large := proctest.Start(t, m, process.Spec{Shell: "read x; yes | head -c 3000000; exit 5", Stdin: process.StdinPipe})
	filler := filepath.Join(disk, "filler")
	fill(t, filler)
	for _, p := range []process.Process{small, large} {
		proctest.Write(t, p, "you\n")
	}
	res, err := small.Wait(t.Context(), process.Until{})
	if err != nil || res.Exit == nil || res.Exit.Code != 7 {
		t.Fatalf("on a full filesystem the process ended with %+v, %v", res, err)
	}
	_, err = m.Start(t.Context(), process.Spec{Argv: []string{"true"}})
	var failed *process.StartError
	if !errors.As(err, &failed) || failed.Reason != process.StartResources || !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("a start on a full filesystem says %v", err)
	}
	proctest.Must(t, os.Truncate(filler, 0))
	proctest.WantOutput(t, small, process.Stdout, "hello you\n")
	proctest.WantOutput(t, small, process.Stderr, "said\n")
	proctest.WantOutput(t, large, process.Stdout, strings.Repeat("y\n", 1500000))
	proctest.Eventually(t, "a process starts when there is room again", func() bool {
		_, err = m.Start(t.Context(), process.Spec{Argv: []string{"true"}})
		return err == nil
	})
}

// What the anchor collects for the next keeper has room of its own. The kernel
// keeps no statuses here.
func TestAKeeperThatDiesOnAFullFilesystemLosesNoExitStatus(t *testing.T) {
	disk := smallDisk(t)
	state := filepath.Join(disk, "s")
	cmd, err := kernelfault.Command(kernelfault.World{Rules: []kernelfault.Rule{{Call: unix.SYS_IOCTL, Arg: 1, Value: unix.PIDFD_GET_INFO, Errno: unix.ENOTTY}}},
		keeperBinary, "launcher", "--state-dir", state)
	if err != nil {
		t.Fatal(err)
	}
	testkeeper.Run(t, state, cmd, cmd.Start)
	m := testkeeper.Open(t, state)
	var procs []process.Process
	for range 100 {
		p := proctest.Start(t, m, process.Spec{Shell: "read x; echo said; exit 7", Stdin: process.StdinPipe})
		procs = append(procs, p)
	}
	filler := filepath.Join(disk, "filler")
	fill(t, filler)
	before := pids(t, state).Keeper
	unix.Kill(before, unix.SIGKILL)
	proctest.Eventually(t, "another keeper is there", func() bool { now := pids(t, state).Keeper; return now != 0 && now != before })
	for _, p := range procs {
		proctest.Write(t, p, "\n")
		proctest.WantExit(t, p, 7)
	}
	fact(t, m.Facts(), "output_survives_keeper")
	proctest.Must(t, os.Truncate(filler, 0))
	for _, p := range procs {
		proctest.WantOutput(t, p, process.Stdout, "said\n")
	}
}

// smallDisk mounts a filesystem of 8 MiB.
func smallDisk(t *testing.T) string {
	t.Helper()
	proctest.Root(t)
	disk := shortDir(t)
	proctest.Must(t, unix.Mount("tmpfs", disk, "tmpfs", 0, "size=8m"))
	t.Cleanup(func() { unix.Unmount(disk, unix.MNT_DETACH) })
	return disk
}

// fill writes a file until the filesystem has no room for it.
func fill(t *testing.T, path string) {
	t.Helper()
	f := proctest.Value(os.Create(path))(t)
	defer f.Close()
	for _, size := range []int{64 << 10, 4 << 10} {
		var err error
		for err == nil {
			_, err = f.Write(make([]byte, size))
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
	}
}

// An exit is told after the output before it. If that waited for room when the
// keeper died, and finds some with the next keeper, the exit is due.
func TestAKeeperThatFindsRoomAgainTellsTheExitThatWaitedForIt(t *testing.T) {
	disk := smallDisk(t)
	state := filepath.Join(disk, "s")
	cmd := exec.Command(keeperBinary, "launcher", "--state-dir", state)
	testkeeper.Run(t, state, cmd, cmd.Start)
	m := testkeeper.Open(t, state)
	// The descendant keeps stdout, so the process is not over with its exit.
	p := proctest.Start(t, m, process.Spec{Shell: "read x; head -c 30000 /dev/zero; sleep 1000 & exit 7", Stdin: process.StdinPipe})
	defer p.Kill(t.Context())
	r := proctest.Read(t, p, process.ReadOptions{Drain: -1})
	filler := filepath.Join(disk, "filler")
	fill(t, filler)
	proctest.Write(t, p, "\n")
	proctest.Wait(t, p, process.Until{})
	before := pids(t, state).Keeper
	unix.Kill(before, unix.SIGSTOP)
	proctest.Must(t, os.Truncate(filler, 0))
	unix.Kill(before, unix.SIGKILL)
	late := time.After(time.Minute)
	for got := 0; ; {
		ev, ok, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			select {
			case <-r.Ready():
			case <-late:
				t.Fatalf("the exit is not told, %d bytes are", got)
			}
			continue
		}
		got += len(ev.Data)
		if ev.Kind == process.EventExited {
			if got != 30000 || ev.Exit.Code != 7 {
				t.Errorf("exit %d after %d bytes; want 7 after 30000", ev.Exit.Code, got)
			}
			return
		}
	}
}
