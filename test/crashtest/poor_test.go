//go:build linux

package crashtest

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/cli/torture"
	"github.com/tend-run/tend/internal/lib/kernelfault"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testdaemon"
)

// Without cgroup v2 the next keeper cannot find what the one before has forked.
// Instead the child is on the board before its first call, or, without scripts of
// system calls, a gate holds it back until it is.
func TestNothingIsLostWithoutCgroups(t *testing.T) {
	proctest.Root(t)
	t.Parallel()
	for name, world := range map[string]kernelfault.World{
		"":             {Rules: []kernelfault.Rule{{Call: unix.SYS_CLONE3, Arg: -1, Errno: unix.ENOSYS}}},
		", by scripts": {Mounts: []kernelfault.Mount{{Kind: kernelfault.Gone, Path: "/sys/fs/cgroup"}}},
	} {
		cmd := proctest.Value(kernelfault.Command(world, bin))(t)
		for _, victims := range []torture.Victims{{testdaemon.Keeper}, {testdaemon.Anchor, testdaemon.Keeper, testdaemon.Server}} {
			t.Run(victims.String()+name, func(t *testing.T) {
				t.Parallel()
				r := play(t, torture.Config{Tend: cmd.Args, Victims: victims, Strikes: kills(t)})
				if r.Strikes < kills(t) {
					t.Errorf("%d strikes; want %d", r.Strikes, kills(t))
				}
			})
		}
	}
}

// With --fsync=exit, exits wait for the disk. None is lost.
func TestNothingIsLostWhenExitsWaitForTheDisk(t *testing.T) {
	t.Parallel()
	for _, victims := range []torture.Victims{{testdaemon.Keeper}, {testdaemon.Keeper, testdaemon.Server}} {
		t.Run(victims.String(), func(t *testing.T) {
			t.Parallel()
			r := play(t, torture.Config{Flags: []string{"--fsync=exit"}, Victims: victims, Strikes: kills(t)})
			if got := r.Promises["output_survives_power_loss"]; !got.Kept {
				t.Errorf("the daemon says %+v", got)
			}
		})
	}
}
