package supervisor

import (
	"fmt"
	"slices"
	"time"

	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/process"
)

const (
	// slack is how late an event may come without more being behind it than load.
	slack = 2 * time.Second
	// again is how soon a start is repeated whose result is not known.
	again = 200 * time.Millisecond
	// killAgain is how soon a kill is repeated that has left something alive.
	killAgain = 10 * time.Second
)

// machine is one step.
type machine struct {
	r   *config.Service
	s   State
	ev  Event
	now Time
	out []Effect
}

// Step returns the next state of a service with the declaration r after an event, and
// the effects to carry out, in order. It does not modify s.
func Step(r *config.Service, s State, ev Event) (State, []Effect) {
	if s.Foreign {
		return s, nil
	}
	if r.Sandbox == "" {
		s.Away = ""
	}
	s.Restarts, s.Changes, s.Lines = slices.Clone(s.Restarts), slices.Clone(s.Changes), slices.Clone(s.Lines)
	m := &machine{r: r, s: s, ev: ev, now: max(ev.At, s.Last)}
	m.freeze()
	m.handle()
	m.due()
	m.s.Last = m.now
	return m.s, m.out
}

func (m *machine) do(e Effect) { m.out = append(m.out, e) }

func (m *machine) report(n Notice, text string) {
	m.do(Effect{Kind: Report, Run: m.s.Run, Notice: n, Text: text})
}

// enter begins a phase, with a deadline after wait; a negative wait: none.
func (m *machine) enter(p Phase, wait time.Duration, why string) {
	if m.s.Phase != p || m.s.Why != why {
		m.s.Since = m.now
	}
	m.s.Phase, m.s.Why, m.s.Until = p, why, 0
	if wait >= 0 {
		m.s.Until = m.now.Add(wait)
	}
	m.s.Hook = NoHook
	if p != Running {
		for i := range m.s.Probes {
			m.s.Probes[i] = Probe{Seq: m.s.Probes[i].Seq}
		}
		m.s.Ready, m.s.Forked = false, false
	}
}

// freeze finds out whether time has passed in which nothing could happen, and moves
// what was to happen in it.
func (m *machine) freeze() {
	gap := time.Duration(0)
	if m.ev.Kind == Resumed {
		gap = max(0, m.ev.Gap)
	} else if next := m.s.Deadline(); next != 0 && m.ev.Kind != Found && m.now.Sub(next) > slack {
		// Since the last event, as far as is known: whoever waits gets its time again.
		// A caller that is late each time would never come to an end, so once is enough.
		if gap = m.now.Sub(m.s.Last); m.s.Late {
			gap = m.now.Sub(next)
		}
		m.s.Late = true
	} else {
		m.s.Late = false
	}
	if gap <= slack {
		return
	}
	if m.s.Until != 0 {
		m.s.Until = m.s.Until.Add(gap)
	}
	for i := range m.s.Probes {
		p := &m.s.Probes[i]
		if p.Asked != 0 { // the answer says nothing
			p.Asked, p.Next = 0, m.now
			p.Seq++
		} else if p.Next != 0 {
			p.Next = max(m.now, p.Next)
		}
		p.Failures = 0
	}
	if m.s.Phase == Running {
		m.report(NoticeResumed, fmt.Sprintf("it stood still for about %v", gap.Round(time.Second)))
	}
}

func (m *machine) handle() {
	s, ev := &m.s, &m.ev
	switch ev.Kind {
	case WantUp:
		was := s.Up
		s.Up = true
		switch {
		case was && s.Phase == Completed:
		case s.Phase == Stopping || s.Phase == Killing:
			if s.Then == thenIdle {
				s.Then = thenRestart
			}
		case !s.Phase.Alive() && s.Phase != Pausing && s.Phase != Waiting:
			s.Look = true
			m.fresh("")
		}
	case WantDown:
		s.Up = false
		switch s.Phase {
		case Running:
			m.stop(thenIdle, "it was stopped")
		case Starting:
			m.kill(thenIdle, "it was stopped")
		case Stopping, Killing:
			s.Then = thenIdle
		default:
			m.enter(Idle, -1, "")
		}
	case WantRestart:
		s.Up, s.Due = true, m.r.Schedule != nil
		m.restart("a restart was asked for")
	case WantAdopted:
		if !s.Phase.Alive() && ev.Adopted != nil {
			m.adopt()
		}
	case Changed:
		if s.Up {
			m.changed()
		}
	case Bounced:
		if s.Phase == Running || s.Phase == Starting {
			m.restart(ev.Text)
		}
	case Due:
		m.dueNow()
	case Needs:
		s.Met, s.Unmet = ev.OK, ev.Text
		if s.Phase == Waiting {
			m.begin("")
		}
	case Placed:
		m.placed()
	case Stuck:
		if s.Phase == Running && ev.Run == s.Run && s.Away == "" {
			m.report(NoticeStuck, ev.Text)
			if m.r.Log.Stuck == "restart" {
				m.stop(thenRecover, "its log is stuck")
			}
		}
	case Pressure:
		if s.Phase == Running && ev.Run == s.Run && s.Away == "" {
			m.report(NoticePressure, ev.Text)
			if m.r.Pressure != nil && m.r.Pressure.Restart && ev.OK {
				m.stop(thenRecover, ev.Text)
			}
		}
	case Unheld:
		if s.Phase == Running && ev.Run == s.Run {
			m.report(NoticeUnheld, ev.Text)
			if m.r.Restart.Policy != "never" {
				m.stop(thenRecover, ev.Text)
			}
		}
	case Elsewhere:
		if s.Phase == Running && ev.Run == s.Run && s.Away == "" && !s.Probes[Startup].OK {
			m.report(NoticeElsewhere, ev.Text)
		}
	case Starved:
		if s.Phase == Running && ev.Run == s.Run {
			s.Starved = "the kernel has killed a process of it for want of memory" + m.limitText()
			m.report(NoticeStarved, s.Starved)
		}
	case Found:
		m.found()
	case Ruled:
		if s.Phase == Running {
			m.arm()
		}
	case Tick, Resumed:
	default:
		if ev.Run == s.Run {
			m.ofRun()
		}
	}
}

