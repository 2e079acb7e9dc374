package healer

import (
	"fmt"
	"slices"
	"strings"
)

// machine is one step.
type machine struct {
	s  State
	e  *Entry
	do *Effect
}

// Step returns the state of an episode after an entry of its journal, and what to do then;
// nil: nothing new. It does not change the given state.
func Step(s State, e Entry) (State, *Effect) {
	s.Signals, s.Tries, s.Remedies = slices.Clone(s.Signals), slices.Clone(s.Tries), slices.Clone(s.Remedies)
	m := &machine{s: s, e: &e}
	m.handle()
	return m.s, m.do
}

// Fold computes the state from the entries of a journal. The next worker writes an entry
// Began, whose effect is what to do then.
func Fold(entries []Entry) (s State) {
	for _, e := range entries {
		s, _ = Step(s, e)
	}
	return s
}

func (m *machine) handle() {
	s, e := &m.s, m.e
	if e.Kind == Opened && s.Doing == Nothing {
		s.ID, s.Service, s.Opened, s.Status, s.DryRun, s.Back = e.ID, e.Service, e.At, Suspected, e.DryRun, e.Back
		if e.Signal != nil {
			s.Signals = append(s.Signals, *e.Signal)
		}
		s.Doing = Look // a worker is awaited
		return
	}
	if s.Doing == Nothing || s.Done() {
		return
	}
	switch e.Kind {
	case Signalled:
		if e.Signal != nil && len(s.Signals) < MaxSignals {
			s.Signals = append(s.Signals, *e.Signal)
		}
	case Began:
		if s.Boot == "" && s.Workers == 0 {
			s.Clock, s.Boot = e.Clock, e.Boot
		}
		m.began()
	case Answered:
		if e.Seq == s.Seq && e.Did == s.Doing {
			m.answered()
		}
	case Note:
		m.noted()
	case Expired:
		m.stop("its time was over")
	case Cancelled:
		why := "it was stopped"
		if e.Text != "" {
			why += ": " + e.Text
		}
		m.stop(why)
	}
}

// ask has something done, and awaits one answer to it.
func (m *machine) ask(a Action) {
	s := &m.s
	s.Doing = a
	s.Seq++
	m.do = &Effect{Do: a, Seq: s.Seq}
	switch a {
	case Look:
	case Verify:
		s.Status = Verifying
	default:
		s.Status = Healing
	}
	if t := s.Try(); t != nil {
		m.do.Try, m.do.Remedy = len(s.Tries), t.Remedy
	}
}

// began: another worker goes on. What the one before did last may have been done, or not,
// or half.
func (m *machine) began() {
	s := &m.s
	s.Workers++
	why := fmt.Sprintf("%d workers ended before it did", s.Workers-1)
	switch {
	case s.Workers > 2*MaxWorkers && s.Doing == Commit: // it is verified; only the commit is missing
		s.Open = false
		s.Left = append(slices.Clone(s.Left), "all: "+why)
		m.over(Ready, "")
		return
	case s.Workers > 2*MaxWorkers:
		s.Dirty, s.Open = s.Open, false
		m.over(Broken, why)
		return
	case s.Workers > MaxWorkers && s.Last == "":
		m.stop(why)
		if m.do != nil {
			return
		}
	}
	if s.Doing == Act && s.Open {
		// Nobody knows how far it came. A playbook is tried once more; an attempt of a
		// model is over, for what it was told is gone.
		t := &s.Tries[len(s.Tries)-1]
		s.Again = t.Kind == Book && !m.triedBefore(t.Remedy)
		if s.Unreached != "" { // it was told nothing: only workers are counted
			s.Again, s.Unreached, t.Unreached = true, "", true
		}
		t.Failed = Killed
		m.ask(Rollback)
		return
	}
	m.ask(s.Doing)
}

// noted: it is for people, but for what it says of the model that is being asked.
func (m *machine) noted() {
	s, e := &m.s, m.e
	if t := s.Try(); t == nil || t.Kind != Model || s.Doing != Act {
		return
	}
	switch e.Model {
	case Unreached:
		s.Unreached = e.why()
	case Reached:
		s.Unreached = ""
	}
}

// triedBefore reports whether the newest remedy was begun before.
func (m *machine) triedBefore(r Remedy) bool {
	return slices.ContainsFunc(m.s.Tries[:len(m.s.Tries)-1], func(t Try) bool { return t.Remedy == r })
}

func (m *machine) answered() {
	s, e := &m.s, m.e
	switch s.Doing {
	case Look:
		s.Remedies = slices.Clone(e.Remedies[:min(len(e.Remedies), MaxRemedies)])
		s.Proposal, s.Cause, s.Lived = e.Proposal, e.Cause, e.Lived
		switch s.Why = e.Text; {
		case s.DryRun:
			m.over(Broken, "nothing was done: it was only asked what would be")
		case len(s.Remedies) == 0 && (s.Back != "" || len(e.Changed) > 0):
			s.Changed = e.Changed
			m.over(Broken, e.Text)
		default:
			m.next()
		}
	case Checkpoint:
		if s.Open = e.OK; !e.OK {
			m.fail("there is no checkpoint, and so nothing was changed: " + e.Text)
			return
		}
		s.Rollbacks, s.Verified, s.Reviewed = 0, false, false
		m.ask(Act)
	case Act:
		t := &s.Tries[len(s.Tries)-1]
		t.Text, t.Paths, t.Tokens, t.Steps, t.Cost = e.Text, e.Paths, e.Tokens, e.Steps, e.Cost
		if t.Kind == Undo {
			m.undone()
			return
		}
		if s.Unreached = ""; !e.OK && t.Kind == Model && e.Model == Unreached {
			t.Unreached, s.Unreached = true, e.why()
		}
		if !e.OK {
			m.fail(e.Text)
			return
		}
		m.ask(Verify)
	case Verify:
		switch {
		case !e.OK:
			m.fail(e.Text)
		case s.Open:
			s.Verified = true
			m.ask(Review)
		default:
			m.over(Ready, e.Text)
		}
	case Review:
		switch {
		case !e.OK:
			m.fail(e.Text)
		case s.Tries[len(s.Tries)-1].Keep:
			s.Reviewed, s.Open = true, false
			m.over(Ready, e.Text)
		default:
			s.Reviewed = true
			m.ask(Commit)
		}
	case Commit:
		s.Open = false
		if s.Committed, s.Left = e.Commit, e.Left; !e.OK {
			s.Left = append(slices.Clone(s.Left), e.Text)
		}
		m.over(Ready, e.Text)
	case Rollback:
		if e.OK {
			s.Open = false
			m.failed()
			return
		}
		if s.Rollbacks++; s.Rollbacks < MaxRollbacks {
			m.ask(Rollback)
			return
		}
		s.Dirty, s.Open = true, false
		m.over(Broken, "what was tried could not be taken back, and the tree is not as it was: "+e.Text)
	}
}

