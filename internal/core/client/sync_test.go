//go:build linux

package client_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/anchor"
	"github.com/tend-run/tend/internal/core/client"
	"github.com/tend-run/tend/internal/core/spool"
	"github.com/tend-run/tend/internal/lib/kernelfault"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// syncs makes calls of fsync and fdatasync wait until they are allowed, and
// collects what they were about.
type syncs struct {
	files chan string // of a call that waits
	allow chan struct{}
}

func watchSyncs(t *testing.T) (stateDir string, s *syncs) {
	stateDir, l := watched(t, unix.SYS_FSYNC, unix.SYS_FDATASYNC)
	s = &syncs{make(chan string), make(chan struct{})}
	ctx := t.Context()
	go l.Each(func(call *kernelfault.Call) (held bool) {
		file := strings.TrimPrefix(call.File(0), stateDir)
		select {
		case s.files <- file:
		case <-ctx.Done():
		}
		select {
		case <-s.allow:
		case <-ctx.Done():
		}
		return false
	})
	return stateDir, s
}

func (s *syncs) next(t *testing.T) string {
	t.Helper()
	select {
	case file := <-s.files:
		return file
	case <-time.After(time.Minute):
		t.Fatal("nothing is forced to the disk")
		return ""
	}
}

// until allows calls until one is about file, which then waits.
func (s *syncs) until(t *testing.T, file string) {
	t.Helper()
	for s.next(t) != file {
		s.allow <- struct{}{}
	}
}

// release allows the call that waits, and all that follow.
func (s *syncs) release(t *testing.T) {
	ctx := t.Context()
	go func() {
		for {
			select {
			case s.allow <- struct{}{}:
			case <-s.files:
			case <-ctx.Done():
				return
			}
		}
	}()
}

func TestAnExitIsToldWhenItIsOnTheDisk(t *testing.T) {
	for _, c := range []struct {
		name   string
		before func(t *testing.T, m *client.Manager, stateDir string)
	}{
		{"by the keeper that started it", func(*testing.T, *client.Manager, string) {}},
		{"by the keeper after one that was killed", func(t *testing.T, _ *client.Manager, stateDir string) {
			unix.Kill(pids(t, stateDir).Keeper, unix.SIGKILL)
		}},
		{"by the keeper after an upgrade in place", func(t *testing.T, m *client.Manager, _ string) {
			proctest.Must(t, m.UpgradeKeeper(t.Context(), keeperBinary))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			stateDir, disk := watchSyncs(t)
			m := testkeeper.Open(t, stateDir)
			p := proctest.Start(t, m, process.Spec{Shell: "read x; echo said $x; exit 4", Stdin: process.StdinPipe, Retention: process.Retention{Sync: process.SyncExit}})
			c.before(t, m, stateDir)
			proctest.Write(t, p, "yes\n")
			dir := filepath.Join("/spool", string(p.ID()))
			for _, name := range []string{"/stdout", "/index", "/journal", ""} {
				disk.until(t, dir+name)
				j, err := spool.ReadJournal(stateDir + dir)
				if err != nil || j.Exit == nil || j.Exit.Code != 4 {
					t.Fatalf("the journal of which %q is forced out has %+v, %v", name, j, err)
				}
				if info, err := p.Info(t.Context()); err != nil || info.Exit != nil {
					t.Fatalf("told before %q is on the disk: %+v, %v", name, info.Exit, err)
				}
				disk.allow <- struct{}{}
			}
			disk.until(t, "/spool")
			disk.release(t)
			proctest.WantExit(t, p, 4)
			proctest.WantOutput(t, p, process.Stdout, "said yes\n")
		})
	}
}

// A keeper that dies while an exit waits for the disk leaves it to the next.
func TestAnExitThatWaitedForTheDiskIsToldByTheNextKeeper(t *testing.T) {
	stateDir, disk := watchSyncs(t)
	m := testkeeper.Open(t, stateDir)
	p := proctest.Start(t, m, process.Spec{Argv: []string{"false"}, Retention: process.Retention{Sync: process.SyncExit}})
	journal := filepath.Join("/spool", string(p.ID()), "journal")
	disk.until(t, journal)
	unix.Kill(pids(t, stateDir).Keeper, unix.SIGKILL)
	disk.allow <- struct{}{}
	disk.until(t, journal)
	if info, err := p.Info(t.Context()); err != nil || info.Exit != nil {
		t.Fatalf("told before it is on the disk: %+v, %v", info.Exit, err)
	}
	disk.release(t)
	proctest.WantExit(t, p, 1)
}

func TestOutputIsForcedOutWhileTheProcessRuns(t *testing.T) {
	stateDir, disk := watchSyncs(t)
	m := testkeeper.Open(t, stateDir)
	p := proctest.Start(t, m, process.Spec{Shell: "while read x; do echo $x; done", Stdin: process.StdinPipe, Retention: process.Retention{Sync: process.SyncInterval}})
	file := filepath.Join("/spool", string(p.ID()), "stdout")
	for i := range 2 {
		proctest.Write(t, p, "line\n")
		for wrote := false; !wrote; { // a sync may have begun before the line
			disk.until(t, file)
			var st unix.Stat_t
			proctest.Must(t, unix.Stat(stateDir+file, &st))
			wrote = st.Size == int64(i+1)*int64(len("line\n"))
			disk.allow <- struct{}{}
		}
	}
}

func TestNothingIsForcedOutUnlessItIsAskedFor(t *testing.T) {
	stateDir, disk := watchSyncs(t)
	m := testkeeper.Open(t, stateDir)
	quiet := proctest.Start(t, m, process.Spec{Shell: "echo this stays in memory"})
	proctest.Wait(t, quiet, process.Until{EOF: true})
	// The first call is that of a process which asks.
	p := proctest.Start(t, m, process.Spec{Argv: []string{"true"}, Retention: process.Retention{Sync: process.SyncExit}})
	if file := disk.next(t); !strings.Contains(file, string(p.ID())) {
		t.Errorf("%s was forced to the disk", file)
	}
	disk.allow <- struct{}{}
}

func TestADiskThatFailsIsTold(t *testing.T) {
	m, _ := poor(t, kernelfault.World{Rules: []kernelfault.Rule{{Call: unix.SYS_FDATASYNC, Arg: -1, Errno: unix.EIO}}})
	if got := fact(t, m.Facts(), "output_survives_power_loss"); got == "" {
		t.Errorf("before anything failed the keeper says %q", got)
	}
	p := proctest.Start(t, m, process.Spec{Shell: "exit 3", Retention: process.Retention{Sync: process.SyncExit}})
	proctest.WantExit(t, p, 3)
	if got := broken(t, m.Facts(), "output_survives_power_loss"); !strings.Contains(got, "input/output error") {
		t.Errorf("the keeper says %q", got)
	}
}

// broken is what the keeper says of a promise that it does not keep.
func broken(t *testing.T, facts []string, name string) string {
	t.Helper()
	for _, f := range facts {
		if rest, ok := strings.CutPrefix(f, name+"!"); ok {
			return rest
		}
	}
	t.Fatalf("%s is kept, or not known: %q", name, facts)
	return ""
}

func pids(t *testing.T, stateDir string) (p anchor.Pids) {
	t.Helper()
	proctest.Eventually(t, "an anchor answers", func() bool {
		c, err := anchor.Dial(stateDir)
		if err != nil {
			return false // the former one has just been killed
		}
		defer c.Close()
		p, err = c.Roles()
		return err == nil
	})
	return p
}
