package supervisor

// placed: the sandbox of a service is there, or it is not.
func (m *machine) placed() {
	s, was := &m.s, m.s.Away
	if s.Away = m.ev.Text; m.ev.OK || m.r.Sandbox == "" {
		s.Away = ""
	}
	if s.Away == was {
		return
	}
	if was == "" && s.Up {
		m.report(NoticeAway, s.Away)
	}
	switch {
	case s.Phase == Waiting:
		m.begin("")
	case s.Phase != Running:
	case s.Away != "":
		m.still()
	default: // it has its times from here on
		m.report(NoticeResumed, "its sandbox goes on")
		m.arm()
	}
}

// still: what runs stands still. It is asked nothing, and nothing is to happen.
func (m *machine) still() {
	s := &m.s
	s.Until = 0
	for i := range s.Probes {
		p := &s.Probes[i]
		*p = Probe{Seq: p.Seq + 1, OK: p.OK}
	}
	m.readiness()
}
