//go:build linux

package torture

import (
	"context"
	"math/rand/v2"
	"strings"
	"syscall"
	"time"

	"github.com/tend-run/tend/internal/lib/backoff"
	"github.com/tend-run/tend/internal/support/testdaemon"
)

// Victims are roles that are killed at the same instant.
type Victims []string

func (v Victims) String() string { return strings.Join(v, "+") }

// Combinations are all sets of roles without the launcher, which holds the
// mirror. Nothing is lost if the roles of a set die together, or one after the
// other at any moment.
var Combinations = []Victims{
	{testdaemon.Server}, {testdaemon.Keeper}, {testdaemon.Anchor},
	{testdaemon.Anchor, testdaemon.Keeper}, {testdaemon.Keeper, testdaemon.Server}, {testdaemon.Anchor, testdaemon.Server},
	{testdaemon.Anchor, testdaemon.Keeper, testdaemon.Server},
}

// striker is one way to hurt roles.
type striker interface {
	// strike hurts once. It returns how many processes it killed, and false if
	// no role was there.
	strike(ctx context.Context) (killed int, hit bool)
	// patient reports whether the next strike must wait until all roles run again.
	patient() bool
}

// killer kills victims at one instant.
type killer struct {
	d       *testdaemon.Daemon
	rnd     *rand.Rand
	victims Victims
}

func (k *killer) patient() bool { return false }

func (k *killer) strike(context.Context) (killed int, hit bool) {
	roles := k.d.Roles()
	for _, i := range k.rnd.Perm(len(k.victims)) {
		if pid := roles[k.victims[i]]; pid > 0 && syscall.Kill(pid, syscall.SIGKILL) == nil {
			killed++
			hit = true
		}
	}
	return killed, hit
}

// strikes hit roles at random moments.
type strikes struct {
	d   *testdaemon.Daemon
	rnd *rand.Rand
	striker
	// longest pause between two strikes.
	pause time.Duration
}

// run strikes n times, or until the context ends, and returns how many
// processes it killed and how many times it struck.
func (b *strikes) run(ctx context.Context, n int) (killed, struck int) {
	for struck < n && ctx.Err() == nil {
		// Most strikes wait until all roles run again. Some fall into the middle
		// of the recovery.
		if (b.patient() || b.rnd.IntN(4) > 0) && !b.d.Settle(ctx) {
			break
		}
		pause := time.Duration(b.rnd.Int64N(int64(b.pause)))
		if b.patient() {
			pause += rest
		}
		if !backoff.Wait(ctx, pause) {
			break
		}
		dead, hit := b.strike(ctx)
		killed += dead
		if hit {
			struck++
		}
	}
	return killed, struck
}

// rest is a little more than the time that a role must live, or its next start is
// delayed. Strikes that wait for a certain moment must not wait for that too.
const rest = 110 * time.Millisecond