// undone: a repair was taken back, or nothing was done. The service is as well as it was
// before the repair, so nothing is verified. If that was since it did not last, it is as broken.
func (m *machine) undone() {
	s, e := &m.s, m.e
	if !e.OK {
		s.Tries[len(s.Tries)-1].Failed, s.Changed = e.why(), e.Changed
		m.over(Broken, e.Text)
		return
	}
	s.Committed, s.Left = e.Commit, e.Left
	if s.Back == "" {
		m.over(Broken, "the repair "+s.Tries[len(s.Tries)-1].Name+" has not lasted, and was taken back: "+e.Text)
		return
	}
	m.over(Ready, e.Text)
}

// fail: the remedy did not help.
func (m *machine) fail(why string) {
	s := &m.s
	if t := s.Try(); t != nil && t.Failed == "" {
		t.Failed = why
		if why == "" {
			t.Failed = "it did not help"
		}
	}
	if s.Open {
		m.ask(Rollback)
		return
	}
	m.failed()
}

// failed: the remedy did not help, and the tree is as it was.
func (m *machine) failed() {
	s := &m.s
	if n := len(s.Tries); n > 0 && s.Tries[n-1].Ended.IsZero() {
		s.Tries[n-1].Ended = m.e.At
	}
	if s.Last != "" {
		m.over(Broken, s.Last)
		return
	}
	if s.Again {
		s.Again = false
		s.Begun--
	}
	m.next()
}

// next begins the next remedy.
func (m *machine) next() {
	s := &m.s
	for s.Unreached != "" && s.Begun < len(s.Remedies) && s.Remedies[s.Begun].Kind == Model {
		s.Begun++ // it would come to the same
	}
	if s.Begun >= len(s.Remedies) {
		m.over(Broken, s.exhausted())
		return
	}
	r := s.Remedies[s.Begun]
	s.Begun++
	s.Tries = append(s.Tries, Try{Remedy: r, Begun: m.e.At})
	s.Verified, s.Reviewed, s.Rollbacks = false, false, 0
	if r.Tree {
		m.ask(Checkpoint)
	} else {
		m.ask(Act)
	}
}

// exhausted says why nothing more is tried.
func (s *State) exhausted() string {
	var last *Try
	for i := range s.Tries {
		if !s.Tries[i].Unreached {
			last = &s.Tries[i]
		}
	}
	why := "nothing that was tried has helped"
	switch {
	case last != nil && last.Failed != "":
		why += "; the last was " + last.Remedy.String() + ": " + last.Failed
	case last == nil && s.Unreached == "":
		why = "there is no remedy for it"
		if text := strings.TrimSpace(s.Why); text != "" {
			why += ": " + text
		}
	}
	switch {
	case s.Unreached == "":
		return why
	case last == nil:
		return s.unmade()
	}
	return why + "; and then " + s.unmade()
}

// unmade says that the model did not answer.
func (s *State) unmade() string {
	what := "no attempt of the model could be made: "
	if slices.ContainsFunc(s.Tries, func(t Try) bool { return t.Kind == Model && !t.Unreached }) {
		what = "no further attempt of the model could be made: "
	}
	return what + s.Unreached
}

// undoes reports whether a repair is being taken back, and not only looked at.
func (s *State) undoes() bool {
	t := s.Try()
	return t != nil && t.Kind == Undo
}

// stop ends the episode from outside, once what is open is rolled back. A commit that was
// begun comes to its end, and so does the taking back of a repair.
func (m *machine) stop(why string) {
	s := &m.s
	if s.Doing == Commit || s.Doing == Rollback && s.Last != "" || s.undoes() {
		return
	}
	if t := s.Try(); s.Unreached != "" && t != nil && t.Kind == Model {
		t.Unreached = true
		why += "; " + s.unmade()
	}
	s.Last, s.Again = why, false
	switch {
	case s.Doing == Rollback: // and then it is over
	case s.Open:
		if t := s.Try(); t != nil && t.Failed == "" {
			t.Failed = why
		}
		m.ask(Rollback)
	default:
		if t := s.Try(); t != nil && t.Failed == "" {
			t.Failed, t.Ended = why, m.e.At
		}
		m.over(Broken, why)
	}
}

func (m *machine) over(st Status, why string) {
	s := &m.s
	if n := len(s.Tries); n > 0 && s.Tries[n-1].Ended.IsZero() {
		s.Tries[n-1].Ended = m.e.At
	}
	s.Doing, s.Status, s.Why, s.Ended = Over, st, why, m.e.At
	s.Seq++
	m.do = &Effect{Do: Over, Seq: s.Seq}
}
