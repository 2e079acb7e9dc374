//go:build linux

package client_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/kernelfault"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/process/processtest"
)

// noCloseRange is a machine whose children copy the whole table of descriptors.
var noCloseRange = kernelfault.Rule{Call: unix.SYS_CLOSE_RANGE, Arg: -1, Errno: unix.ENOSYS}

// All that processes promise holds without close_range too.
func TestConformanceWithoutCloseRange(t *testing.T) {
	t.Parallel()
	manager, _ := poor(t, kernelfault.World{Rules: []kernelfault.Rule{noCloseRange}})
	processtest.Run(t, func(*testing.T) process.Manager { return manager })
}

// Go raises the limit of descriptors for itself; programs have what the daemon had when
// it was started.
func TestTheLimitOfDescriptorsIsTheDaemons(t *testing.T) {
	for name, rules := range map[string][]kernelfault.Rule{"by clone3": nil, "without close_range": {noCloseRange}, "by clone(2)": {noCgroups}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stateDir := shortDir(t)
			cmd := exec.Command("/bin/sh")
			if rules != nil {
				cmd = proctest.Value(kernelfault.Command(kernelfault.World{Rules: rules}, "/bin/sh"))(t)
			}
			cmd.Args = append(cmd.Args, "-c", `ulimit -Sn 1000 && ulimit -Hn 3000 && exec "$0" launcher --state-dir "$1"`, keeperBinary, stateDir)
			testkeeper.Run(t, stateDir, cmd, cmd.Start)
			m := testkeeper.Open(t, stateDir)
			check := func(when string) {
				t.Helper()
				for _, limits := range []process.Limits{{}, {Nice: 1}} {
					if got := proctest.Output(t, proctest.Start(t, m, process.Spec{Shell: "ulimit -Sn; ulimit -Hn", Limits: limits}), process.Stdout); got != "1000\n3000\n" {
						t.Errorf("%s, with the limits %+v: %q", when, limits, got)
					}
				}
				if got := fact(t, m.Facts(), "process_limit"); !strings.Contains(got, "file limit of 2999") {
					t.Errorf("%s the keeper says %q", when, got)
				}
			}
			check("at first")
			if err := m.UpgradeKeeper(t.Context(), "/dev/null"); err == nil {
				t.Error("an upgrade to /dev/null succeeded")
			}
			if rules == nil { // else Go's own limit stays low then, and is raised no more
				check("after an upgrade that failed")
			}
			proctest.Must(t, m.UpgradeKeeper(t.Context(), keeperBinary))
			check("after an upgrade")
			killKeeper(t, stateDir)
			check("after a kill")
		})
	}
}

// A program that does not come, from a disk that hangs, holds up nobody else's start.
func TestAStartWaitsForNoOther(t *testing.T) {
	stateDir, l := watched(t, unix.SYS_EXECVE)
	stuck, release := make(chan struct{}), make(chan struct{})
	slow := filepath.Join(t.TempDir(), "slow")
	go l.Each(func(call *kernelfault.Call) (held bool) {
		if held = call.Path(0) == slow; held {
			close(stuck)
			go func() { <-release; l.Continue(call) }()
		}
		return held
	})
	if out, err := exec.Command("cp", "/bin/true", slow).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	m := testkeeper.Open(t, stateDir)
	ended := make(chan error, 1)
	go func() {
		p, err := m.Start(t.Context(), process.Spec{Argv: []string{slow}})
		if err == nil {
			_, err = p.Wait(t.Context(), process.Until{TreeGone: true})
		}
		ended <- err
	}()
	<-stuck
	for range 20 {
		if got := proctest.Output(t, proctest.Start(t, m, process.Spec{Shell: "echo said"}), process.Stdout); got != "said\n" {
			t.Errorf("another one said %q", got)
		}
	}
	close(release)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
