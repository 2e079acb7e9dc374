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
	poor := filepath.Join(t.TempDir(), "tend")
	script := "#!/bin/sh\nexec '" + strings.Join(cmd.Args, "' '") + "' \"$@\"\n"
	if err := os.WriteFile(poor, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, victims := range []torture.Victims{{torture.Keeper}, {torture.Anchor, torture.Keeper, torture.Server}} {
		t.Run(victims.String(), func(t *testing.T) {
			r := play(t, torture.Config{Tend: poor, Victims: victims, Strikes: kills(t)})
			if r.Strikes < kills(t) {
				t.Errorf("%d strikes; want %d", r.Strikes, kills(t))
			}
		})
	}
}