// ofRun handles the events about the newest run.
func (m *machine) ofRun() {
	s, ev := &m.s, &m.ev
	switch ev.Kind {
	case Launched:
		if s.Phase == Starting {
			m.launched()
		}
	case NotLaunched:
		if s.Phase == Starting {
			m.notLaunched("it could not be started: " + ev.Text)
		} else if s.Phase == Killing {
			m.gone()
		}
	case Absent:
		if s.Phase == Starting && s.Look {
			s.Look = false
			m.start()
		}
	case Unknown:
		if s.Phase == Starting {
			s.Until = m.now.Add(again)
		}
	case Exited:
		m.exited(ev.Exit, ev.Gone)
	case TreeGone:
		switch {
		case s.Phase == Killing:
			m.gone()
		case s.Phase == Running && s.Forked:
			s.Then, s.Why = thenRecover, "its last process has ended"
			if s.Away != "" { // with its sandbox
				s.Then = thenRestart
			} else {
				m.report(NoticeExit, s.Why)
			}
			m.gone()
		case s.Phase == Stopping:
			m.gone()
		}
	case Probed:
		m.probed()
	case HookDone:
		m.hookDone()
	case Line:
		if s.Phase == Running && !slices.Contains(s.Lines, ev.Text) {
			s.Lines = append(s.Lines, ev.Text)
		}
	}
}

// notLaunched: there was no start.
func (m *machine) notLaunched(why string) {
	if m.s.Away != "" { // nobody's fault, and so it does not count
		m.s.Exit, m.s.Done, m.s.Then, m.s.Why = nil, false, thenRestart, m.s.Away
		m.gone()
		return
	}
	m.report(NoticeExit, why)
	m.s.Exit, m.s.Done, m.s.Then, m.s.Why = nil, false, thenRecover, why
	m.gone()
}

// launched: the process runs.
func (m *machine) launched() {
	m.s.Look = false
	why := ""
	if m.ev.Kind == Launched || m.ev.Kind == WantAdopted {
		m.s.Adopted, m.s.AdoptedBy = m.ev.Adopted, m.ev.By
	}
	if a := m.s.Adopted; a != nil {
		why = fmt.Sprintf("adopted: tend did not start pid %d, and has no output of it", a.PID)
	}
	m.enter(Running, -1, why)
	m.s.Started = m.now
	m.report(NoticeStarted, why)
	m.arm()
}

// adopt: somebody has named the process that the service is.
func (m *machine) adopt() {
	s := &m.s
	s.Up, s.Restarts = true, nil
	s.Run++
	s.Due, s.Done, s.Lines = false, false, nil
	s.Greeting, s.Greeted, s.Starved = false, false, ""
	m.launched()
}

// exited: the process itself has ended.
func (m *machine) exited(e *process.Exit, gone bool) {
	s := &m.s
	switch s.Phase {
	case Starting: // the news of the start was lost
		m.launched()
	case Running, Stopping:
	case Killing:
		s.Exit = e
		if gone {
			m.gone()
		}
		return
	default:
		return
	}
	if s.Phase == Running && s.Forked {
		return
	}
	if m.r.Forks && s.Phase == Running && m.success(e) && !gone {
		s.Forked = true
		return
	}
	s.Exit, s.Done = e, m.success(e)
	if s.Phase == Running {
		text := m.exitText(e)
		s.Then, s.Why = thenJudge, "it ended: "+text
		if s.Away != "" && !s.Done { // it ended with its sandbox
			s.Why += "; " + s.Away
		} else {
			m.do(Effect{Kind: Report, Run: s.Run, Notice: NoticeExit, Text: text, Meant: s.Done || byPeople(e)})
		}
	}
	if gone {
		m.gone()
		return
	}
	// What it has left behind may hold its port, its files or its pipe.
	m.kill(s.Then, s.Why)
}

