package supervisor

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/tend-run/tend/process"
)

const (
	// flapAt is how many restarts within the window are called flapping.
	flapAt = 3
	// maxChanges is how many changes of watched files restart it within changesWithin.
	maxChanges    = 20
	changesWithin = time.Minute
	// maxTimes bounds the restarts that are remembered of a service without a bound.
	maxTimes = 64
)

// gone: nothing of the run is left, and its last hook follows.
func (m *machine) gone() {
	s := &m.s
	s.Started, s.Lines = 0, nil
	if s.Hook == PostStop && m.ev.Kind != Found {
		return // it runs
	}
	if s.Greeting || s.Hook == PreStop { // its hook has nothing any more that it is for
		s.Greeting = false
		m.do(Effect{Kind: Kill, Run: s.Run})
	}
	if !m.during(PostStop, s.Then, s.Why) {
		m.over()
	}
}

// over: the run is over, and so is its last hook.
func (m *machine) over() {
	s := &m.s
	why := s.Why
	switch {
	case !s.Up || s.Then == thenIdle:
		m.enter(Idle, -1, "")
	case s.Then == thenRestart:
		m.fresh(why)
	case s.Then == thenRecover:
		m.recover(why)
	default:
		m.judge(why)
	}
}

// judge decides by the exit and the policy.
func (m *machine) judge(why string) {
	r, e := &m.r.Restart, m.s.Exit
	switch {
	case e == nil:
		m.recover(why)
	case (e.Lost() || e.Cause == process.CauseShutdown || m.s.Away != "" && !m.s.Done) && r.Policy != "never":
		m.begin(why) // nobody's fault, and so it does not count
	case !e.Lost() && e.Signal == 0 && slices.Contains(r.PermanentCodes, e.Code):
		m.fail(fmt.Sprintf("exit status %d is permanent", e.Code), false)
	case m.s.Done && r.Policy != "always":
		m.enter(Completed, -1, why)
		m.report(NoticeCompleted, why)
		if m.r.Schedule != nil {
			m.begin("")
		}
	case r.Policy == "never":
		m.fail(why, false)
	default:
		m.recover(why)
	}
}

// recover restarts by itself, unless that was done too often, or is not wanted.
func (m *machine) recover(why string) {
	r, s := &m.r.Restart, &m.s
	if r.Policy == "never" {
		m.fail(why, false)
		return
	}
	s.Restarts = slices.DeleteFunc(s.Restarts, func(t Time) bool { return m.now.Sub(t) > r.Within.Std() })
	if r.Max > 0 && len(s.Restarts) >= r.Max {
		m.fail(fmt.Sprintf("%s; and it was restarted %d times within %v", why, len(s.Restarts), r.Within), true)
		return
	}
	s.Restarts = append(s.Restarts, m.now)
	if len(s.Restarts) > max(maxTimes, r.Max) {
		s.Restarts = s.Restarts[1:]
	}
	s.Total++
	n := len(s.Restarts)
	if n == flapAt {
		m.report(NoticeFlapping, fmt.Sprintf("%d restarts within %v; the last one because %s", n, r.Within, why))
	}
	if wait := m.wait(n); wait > 0 {
		m.enter(Pausing, wait, why)
		return
	}
	m.begin(why)
}

// wait is how long the n-th restart of a window waits.
func (m *machine) wait(n int) time.Duration {
	r := &m.r.Restart
	if n <= 1 {
		return 0
	}
	wait := min(float64(r.Delay)*math.Pow(r.Factor, float64(n-2)), float64(r.MaxDelay))
	return time.Duration(wait * (1 + r.Jitter*(2*m.ev.Random-1)))
}

// fail gives up; with retry for as long as the rules say.
func (m *machine) fail(why string, retry bool) {
	wait := time.Duration(-1)
	if d := m.r.Restart.Retry.Std(); retry && d > 0 {
		wait = d
	}
	m.enter(Failed, wait, why)
	m.report(NoticeFailed, why)
}

// begin starts the service, or waits for what it needs.
func (m *machine) begin(why string) {
	s := &m.s
	switch {
	case !s.Up:
		m.enter(Idle, -1, "")
	case m.r.Schedule != nil && !s.Due:
		m.enter(Waiting, -1, "for its time")
	case s.Away != "":
		m.enter(Waiting, -1, s.Away)
	case !s.Met && len(m.r.DependsOn) > 0:
		m.enter(Waiting, -1, "for "+s.Unmet)
	default:
		s.Run++
		s.Due, s.Done, s.Started, s.Lines = false, false, 0, nil
		s.Greeting, s.Greeted, s.Starved, s.Adopted, s.AdoptedBy = false, false, "", nil, nil
		m.enter(Starting, -1, why)
		m.start()
	}
}

// changed restarts for a watched file, unless that happens again and again: then it is
// probably the service itself that writes it, and it is left in peace.
func (m *machine) changed() {
	s := &m.s
	why := cmp.Or(m.ev.Text, "a watched file") + " has changed"
	s.Changes = slices.DeleteFunc(s.Changes, func(t Time) bool { return m.now.Sub(t) > changesWithin })
	switch n := len(s.Changes); {
	case n > maxChanges:
		return // that was said
	case n == maxChanges:
		s.Changes = append(s.Changes, m.now)
		m.report(NoticeUnfollowed,
			fmt.Sprintf("%s, but it was restarted for changes %d times within %v: does it write what watch names? Leave that out with ignore",
				why, n, changesWithin))
		return
	}
	if s.Phase != Waiting { // a start follows, also while it pauses or after it has failed
		s.Changes = append(s.Changes, m.now)
	}
	m.restart(why)
}
