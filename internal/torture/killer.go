//go:build linux

package torture

import (
	"context"
	"math/rand/v2"
	"strings"
	"syscall"
	"time"
)

// Victims are roles that are killed at the same instant.
type Victims []string

func (v Victims) String() string { return strings.Join(v, "+") }

// Combinations are all sets of roles but for the launcher, which holds the
// mirror: whoever else dies, together or at any moment after one another,
// nothing is lost.
var Combinations = []Victims{
	{Server}, {Keeper}, {Anchor},
	{Anchor, Keeper}, {Keeper, Server}, {Anchor, Server},
	{Anchor, Keeper, Server},
}

// killer kills victims at random moments.
type killer struct {
	d       *Daemon
	rnd     *rand.Rand
	victims Victims
	// longest pause between two kills.
	pause time.Duration
}

// run kills n times, or until the context ends, and returns how many processes
// it killed and how many times it struck.
func (k *killer) run(ctx context.Context, n int) (killed, struck int) {
	for struck < n {
		// Mostly everything is up again before the next strike; sometimes it
		// falls into the middle of the recovery.
		if k.rnd.IntN(4) > 0 && !k.settle(ctx) {
			return killed, struck
		}
		select {
		case <-time.After(time.Duration(k.rnd.Int64N(int64(k.pause)))):
		case <-ctx.Done():
			return killed, struck
		}
		roles := k.d.Roles()
		hit := false
		for _, i := range k.rnd.Perm(len(k.victims)) {
			if pid := roles[k.victims[i]]; pid > 0 && syscall.Kill(pid, syscall.SIGKILL) == nil {
				killed++
				hit = true
			}
		}
		if hit {
			struck++
		}
	}
	return killed, struck
}

// settleTime is how long a role may be missing.
const settleTime = 30 * time.Second

// settle waits until all roles are alive.
func (k *killer) settle(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	for {
		roles := k.d.Roles()
		if roles[Anchor] > 0 && roles[Keeper] > 0 && roles[Server] > 0 {
			return true
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return false
		}
	}
}
