package supervisor

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

var (
	theirs = Adopted{PID: 4242, Start: 77, Leads: true}
	taken  = Event{Kind: Launched, Adopted: &theirs, By: &config.Adopt{Port: 80}}
)

func TestWhatIsThereIsAdopted(t *testing.T) {
	w := newTale(t, "adopt: {port: 80}, hooks: {pre_start: a}, health: {tcp: 80}")
	w.want(Event{Kind: WantUp}, "adopt 1, → starting") // and nothing is run before it
	w.want(taken, "started, → running")
	if w.s.Adopted == nil || *w.s.Adopted != theirs || !strings.Contains(w.s.Why, "pid 4242") {
		t.Errorf("it is %+v", w.s)
	}
	w.tick(firstAsk, "ask startup, → running")
	w.answer(Startup, true, "ready, → running")
	// Another tend up is no reason to look again, and neither is its end: what follows it
	// is tend's own.
	w.want(Event{Kind: WantUp}, "→ running")
	w.want(lost, "exit, pre_start, → starting")
	if w.s.Run != 2 || w.s.Adopted != nil || w.s.AdoptedBy != nil || w.s.Look || len(w.s.Restarts) != 0 {
		t.Errorf("after its end it is %+v", w.s)
	}
	w.want(Event{Kind: HookDone, Hook: PreStart, OK: true}, "launch 2, → starting")
	w.want(Event{Kind: Launched}, "started, → running")
	w.want(killed(9), "exit, pre_start, → starting")
}

func TestTheEndOfWhatWasAdoptedHasNoStatus(t *testing.T) {
	w := newTale(t, "adopt: {port: 80}, restart: never")
	w.want(Event{Kind: WantUp}, "adopt 1, → starting")
	w.want(taken, up)
	w.want(lost, "exit, failed, → failed")
	if !strings.Contains(w.s.Why, "its status is not known: tend did not start it") {
		t.Errorf("it says %q", w.s.Why)
	}
}

func TestWithoutAProcessToAdoptOneIsStarted(t *testing.T) {
	w := newTale(t, "adopt: {port: 80}, hooks: {pre_start: a}")
	w.want(Event{Kind: WantUp}, "adopt 1, → starting")
	w.want(Event{Kind: Unknown}, "→ starting")
	w.tick(again, "adopt 1, → starting")
	w.want(Event{Kind: Absent}, "pre_start, → starting")
	w.want(Event{Kind: Absent}, "→ starting") // said twice
	w.want(Event{Kind: HookDone, Hook: PreStart, OK: true}, "launch 1, → starting")
	w.want(Event{Kind: Launched}, up)
	if w.s.Adopted != nil {
		t.Errorf("it is %+v", w.s.Adopted)
	}
}

// What must not be adopted still holds the port: a second one beside it would fail.
func TestAfterARefusalItIsLookedAgain(t *testing.T) {
	w := newTale(t, "adopt: {port: 80}")
	w.want(Event{Kind: WantUp}, "adopt 1, → starting")
	w.want(Event{Kind: NotLaunched, Text: "pid 4242 is of uid 0"}, "exit, adopt 2, → starting")
	w.want(taken, up)
}

func TestTheAnswerOfALookThatNobodyWaitsForChangesNothing(t *testing.T) {
	w := newTale(t, "adopt: {port: 80}")
	w.want(Event{Kind: WantUp}, "adopt 1, → starting")
	w.want(Event{Kind: WantDown}, "kill, → killing")
	w.want(taken, "→ killing")
	if w.s.Adopted != nil {
		t.Errorf("it is %+v", w.s.Adopted)
	}
	w.want(Event{Kind: TreeGone}, "→ idle")
	// The next wish looks again.
	w.want(Event{Kind: WantUp}, "adopt 2, → starting")
}

