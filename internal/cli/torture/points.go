//go:build linux

package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	"github.com/tend-run/tend/internal/core/failpoint"
	"github.com/tend-run/tend/internal/support/testdaemon"
	"github.com/tend-run/tend/sdk/go"
)

// trigger is what brings roles to a point that the work alone does not reach.
type trigger struct {
	kill    Victims          // these are killed
	at      *failpoint.Point // a role is killed at this point
	upgrade bool             // the keeper is upgraded in place
}

func at(p failpoint.Point) trigger { return trigger{at: &p} }

var triggers = map[failpoint.Point]trigger{
	failpoint.UpgradeFrozen: {upgrade: true}, failpoint.UpgradeSnapshot: {upgrade: true},
	failpoint.UpgradeDecoded: {upgrade: true}, failpoint.UpgradeRestored: {upgrade: true},

	failpoint.TakeoverFetched:  {kill: Victims{testdaemon.Keeper}},
	failpoint.TakeoverGlobals:  {kill: Victims{testdaemon.Anchor, testdaemon.Keeper}},
	failpoint.TakeoverRestored: {kill: Victims{testdaemon.Keeper}}, failpoint.TakeoverDone: {kill: Victims{testdaemon.Keeper}},
	failpoint.HalfStartFound: at(failpoint.SpawnForked), failpoint.HalfStartCompleted: at(failpoint.SpawnPidfd),
	failpoint.UndoKilled:    at(failpoint.SpawnVaulted),
	failpoint.VaultRefilled: {kill: Victims{testdaemon.Anchor}},

	failpoint.AnchorHeld: {kill: Victims{testdaemon.Anchor}}, failpoint.AnchorResumed: {kill: Victims{testdaemon.Anchor}},
	failpoint.KeeperForked: {kill: Victims{testdaemon.Keeper}},
	failpoint.VaultMarked:  {kill: Victims{testdaemon.Anchor}}, failpoint.VaultSent: {kill: Victims{testdaemon.Keeper}},
	failpoint.OrphanRecorded: {kill: Victims{testdaemon.Keeper}},

	failpoint.BoardDiscovered: {kill: Victims{testdaemon.Server}},
}

// pointTime bounds the wait until a role reaches a point, and stirTime the wait
// after one trigger.
const (
	pointTime = time.Minute
	stirTime  = 300 * time.Millisecond
)

// pointStriker kills roles at named points, in turn. If together is set, it
// chooses the roles that die at the same instant; the role at the point is
// stopped, and dies only if it is among them.
type pointStriker struct {
	d        *testdaemon.Daemon
	rnd      *rand.Rand
	table    *failpoint.Table
	points   []failpoint.Point
	together func() Victims
	upgrade  func(ctx context.Context)
	missed   func(failpoint.Point)

	next int
	wg   sync.WaitGroup // of upgrades under way
}

func (s *pointStriker) patient() bool { return true }

func (s *pointStriker) strike(ctx context.Context) (killed int, hit bool) {
	p := s.points[s.next%len(s.points)]
	s.next++
	var others Victims
	if s.together != nil {
		others = s.together()
	}
	before, _ := s.table.Struck(p)
	struck := func() bool { n, _ := s.table.Struck(p); return n > before }
	s.table.Arm(p, 1+s.rnd.IntN(3), others != nil)
	for end := time.Now().Add(pointTime); !struck(); {
		if ctx.Err() != nil || time.Now().After(end) {
			s.table.Disarm(p)
			if ctx.Err() == nil {
				s.missed(p)
			}
			return killed, false
		}
		killed += s.trigger(ctx, triggers[p], struck)
		if !await(ctx, stirTime, struck) {
			// Of two that came by at one moment at the strike before, one may stand there still.
			for _, pid := range s.d.Roles() {
				syscall.Kill(pid, syscall.SIGCONT)
			}
			s.table.Arm(p, 1, others != nil)
		}
	}
	if others == nil {
		return killed + 1, true
	}
	s.table.Arm(p, 0, true) // nobody else stops there
	k := killer{d: s.d, rnd: s.rnd, victims: others}
	dead, _ := k.strike(ctx)
	s.table.Disarm(p)
	// If the role at the point lives, continue it. It reports the strike a moment before it
	// stops, so one SIGCONT may come too early. Two may have come by at the same moment, and
	// the table has one of them.
	await(context.WithoutCancel(ctx), pointTime, func() bool {
		for _, pid := range s.d.Roles() {
			syscall.Kill(pid, syscall.SIGCONT)
		}
		_, pid := s.table.Struck(p)
		return pid == 0 || syscall.Kill(pid, syscall.SIGCONT) != nil
	})
	return killed + dead, true
}

// trigger brings a role to a point, and returns how many processes it killed. If a role
// has come there by itself it may stand there, and what is waited for would not happen.
func (s *pointStriker) trigger(ctx context.Context, what trigger, struck func() bool) (killed int) {
	switch {
	case what.kill != nil:
		if s.d.Settle(ctx) {
			k := killer{d: s.d, rnd: s.rnd, victims: what.kill}
			killed, _ = k.strike(ctx)
		}
	case what.at != nil:
		before, _ := s.table.Struck(*what.at)
		s.table.Arm(*what.at, 1, false)
		reached := func() bool { n, _ := s.table.Struck(*what.at); return n > before }
		await(ctx, pointTime, func() bool { return reached() || struck() })
		s.table.Disarm(*what.at)
		if reached() {
			killed = 1
		}
	case what.upgrade:
		if s.d.Settle(ctx) {
			s.wg.Go(func() { s.upgrade(ctx) })
		}
	}
	return killed
}

// await polls for an event.
func await(ctx context.Context, bound time.Duration, ok func() bool) bool {
	for end := time.Now().Add(bound); !ok(); time.Sleep(time.Millisecond) {
		if ctx.Err() != nil || time.Now().After(end) {
			return false
		}
	}
	return true
}

// strikePoints is the run's striker for its points.
func (r *runner) strikePoints(c *tend.Client, rnd *rand.Rand) *pointStriker {
	s := &pointStriker{d: r.d, rnd: rnd, table: r.table, points: r.cfg.Points,
		missed: func(p failpoint.Point) {
			r.problem("no role reached %s in %v (%d times before): the run proves nothing for it", p, pointTime, r.table.Passed(p))
		},
		upgrade: func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			what := tend.Upgrade{Keeper: true}
			if len(r.cfg.Binaries) > 0 {
				what.Binary = r.cfg.Binaries[0]
			}
			if _, err := c.Upgrade(ctx, what); err == nil {
				r.noting(func(rep *Report) { rep.Upgrades++ })
			}
		}}
	if r.cfg.Together {
		s.together = func() Victims { return Combinations[rnd.IntN(len(Combinations))] }
	}
	return s
}

// notePoints counts the strikes at each point.
func (r *runner) notePoints() {
	r.report.Points = map[string]int{}
	for _, p := range failpoint.All() {
		n, _ := r.table.Struck(p)
		r.report.Points[fmt.Sprint(p)] = n
	}
}