func (m *machine) success(e *process.Exit) bool {
	return e != nil && !e.Lost() && e.Signal == 0 && e.Cause == process.CauseExited && slices.Contains(m.r.Restart.SuccessCodes, e.Code)
}

// byPeople reports whether a process has ended by a signal with which people end programs:
// SIGHUP, SIGINT, SIGTERM.
func byPeople(e *process.Exit) bool {
	return e != nil && (e.Signal == 1 || e.Signal == 2 || e.Signal == 15)
}

// exitText says how a process has ended, and what the kernel had to do with it.
func (m *machine) exitText(e *process.Exit) string {
	if m.s.Adopted != nil && e.Lost() {
		return "its status is not known: tend did not start it"
	}
	if e.Cause == process.CauseOOM && e.Signal == 0 {
		return e.String() + ": the kernel has killed what it ran, for want of memory" + m.limitText()
	}
	if e.Cause == process.CauseOOM {
		return e.String() + ", by the kernel for want of memory" + m.limitText()
	}
	return m.starved(e.String())
}

// limitText is the limit of a service's memory, in words; "": it has none of its own.
func (m *machine) limitText() string {
	if m.r.Limits.Memory <= 0 {
		return ""
	}
	return fmt.Sprintf(" (limits.memory is %.4g MiB)", float64(m.r.Limits.Memory)/(1<<20))
}

// starved adds to what has happened that the kernel has killed processes of the run before.
func (m *machine) starved(text string) string {
	if m.s.Starved == "" {
		return text
	}
	return text + "; " + m.s.Starved
}

// stop ends the tree, after its hook.
func (m *machine) stop(t then, why string) {
	if !m.during(PreStop, t, why) {
		m.signal(t, why)
	}
}

// signal asks the tree to end.
func (m *machine) signal(t then, why string) {
	if m.r.Stop.Signal == 9 {
		m.kill(t, why)
		return
	}
	m.enter(Stopping, m.r.Stop.Timeout.Std(), why)
	m.s.Then = t
	m.do(Effect{Kind: Signal, Run: m.s.Run, Number: int(m.r.Stop.Signal)})
}

func (m *machine) kill(t then, why string) {
	m.enter(Killing, killAgain, why)
	m.s.Then = t
	m.do(Effect{Kind: Kill, Run: m.s.Run})
}

// restart ends the service, if it runs, and starts it again. Nothing of it counts.
func (m *machine) restart(why string) {
	switch m.s.Phase {
	case Running:
		m.stop(thenRestart, why)
	case Starting:
		m.kill(thenRestart, why)
	case Stopping, Killing:
		m.s.Then = thenRestart
	case Waiting:
		m.begin(why)
	default:
		m.fresh(why)
	}
}

// fresh starts with an empty window.
func (m *machine) fresh(why string) {
	m.s.Restarts, m.s.Done = nil, false
	m.begin(why)
}

// dueNow: a time of the schedule has come.
func (m *machine) dueNow() {
	s := &m.s
	if m.r.Schedule == nil || !s.Up {
		return
	}
	switch {
	case s.Phase.Alive():
		if m.r.Schedule.Overlap == "restart" && s.Away == "" {
			s.Due = true
			m.restart("its time has come again")
		}
	case s.Phase != Pausing:
		s.Due = true
		m.fresh("its time has come")
	}
}

// due does what the deadline asks for.
func (m *machine) due() {
	s := &m.s
	if s.Until != 0 && s.Until <= m.now {
		s.Until = 0
		switch s.Phase {
		case Pausing:
			s.Due = s.Due || m.r.Schedule != nil
			m.begin(s.Why)
		case Failed:
			s.Due = s.Due || m.r.Schedule != nil
			m.fresh("another try after: " + s.Why)
		case Starting:
			if s.Look {
				m.start()
			} else {
				m.do(Effect{Kind: Launch, Run: s.Run})
			}
		case Stopping:
			switch s.Hook { // it should have ended long ago
			case PreStop:
				m.signal(s.Then, s.Why)
			case PostStop:
				m.report(NoticeHook, "its hook post_stop has not ended")
				if !m.during(PostStop, s.Then, s.Why) {
					m.over()
				}
			default:
				m.kill(s.Then, s.Why)
			}
		case Killing:
			m.report(NoticeSurvivor, "its tree is not gone")
			m.kill(s.Then, s.Why)
		case Running: // startup did not come to an end
			m.unhealthy(Startup)
		}
	}
	m.ask()
}
