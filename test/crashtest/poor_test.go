//go:build linux

package crashtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/poorkernel"
	"github.com/tend-run/tend/internal/torture"
)

// Without cgroup v2 the next keeper cannot find what the one before has forked;
// a gate holds the program back instead, until its pid is written down.
func TestNothingIsLostWithoutCgroups(t *testing.T) {
	cmd, err := poorkernel.Command(poorkernel.World{Rules: []poorkernel.Rule{{Call: unix.SYS_CLONE3, Arg: -1, Errno: unix.ENOSYS}}}, bin)
	if err != nil {
		t.Fatal(err)
	}
	poor := wrapped(t, "'"+strings.Join(cmd.Args, "' '")+"' \"$@\"")
	for _, victims := range []torture.Victims{{torture.Keeper}, {torture.Anchor, torture.Keeper, torture.Server}} {
		t.Run(victims.String(), func(t *testing.T) {
			r := play(t, torture.Config{Tend: poor, Victims: victims, Strikes: kills(t)})
			if r.Strikes < kills(t) {
				t.Errorf("%d strikes; want %d", r.Strikes, kills(t))
			}
		})
	}
}

// A policy of fsync makes exits wait; none is lost over that.
func TestNothingIsLostWhenExitsWaitForTheDisk(t *testing.T) {
	syncing := wrapped(t, "'"+bin+"' \"$@\" --fsync=exit")
	for _, victims := range []torture.Victims{{torture.Keeper}, {torture.Keeper, torture.Server}} {
		t.Run(victims.String(), func(t *testing.T) {
			r := play(t, torture.Config{Tend: syncing, Victims: victims, Strikes: kills(t)})
			if got := r.Promises["output_survives_power_loss"]; !got.Kept {
				t.Errorf("the daemon says %+v", got)
			}
		})
	}
}

// wrapped is a program that executes a shell's command line.
func wrapped(t *testing.T, line string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tend")
	if err := os.WriteFile(path, []byte("#!/bin/sh\nexec "+line+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}
