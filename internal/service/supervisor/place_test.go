package supervisor

import (
	"testing"
	"time"
)

const paused = "its sandbox s is paused"

func (w *tale) place(away, want string) {
	w.t.Helper()
	w.want(Event{Kind: Placed, OK: away == "", Text: away}, want)
}

func TestWhatStandsStillWithItsSandboxIsAskedNothing(t *testing.T) {
	w := newTale(t, "sandbox: s, health: {tcp: 80, failures: 1, start: 10s}, log: {pattern: x, stuck: restart}, pressure: {restart: true}, schedule: {cron: '@daily', overlap: restart}")
	w.want(Event{Kind: WantUp}, "→ waiting")
	w.want(Event{Kind: Due}, "launch 1, → starting")
	w.want(Event{Kind: Launched}, "started, → running")
	w.tick(50*time.Millisecond, "ask startup, → running")
	asked := w.s.Probes[Startup].Seq
	w.place(paused, "away, → running")
	w.place(paused, "→ running")
	w.want(Event{Kind: Probed, Role: Startup, Seq: asked, Text: "no answer"}, "→ running")
	w.want(Event{Kind: Stuck, Text: "x"}, "→ running")
	w.want(Event{Kind: Pressure, OK: true}, "→ running")
	w.want(Event{Kind: Due}, "→ running")
	w.want(Event{Kind: Ruled}, "→ running")
	if d := w.s.Deadline(); d != 0 {
		t.Errorf("something is to happen at %v", d)
	}
	w.now += 24 * time.Hour
	w.place("", "resumed, → running")
	w.tick(50*time.Millisecond, "ask startup, → running")
	w.answer(Startup, true, "ready, → running")
	w.place("its sandbox s is stopped", "away, unready, → running")
	w.place(paused, "→ running")
	if w.s.Away != paused || w.s.Run != 1 || w.s.Total != 0 {
		t.Errorf("it is %+v", w.s)
	}
	w.want(Event{Kind: Found, Alive: true}, "→ running")
	w.place("", "resumed, ready, → running")
}

func TestWhatEndsWithItsSandboxHasNotFailed(t *testing.T) {
	const stopped = "its sandbox s is stopped"
	for rules, back := range map[string]string{
		"sandbox: s, restart: {max: 0}":                                            "launch 2, → starting",
		"sandbox: s, restart: {policy: on-failure, max: 0}, hooks: {pre_start: x}": "pre_start, → starting",
	} {
		w := newTale(t, rules)
		w.s.Phase, w.s.Up, w.s.Run = Running, true, 1
		w.place(stopped, "away, → running")
		w.want(killed(9), "→ waiting")
		if w.s.Why != stopped || w.s.Total != 0 || len(w.s.Restarts) != 0 {
			t.Errorf("it is %+v", w.s)
		}
		w.place(paused, "→ waiting")
		if w.s.Why != paused {
			t.Errorf("it waits because %s", w.s.Why)
		}
		w.want(Event{Kind: WantRestart}, "→ waiting")
		w.place("", back)
		// It ends again, and the start finds that out.
		w.place(stopped, "away, → starting")
		if w.s.Hook == PreStart {
			w.want(Event{Kind: HookDone, Hook: PreStart, Text: stopped}, "→ waiting")
		} else {
			w.want(Event{Kind: NotLaunched, Text: stopped}, "→ waiting")
		}
		w.want(Event{Kind: WantDown}, "→ idle")
		w.place("", "→ idle")
	}
	w := newTale(t, "sandbox: s, restart: never")
	w.up()
	w.place(stopped, "away, unready, → running")
	w.want(killed(9), "failed, → failed")
	w = newTale(t, "sandbox: s, forks: true, restart: {max: 0}")
	w.up()
	w.want(Event{Kind: Exited, Exit: exit(0).Exit}, "→ running")
	w.place(stopped, "away, unready, → running")
	w.want(Event{Kind: TreeGone}, "→ waiting")
	w = newTale(t, "") // out of the sandbox
	w.s.Away = stopped
	w.up()
}
