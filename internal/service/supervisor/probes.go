package supervisor

import (
	"cmp"
	"fmt"
	"time"

	"github.com/tend-run/tend/internal/service/config"
)

// firstAsk is how soon after its start a service is asked first how it is. Until it
// is up, each question comes twice as late as the one before, up to the interval.
const firstAsk = 50 * time.Millisecond

// doubtful is how many times its bound of failures may be in doubt, in a row.
const doubtful = 5

// ProbeOf returns the probe of a service for a role; nil: none. A health probe has the
// roles startup and liveness.
func ProbeOf(r *config.Service, role Role) *config.Probe {
	switch role {
	case Startup:
		if r.Health != nil {
			return r.Health
		}
		return r.Startup
	case Readiness:
		return r.Readiness
	case Liveness:
		if r.Health != nil {
			if r.Health.Log != "" {
				return nil // a line that was seen stays seen
			}
			return r.Health
		}
		return r.Liveness
	}
	return nil
}

// arm begins to ask a service that runs, from the start or from where it stood.
func (m *machine) arm() {
	s := &m.s
	if s.Away != "" {
		m.still()
		return
	}
	s.Until = 0
	begun := s.Probes[Startup].OK
	for role := range roles {
		p := &s.Probes[role]
		rule := ProbeOf(m.r, role)
		*p = Probe{Seq: p.Seq + 1, OK: p.OK && (rule != nil || role == Startup)}
		switch {
		case rule == nil || rule.Log != "":
		case role == Startup && !begun:
			p.Next = m.now.Add(firstAsk)
		}
	}
	if rule := ProbeOf(m.r, Startup); rule == nil || begun {
		m.begun()
	} else if rule.Start > 0 {
		s.Until = m.now.Add(rule.Start.Std())
	}
	m.readiness()
}

// begun: startup is over, and the other probes begin.
func (m *machine) begun() {
	m.s.Until = 0
	m.s.Probes[Startup].OK = true
	m.s.Probes[Startup].Next, m.s.Probes[Startup].Asked = 0, 0
	for _, role := range []Role{Readiness, Liveness} {
		rule := ProbeOf(m.r, role)
		if rule == nil || rule.Log != "" {
			continue
		}
		wait := firstAsk
		if m.r.Health != nil { // it has just answered
			wait = rule.Interval.Std()
		}
		m.s.Probes[role].Next = m.now.Add(wait)
	}
}

// ask puts the questions whose time has come.
func (m *machine) ask() {
	if m.s.Phase != Running || m.s.Away != "" {
		return
	}
	for role := range roles {
		p := &m.s.Probes[role]
		if p.Next != 0 && p.Next <= m.now {
			p.Next, p.Asked = 0, m.now
			p.Seq++
			m.do(Effect{Kind: Ask, Run: m.s.Run, Role: role, Seq: p.Seq})
		}
	}
}

// probed takes an answer.
func (m *machine) probed() {
	s, ev := &m.s, &m.ev
	if s.Phase != Running || ev.Role >= roles {
		return
	}
	rule, p := ProbeOf(m.r, ev.Role), &s.Probes[ev.Role]
	if rule == nil || (rule.Log != "") != (ev.Seq == 0) || ev.Seq != 0 && (p.Asked == 0 || ev.Seq != p.Seq) {
		return
	}
	asked := p.Asked
	p.Asked = 0
	if ev.OK {
		p.Failures, p.Doubts, p.OK, p.Text = 0, 0, true, ""
		switch {
		case ev.Role == Startup:
			m.begun()
		case ev.Seq != 0:
			p.Next = max(m.now, asked.Add(rule.Interval.Std()))
		}
		m.readiness()
		return
	}
	if ev.Seq == 0 {
		return
	}
	p.Text = ev.Text
	p.Next = max(m.now, asked.Add(rule.Retry.Std()))
	late := m.now.Sub(asked) > rule.Timeout.Std()+slack // whoever asked stood still
	if (late || ev.Doubt) && p.Doubts < doubtful*rule.Failures {
		p.Doubts++
		return
	}
	p.Failures++
	switch ev.Role {
	case Startup: // it has until the deadline
		soon := min(firstAsk<<min(p.Failures, 16), rule.Interval.Std())
		p.Next = max(m.now, asked.Add(soon))
	case Readiness:
		if p.Failures >= rule.Failures {
			p.OK = false
			m.readiness()
		}
	case Liveness:
		if p.Failures >= rule.Failures {
			m.unhealthy(Liveness)
		}
	}
}

// unhealthy restarts a service that does not answer as it should.
func (m *machine) unhealthy(role Role) {
	p := m.s.Probes[role]
	why := fmt.Sprintf("its %s probe failed %d times in a row", role, p.Failures)
	if role == Startup {
		why = fmt.Sprintf("it was not up within %v", ProbeOf(m.r, Startup).Start)
	}
	if p.Text != "" {
		why += ": " + p.Text
	}
	why = m.starved(why)
	m.report(NoticeUnhealthy, why)
	m.stop(thenRecover, why)
}

// readiness works out whether others can use the service.
func (m *machine) readiness() {
	s := &m.s
	ready := s.Phase == Running && s.Away == "" && s.Probes[Startup].OK && (m.r.Readiness == nil || s.Probes[Readiness].OK)
	if ready == s.Ready {
		return
	}
	s.Ready = ready
	if ready {
		m.report(NoticeReady, "")
		m.greet()
	} else {
		m.report(NoticeUnready, cmp.Or(s.Away, s.Probes[Readiness].Text))
	}
}
