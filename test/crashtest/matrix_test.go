//go:build linux

package crashtest

import (
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/cli/torture"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testdaemon"
)

// seed of a test: CRASHTEST_SEED repeats a run.
func seed(t *testing.T) uint64 {
	t.Helper()
	n := rand.Uint64()
	if s := os.Getenv("CRASHTEST_SEED"); s != "" {
		n = proctest.Value(strconv.ParseUint(s, 10, 64))(t)
	}
	t.Logf("CRASHTEST_SEED=%d", n)
	return n
}

// play runs the engine and fails the test with what it found.
func play(t *testing.T, cfg torture.Config) *torture.Report {
	t.Helper()
	if cfg.Tend == nil {
		cfg.Tend = []string{bin}
	}
	cfg.Workload, cfg.Seed = []string{self, workArgument}, seed(t)
	cfg.Dir = t.TempDir()
	if !soaked() {
		cfg.Rest = 500 * time.Millisecond
	}
	cfg.Env = append(os.Environ(), cfg.Env...)
	r := proctest.Value(torture.Run(t.Context(), cfg))(t)
	var b strings.Builder
	r.Print(&b)
	t.Log(strings.TrimSpace(b.String()))
	if len(r.Problems) > 0 {
		t.Errorf("%d problems; log of the daemon:\n%s", len(r.Problems), r.Log)
	}
	return r
}

// Every set of roles is killed at random moments, at the same instant, while
// processes start, write, read, end, have terminals, and lose output to
// retention.
func TestNothingIsLostWhoeverIsKilled(t *testing.T) {
	t.Parallel()
	for _, victims := range torture.Combinations {
		t.Run(victims.String(), func(t *testing.T) {
			t.Parallel()
			r := play(t, torture.Config{Victims: victims, Strikes: kills(t)})
			if r.Strikes < kills(t) {
				t.Errorf("%d strikes; want %d", r.Strikes, kills(t))
			}
		})
	}
}

func TestNothingIsLostOverUpgrades(t *testing.T) {
	t.Parallel()
	r := play(t, torture.Config{Upgrade: true, Strikes: 12, Binaries: []string{bin}})
	if r.Upgrades < 12 {
		t.Errorf("%d upgrades; want 12", r.Upgrades)
	}
}

// The previous version's snapshots are read, and it reads ours.
func TestNothingIsLostOverUpgradesFromAndToThePreviousVersion(t *testing.T) {
	t.Parallel()
	r := play(t, torture.Config{Upgrade: true, Strikes: 16, Binaries: []string{previous, bin}})
	if r.Upgrades < 16 {
		t.Errorf("%d upgrades; want 16", r.Upgrades)
	}
}

// The new program ends at once. The anchor then starts the one before.
func TestNothingIsLostOverAnUpgradeToAProgramThatEndsAtOnce(t *testing.T) {
	t.Parallel()
	play(t, torture.Config{Upgrade: true, Strikes: 16, Binaries: []string{broken, bin}})
}

func TestNothingIsLostWhenUpgradesMeetKills(t *testing.T) {
	t.Parallel()
	for _, victims := range []torture.Victims{{testdaemon.Keeper}, {testdaemon.Anchor}, {testdaemon.Anchor, testdaemon.Keeper, testdaemon.Server}} {
		t.Run(victims.String(), func(t *testing.T) {
			t.Parallel()
			play(t, torture.Config{Victims: victims, Upgrade: true, Strikes: kills(t), Pause: 300 * time.Millisecond, Binaries: []string{bin, previous}})
		})
	}
}

// Roles stand still for a while, each alone and all together with the
// processes, as on a machine that was frozen; sometimes others die meanwhile.
func TestNothingIsLostWhenRolesStandStill(t *testing.T) {
	t.Parallel()
	for _, victims := range torture.Frozen {
		t.Run(victims.String(), func(t *testing.T) {
			t.Parallel() // most of the time everything waits
			r := play(t, torture.Config{Victims: victims, Freeze: 1500 * time.Millisecond, Strikes: 2 + kills(t)/4, Pause: 50 * time.Millisecond})
			if r.Strikes < 2+kills(t)/4 {
				t.Errorf("%d strikes; want %d", r.Strikes, 2+kills(t)/4)
			}
		})
	}
}

// Signals of Go's own runtime interrupt calls of all roles.
func TestNothingIsLostInAStormOfSignals(t *testing.T) {
	t.Parallel()
	r := play(t, torture.Config{Victims: torture.Victims{testdaemon.Keeper}, Storm: true, Strikes: kills(t) / 2})
	if r.Signals == 0 {
		t.Error("no signal was sent")
	}
}

// The connections of all clients are closed, reset and left half-open after
// any number of bytes, some are slow, and some readers never read.
func TestNothingIsLostWhenConnectionsBreak(t *testing.T) {
	t.Parallel()
	for _, victims := range []torture.Victims{nil, {testdaemon.Server}} {
		t.Run(torture.Victims(append(torture.Victims{"connections"}, victims...)).String(), func(t *testing.T) {
			t.Parallel() // most of the time everything waits
			r := play(t, torture.Config{Victims: victims, Cut: true, Strikes: 2 * kills(t), Pause: 200 * time.Millisecond})
			if r.Cut < int64(kills(t)) {
				t.Errorf("%d connections were broken; want %d", r.Cut, kills(t))
			}
		})
	}
}