func TestARestartOfWhatWasAdoptedIsTendsOwn(t *testing.T) {
	w := newTale(t, "adopt: {port: 80}")
	w.want(Event{Kind: WantUp}, "adopt 1, → starting")
	w.want(taken, up)
	w.want(Event{Kind: WantRestart}, "signal 15, → stopping")
	w.want(lost, "launch 2, → starting")
	w.want(Event{Kind: Launched}, up)
	if w.s.Why != "" {
		t.Errorf("it says %q", w.s.Why)
	}
}

// The death of all that look after it: it is found again, by what is stored alone.
func TestWhatWasAdoptedIsFoundAgain(t *testing.T) {
	w := newTale(t, "adopt: {port: 80}")
	w.want(Event{Kind: WantUp}, "adopt 1, → starting")
	w.want(Event{Kind: Found}, "adopt 1, → starting") // they died before it was stored
	w.want(taken, up)
	b := proctest.Value(json.Marshal(w.s))(t)
	var back State
	proctest.Must(t, json.Unmarshal(b, &back))
	if back.Phase != Running || back.Adopted == nil || *back.Adopted != theirs || back.AdoptedBy == nil || back.AdoptedBy.Port != 80 {
		t.Errorf("it is read as %+v", back)
	}
	// A version that adopts nothing knows no such phase, and leaves the service alone.
	var old struct{ Phase string }
	proctest.Must(t, json.Unmarshal(b, &old))
	for _, name := range phaseNames {
		if old.Phase == name {
			t.Errorf("it is stored as %q", old.Phase)
		}
	}
	w.s = back
	w.want(Event{Kind: Found, Alive: true}, "→ running")
	if w.s.Adopted == nil {
		t.Error("it is not known any more as adopted")
	}
	// Another boot has given the pid to another program.
	if w.s = back.Rebase(1); w.s.Adopted != nil || w.s.AdoptedBy != nil {
		t.Errorf("in another boot it is %+v", w.s.Adopted)
	}
	w.want(Event{Kind: Found}, "exit, launch 2, → starting")
}

func TestSomebodyNamesTheProcess(t *testing.T) {
	c := proctest.Value(config.Parse("x", []byte("services: {db: {command: x}, web: {command: x, depends_on: [db], hooks: {pre_start: a}}, other: {command: x}}")))(t)
	s := NewSet(c, nil)
	out := proctest.Value(s.Adopt("web", theirs, 1, 0.5))(t)
	for _, d := range out {
		if d.Kind != Report {
			t.Errorf("%+v follows", d)
		}
	}
	if st, _ := s.State("web"); st.Phase != Running || !st.Up || st.Adopted == nil || *st.Adopted != theirs || st.Run != 1 {
		t.Errorf("it is %+v", st)
	}
	if _, err := s.Adopt("web", Adopted{PID: 1000}, 2, 0.5); !errors.Is(err, process.ErrRunning) {
		t.Errorf("while it runs: %v", err)
	}
	if _, err := s.Adopt("other", theirs, 2, 0.5); !errors.Is(err, process.ErrPermission) || !strings.Contains(err.Error(), "web") {
		t.Errorf("by another service: %v", err)
	}
	if _, err := s.Adopt("nope", theirs, 2, 0.5); !errors.Is(err, process.ErrNotFound) {
		t.Errorf("by none: %v", err)
	}
}

// It has an environment of its own in any case; another command is another process.
func TestAnotherEnvironmentDoesNotRestartWhatWasAdopted(t *testing.T) {
	of := func(text string) *config.Config {
		return proctest.Value(config.Parse("x", []byte("services: {web: {"+text+"}}")))(t)
	}
	s := NewSet(of("command: x, env: {A: b}"), nil)
	proctest.Value(s.Adopt("web", theirs, 1, 0.5))(t)
	s.Apply(of("command: x, env: {A: c}"), 2, 0.5)
	if st, _ := s.State("web"); st.Phase != Running {
		t.Errorf("another environment has it %v", st.Phase)
	}
	s.Apply(of("command: y, env: {A: c}"), 3, 0.5)
	if st, _ := s.State("web"); st.Phase != Stopping {
		t.Errorf("another command has it %v", st.Phase)
	}
}
