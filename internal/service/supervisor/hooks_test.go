package supervisor

import (
	"testing"
	"time"

	"github.com/tend-run/tend/process"
)

const allHooks = "hooks: {pre_start: a, post_start: [b], pre_stop: {command: c, timeout: 3s}, post_stop: {command: d}}"

func hook(h Hook, ok bool) Event {
	return Event{Kind: HookDone, Hook: h, OK: ok, Text: "exit status 1"}
}

func TestHooksComeAtTheirPoints(t *testing.T) {
	w := newTale(t, allHooks+", health: {tcp: 80}")
	w.want(Event{Kind: WantUp}, "pre_start, → starting")
	w.want(hook(PreStart, true), "launch 1, → starting")
	w.want(hook(PreStart, true), "→ starting") // once
	w.want(Event{Kind: Launched}, "started, → running")
	w.tick(firstAsk, "ask startup, → running")
	w.answer(Startup, true, "ready, post_start, → running")
	w.want(hook(PostStart, false), "hook, → running")
	w.want(Event{Kind: WantDown}, "pre_stop, → stopping")
	w.want(hook(PreStop, true), "signal 15, → stopping")
	w.want(exit(0), "post_stop, → stopping")
	w.want(exit(0), "→ stopping")
	w.want(hook(PostStop, true), "→ idle")
	// What is ready again needs no second greeting.
	w = newTale(t, "hooks: {post_start: b}, readiness: {tcp: 80, failures: 1}")
	w.want(Event{Kind: WantUp}, "launch 1, → starting")
	w.want(Event{Kind: Launched}, "started, → running")
	w.tick(firstAsk, "ask readiness, → running")
	w.answer(Readiness, true, "ready, post_start, → running")
	for _, ok := range []bool{false, true} {
		w.now += time.Minute
		w.ev(Event{Kind: Tick})
		w.answer(Readiness, ok, map[bool]string{true: "ready, → running", false: "unready, → running"}[ok])
	}
}

func TestAFailedHookBeforeAStartIsAFailedStart(t *testing.T) {
	w := newTale(t, allHooks+", restart: {max: 1, retry: 0}")
	w.want(Event{Kind: WantUp}, "pre_start, → starting")
	w.want(hook(PreStart, false), "exit, post_stop, → stopping")
	w.want(hook(PostStop, true), "pre_start, → starting")
	if w.s.Run != 2 || w.s.Total != 1 || w.s.Why != "its hook pre_start has failed: exit status 1" {
		t.Errorf("it is %+v", w.s)
	}
	w.want(hook(PreStart, false), "exit, post_stop, → stopping")
	w.want(hook(PostStop, true), "failed, → failed")
	w = newTale(t, allHooks+", restart: never")
	w.want(Event{Kind: WantUp}, "pre_start, → starting")
	w.want(hook(PreStart, false), "exit, post_stop, → stopping")
	w.want(hook(PostStop, true), "failed, → failed")
}

func TestNoHookPreventsAStop(t *testing.T) {
	for what, play := range map[string]func(w *tale){
		"it fails":    func(w *tale) { w.want(hook(PreStop, false), "hook, signal 15, → stopping") },
		"it hangs":    func(w *tale) { w.tick(3*time.Second+hookSlack, "signal 15, → stopping") },
		"its service": func(w *tale) { w.want(hook(PreStop, true), "signal 15, → stopping") },
	} {
		t.Run(what, func(t *testing.T) {
			w := newTale(t, allHooks)
			w.ev(Event{Kind: WantUp})
			w.ev(hook(PreStart, true))
			w.want(Event{Kind: Launched}, "started, ready, post_start, → running")
			w.want(hook(PostStart, true), "→ running")
			w.want(Event{Kind: WantDown}, "pre_stop, → stopping")
			play(w)
			w.tick(10*time.Second, "kill, → killing")
			w.want(Event{Kind: TreeGone}, "post_stop, → stopping")
			w.tick(30*time.Second+hookSlack, "hook, post_stop, → stopping") // it is asked for again
			w.want(hook(PostStop, false), "hook, → idle")
		})
	}
	t.Run("while it starts", func(t *testing.T) {
		w := newTale(t, allHooks)
		w.want(Event{Kind: WantUp}, "pre_start, → starting")
		w.want(Event{Kind: WantDown}, "kill, → killing")
		w.want(hook(PreStart, true), "→ killing")
		w.want(Event{Kind: TreeGone}, "post_stop, → stopping")
		w.want(Event{Kind: WantUp}, "→ stopping")
		w.want(hook(PostStop, true), "pre_start, → starting")
	})
	t.Run("KILL is its signal", func(t *testing.T) {
		w := newTale(t, allHooks+", stop: KILL")
		w.ev(Event{Kind: WantUp})
		w.ev(hook(PreStart, true))
		w.ev(Event{Kind: Launched})
		w.want(Event{Kind: WantDown}, "pre_stop, → stopping")
		w.want(hook(PreStop, true), "kill, → killing")
	})
	t.Run("it ends meanwhile", func(t *testing.T) {
		w := newTale(t, allHooks)
		w.ev(Event{Kind: WantUp})
		w.ev(hook(PreStart, true))
		w.ev(Event{Kind: Launched})
		w.ev(hook(PostStart, true))
		w.want(Event{Kind: WantDown}, "pre_stop, → stopping")
		w.want(exit(0), "kill, post_stop, → stopping")
		w.want(hook(PreStop, true), "→ stopping")
		w.want(Event{Kind: TreeGone}, "→ stopping")
		w.want(hook(PostStop, true), "→ idle")
	})
}

// Whoever continues from a stored state asks for the hook that was under way, and for none
// that was before.
func TestAHookIsAskedForAgainByWhoeverGoesOn(t *testing.T) {
	found := func(w *tale, alive bool, e *process.Exit, want string) {
		t.Helper()
		w.want(Event{Kind: Found, Alive: alive, Exit: e, Gone: e != nil}, want)
	}
	w := newTale(t, allHooks)
	w.ev(Event{Kind: WantUp})
	found(w, false, nil, "pre_start, → starting")
	w.want(hook(PreStart, true), "launch 1, → starting")
	found(w, false, nil, "launch 1, → starting")
	w.want(Event{Kind: Launched}, "started, ready, post_start, → running")
	found(w, true, nil, "post_start, → running")
	w.want(hook(PostStart, true), "→ running")
	found(w, true, nil, "→ running")
	w.want(Event{Kind: WantRestart}, "pre_stop, → stopping")
	found(w, true, nil, "pre_stop, → stopping")
	w.want(hook(PreStop, true), "signal 15, → stopping")
	found(w, true, nil, "signal 15, → stopping")
	found(w, false, &process.Exit{}, "post_stop, → stopping")
	found(w, false, &process.Exit{}, "post_stop, → stopping")
	w.want(hook(PostStop, true), "pre_start, → starting")
	if w.s.Run != 2 || len(w.s.Restarts) != 0 {
		t.Errorf("it is %+v", w.s)
	}
	// Under a declaration that has no hooks any more, none is waited for.
	w.rules = rulesOf(t, "")
	found(w, false, nil, "launch 2, → starting")
}
