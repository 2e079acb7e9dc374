package healer_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tend-run/tend/internal/heal/healer"
)

var t0 = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// desk is a worker and the world around it: it does what is asked, may die at any moment,
// and keeps count of what was done to the tree.
type desk struct {
	t       *rapid.T
	entries []healer.Entry
	s       healer.State
	due     *healer.Effect
	now     time.Time

	open      int // checkpoints without an end
	verified  bool
	committed int
	changed   bool // the tree is not as it was, and nothing says so
	stuck     bool // rollbacks fail
	done      map[healer.Action]int
}

func (d *desk) put(e healer.Entry) {
	d.now = d.now.Add(time.Second)
	e.At = d.now
	d.entries = append(d.entries, e)
	before := d.s
	next, effect := healer.Step(d.s, e)
	d.s = next
	if effect != nil {
		d.due = effect
		d.begin(before)
	}
	if n := len(d.entries); n&(n-1) == 0 || next.Done() {
		if again := healer.Fold(d.entries); fmt.Sprintf("%+v", again) != fmt.Sprintf("%+v", d.s) {
			d.t.Fatalf("folded it is\n%+v\nand stepped\n%+v", again, d.s)
		}
	}
}

// begin checks what may be begun.
func (d *desk) begin(before healer.State) {
	d.done[d.due.Do]++
	switch d.due.Do {
	case healer.Act:
		if d.due.Remedy.Tree && d.open != 1 {
			d.t.Fatalf("a remedy acts with %d checkpoints", d.open)
		}
	case healer.Checkpoint:
		if d.changed {
			d.t.Fatal("a checkpoint is taken of a tree that holds what another remedy has left")
		}
	case healer.Commit:
		if !d.verified {
			d.t.Fatal("it commits what was not verified")
		}
	case healer.Over:
		if d.changed && d.committed == 0 && !d.s.Dirty && d.s.Status != healer.Ready {
			d.t.Fatalf("it is over, and what was tried is still there: %+v", d.s)
		}
		if d.s.Status != healer.Ready && d.s.Status != healer.Broken {
			d.t.Fatalf("it ends as %v", d.s.Status)
		}
	}
}

// carry does what is due, as far as it comes, and says what it answers.
func (d *desk) carry(part bool) healer.Entry {
	t, e := d.t, healer.Entry{Kind: healer.Answered, Did: d.due.Do, Seq: d.due.Seq, OK: rapid.Bool().Draw(d.t, "ok"), Text: "so"}
	switch d.due.Do {
	case healer.Look:
		for range rapid.IntRange(0, 4).Draw(t, "remedies") {
			kind := rapid.SampledFrom([]string{healer.Restart, healer.Book, healer.Model}).Draw(t, "kind")
			e.Remedies = append(e.Remedies, healer.Remedy{Kind: kind, Tree: kind != healer.Restart, Keep: kind == healer.Book && rapid.Bool().Draw(t, "keep")})
		}
	case healer.Checkpoint:
		if e.OK {
			d.open = 1
		}
	case healer.Act:
		if d.due.Remedy.Tree {
			d.changed, d.verified = true, false
		}
	case healer.Verify:
		d.verified = e.OK && !part
	case healer.Commit:
		if d.committed++; part {
			break // the commit is there, and the news of it is lost
		}
		d.open, d.changed = 0, false
	case healer.Rollback:
		e.OK = !d.stuck
		if d.committed > 0 {
			t.Fatal("it rolls back what it has committed")
		}
		if e.OK {
			d.open, d.changed = 0, false
		}
	}
	return e
}

// Whatever happens, in whatever order, an episode ends, and holds what it promises.
func TestAnEpisodeEndsWhateverHappens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := &desk{t: t, now: t0, done: map[healer.Action]int{}, stuck: rapid.IntRange(0, 9).Draw(t, "stuck") == 0}
		d.put(healer.Entry{Kind: healer.Opened, ID: "e", Service: "web", Signal: &healer.Signal{Kind: "exit"}})
		d.put(healer.Entry{Kind: healer.Began, Worker: 1})
		for n := 0; !d.s.Done(); n++ {
			if n > 3000 {
				t.Fatalf("it does not end: %+v", d.s)
			}
			switch rapid.IntRange(0, 19).Draw(t, "event") {
			case 0: // the worker dies before it has done anything
				d.put(healer.Entry{Kind: healer.Began})
			case 1: // half-way, or before its answer is written
				d.carry(true)
				d.put(healer.Entry{Kind: healer.Began})
			case 2:
				d.put(healer.Entry{Kind: healer.Signalled, Signal: &healer.Signal{Kind: "health"}})
			case 3: // an answer to something else, or a second one
				seq, doing := d.s.Seq, d.s.Doing
				d.put(healer.Entry{Kind: healer.Answered, OK: true, Did: doing, Seq: seq - int64(rapid.IntRange(1, 3).Draw(t, "old"))})
				d.put(healer.Entry{Kind: healer.Answered, OK: true, Did: doing%healer.Over + 1, Seq: seq})
				if d.s.Seq != seq || d.s.Doing != doing {
					t.Fatal("it takes an answer to something else")
				}
			case 4:
				if rapid.IntRange(0, 9).Draw(t, "stop") == 0 {
					d.put(healer.Entry{Kind: rapid.SampledFrom([]healer.Kind{healer.Expired, healer.Cancelled}).Draw(t, "how")})
				}
			case 5: // of a model that is waited for, or that answers again
				d.put(healer.Entry{Kind: healer.Note, Model: rapid.SampledFrom([]string{healer.Unreached, healer.Reached, ""}).Draw(t, "model")})
			default:
				e := d.carry(false)
				if e.Did == healer.Act && rapid.IntRange(0, 3).Draw(t, "unreached") == 0 {
					e.Model = healer.Unreached
				}
				d.put(e)
			}
		}
		if d.committed > 0 && d.s.Status != healer.Ready {
			t.Errorf("what was committed is %v", d.s.Status)
		}
		if d.changed && d.committed == 0 && !d.s.Dirty && d.s.Status == healer.Broken {
			t.Errorf("what was tried is still there: %+v", d.s)
		}
		if n := d.done[healer.Look]; n > 2*healer.MaxWorkers+1 {
			t.Errorf("it looked %d times", n)
		}
		if s, e := healer.Step(d.s, healer.Entry{Kind: healer.Began}); e != nil || s.Status != d.s.Status {
			t.Error("something happens after its end")
		}
	})
}

// answer is what a worker says that has done what it was to do.
func answer(s healer.State, ok bool, text string) healer.Entry {
	return healer.Entry{At: t0, Kind: healer.Answered, Did: s.Doing, Seq: s.Seq, OK: ok, Text: text}
}

func opened(remedies ...healer.Remedy) healer.State {
	s := healer.Fold([]healer.Entry{{At: t0, Kind: healer.Opened, ID: "e", Service: "web"}, {At: t0, Kind: healer.Began}})
	e := answer(s, true, "it exits")
	e.Remedies = remedies
	s, _ = healer.Step(s, e)
	return s
}

func TestTheLadderIsClimbedInOrder(t *testing.T) {
	book := healer.Remedy{Kind: healer.Book, Name: "missing-package", Tree: true}
	s := opened(healer.Remedy{Kind: healer.Restart}, book, healer.Remedy{Kind: healer.Model, Name: "1", Tree: true})
	want := func(a healer.Action, st healer.Status) {
		t.Helper()
		if s.Doing != a || s.Status != st {
			t.Fatalf("it does %v and is %v; %v and %v are wanted", s.Doing, s.Status, a, st)
		}
	}
	next := func(ok bool) { s, _ = healer.Step(s, answer(s, ok, "because")) }
	want(healer.Act, healer.Healing)
	next(true)
	want(healer.Verify, healer.Verifying)
	next(false)
	want(healer.Checkpoint, healer.Healing) // the book
	next(true)
	next(true)
	want(healer.Verify, healer.Verifying)
	next(false)
	want(healer.Rollback, healer.Healing)
	next(true)
	want(healer.Checkpoint, healer.Healing) // the model
	next(true)
	next(true)
	next(true)
	want(healer.Review, healer.Healing)
	next(true)
	want(healer.Commit, healer.Healing)
	next(true)
	want(healer.Over, healer.Ready)
	if len(s.Tries) != 3 || s.Tries[0].Failed != "because" || s.Tries[1].Failed != "because" || s.Tries[2].Failed != "" {
		t.Errorf("the tries are %+v", s.Tries)
	}
}

// A playbook whose worker was killed is rolled back and tried once more; a model's attempt
// is over.
func TestAKilledAttemptIsRolledBack(t *testing.T) {
	for kind, again := range map[string]bool{healer.Book: true, healer.Model: false} {
		s := opened(healer.Remedy{Kind: kind, Tree: true})
		s, _ = healer.Step(s, answer(s, true, ""))
		if s.Doing != healer.Act {
			t.Fatalf("it does %v", s.Doing)
		}
		s, e := healer.Step(s, healer.Entry{At: t0, Kind: healer.Began})
		if e == nil || e.Do != healer.Rollback {
			t.Fatalf("%s: it does %+v", kind, e)
		}
		s, _ = healer.Step(s, answer(s, true, ""))
		if again != (s.Doing == healer.Checkpoint) || again == s.Done() {
			t.Errorf("%s: then it does %v", kind, s.Doing)
		}
	}
}

// attempting is an episode that asks a model, the third of whose remedies is the last.
func attempting(t *testing.T) healer.State {
	t.Helper()
	s := opened(healer.Remedy{Kind: healer.Model, Name: "1", Tree: true}, healer.Remedy{Kind: healer.Model, Name: "2", Tree: true}, healer.Remedy{Kind: healer.Model, Name: "3", Tree: true})
	if s, _ = healer.Step(s, answer(s, true, "")); s.Doing != healer.Act {
		t.Fatalf("it does %v", s.Doing)
	}
	return s
}

// note is what a worker says of a model that it asks.
func note(s healer.State, model, text string) healer.State {
	s, _ = healer.Step(s, healer.Entry{At: t0, Kind: healer.Note, Model: model, Text: text})
	return s
}

func TestAModelThatDoesNotAnswerHasTriedNothing(t *testing.T) {
	const down = "the model is not available: connection refused"
	unreached := func(s healer.State) healer.State {
		e := answer(s, false, down)
		e.Model = healer.Unreached
		s, _ = healer.Step(s, e)
		s, _ = healer.Step(s, answer(s, true, "")) // the rollback
		return s
	}
	s := unreached(attempting(t))
	if !s.Done() || s.Status != healer.Broken || s.Why != "no attempt of the model could be made: "+down || s.Unreached != down {
		t.Errorf("it is %v: %q, %q", s.Status, s.Why, s.Unreached)
	}
	if len(s.Tries) != 1 || !s.Tries[0].Unreached || s.Tries[0].Failed != down {
		t.Errorf("the tries are %+v", s.Tries)
	}
	s = attempting(t)
	for _, ok := range []bool{false, true, true} { // the attempt, the rollback, the next checkpoint
		s, _ = healer.Step(s, answer(s, ok, "it still fails"))
	}
	s = unreached(s)
	if want := "nothing that was tried has helped; the last was model 1: it still fails; and then no further attempt of the model could be made: " + down; s.Why != want || len(s.Tries) != 2 || s.Tries[0].Unreached || !s.Tries[1].Unreached {
		t.Errorf("it is over because %q, and the tries are %+v", s.Why, s.Tries)
	}
}

// While a model is waited for, the state says why. Neither the end of a worker then nor the
// end of the time makes an attempt of it.
func TestAModelIsWaitedFor(t *testing.T) {
	const down = "overloaded"
	s := note(attempting(t), healer.Unreached, down)
	if s.Unreached != down || s.Doing != healer.Act {
		t.Fatalf("it is %+v", s)
	}
	if up := note(s, healer.Reached, "it answers"); up.Unreached != "" {
		t.Errorf("it answers, and %q", up.Unreached)
	}
	if other := note(s, "", "something else"); other.Unreached != down {
		t.Errorf("another note makes it %q", other.Unreached)
	}
	over, _ := healer.Step(s, healer.Entry{At: t0, Kind: healer.Expired})
	over, _ = healer.Step(over, answer(over, true, ""))
	if want := "its time was over; no attempt of the model could be made: " + down; over.Why != want || !over.Tries[0].Unreached {
		t.Errorf("it is over because %q, and the tries are %+v", over.Why, over.Tries)
	}
	again, _ := healer.Step(s, healer.Entry{At: t0, Kind: healer.Began})
	again, _ = healer.Step(again, answer(again, true, "")) // the rollback
	if again.Doing != healer.Checkpoint || len(again.Tries) != 2 || !again.Tries[0].Unreached || again.Tries[1].Name != "1" || again.Unreached != "" {
		t.Errorf("after the death of its worker it does %v, and the tries are %+v", again.Doing, again.Tries)
	}
}

func TestARollbackThatFailsIsSaid(t *testing.T) {
	s := opened(healer.Remedy{Kind: healer.Book, Tree: true}, healer.Remedy{Kind: healer.Model, Tree: true})
	s, _ = healer.Step(s, answer(s, true, ""))
	for range 1 + healer.MaxRollbacks {
		s, _ = healer.Step(s, answer(s, false, "the disk is full"))
	}
	if s.Status != healer.Broken || !s.Dirty {
		t.Errorf("it is %+v", s)
	}
}

// The taking back of a repair is looked at and done, and nothing else: nobody ends it half-way,
// and a worker that dies in it is followed by one that does the same again.
func TestTakingBackIsOneStep(t *testing.T) {
	for name, c := range map[string]struct {
		entries []healer.Entry
		status  healer.Status
		changed int
	}{
		"it is done":                  {[]healer.Entry{{Kind: healer.Answered, Did: healer.Act, Seq: 2, OK: true, Commit: "abc"}}, healer.Ready, 0},
		"its worker dies":             {[]healer.Entry{{Kind: healer.Began}, {Kind: healer.Answered, Did: healer.Act, Seq: 3, OK: true, Commit: "abc"}}, healer.Ready, 0},
		"somebody wants to end it":    {[]healer.Entry{{Kind: healer.Cancelled}, {Kind: healer.Expired}, {Kind: healer.Answered, Did: healer.Act, Seq: 2, OK: true, Commit: "abc"}}, healer.Ready, 0},
		"something changed meanwhile": {[]healer.Entry{{Kind: healer.Answered, Did: healer.Act, Seq: 2, Text: "no", Changed: []string{"a"}}}, healer.Broken, 1},
	} {
		t.Run(name, func(t *testing.T) {
			entries := append([]healer.Entry{
				{Kind: healer.Opened, ID: "b", Service: "web", Back: "a", Signal: &healer.Signal{Kind: "rollback"}},
				{Kind: healer.Began},
				{Kind: healer.Answered, Did: healer.Look, Seq: 1, OK: true, Remedies: []healer.Remedy{{Kind: healer.Undo, Name: "a"}}},
			}, c.entries...)
			s := healer.Fold(entries)
			if !s.Done() || s.Status != c.status || s.Back != "a" || len(s.Changed) != c.changed || (s.Committed == "abc") != (c.status == healer.Ready) || s.Dirty || s.Open {
				t.Errorf("it is %+v", s)
			}
		})
	}
	undo := []healer.Remedy{{Kind: healer.Undo, Name: "a"}}
	for ok, undid := range map[bool]string{true: "a", false: ""} { // a repair that has not lasted
		s := healer.Fold([]healer.Entry{
			{Kind: healer.Opened, ID: "b", Service: "web"}, {Kind: healer.Began},
			{Kind: healer.Answered, Did: healer.Look, Seq: 1, OK: true, Remedies: undo},
			{Kind: healer.Answered, Did: healer.Act, Seq: 2, OK: ok, Text: "1 file"},
		})
		if !s.Done() || s.Status != healer.Broken || s.Undid() != undid || s.Dirty || s.Open {
			t.Errorf("it is %+v", s)
		}
	}
	refused := healer.Fold([]healer.Entry{
		{Kind: healer.Opened, ID: "b", Service: "web", Back: "a"}, {Kind: healer.Began},
		{Kind: healer.Answered, Did: healer.Look, Seq: 1, OK: true, Text: "a has changed", Changed: []string{"a"}},
	})
	if !refused.Done() || refused.Status != healer.Broken || refused.Why != "a has changed" || len(refused.Tries) > 0 || len(refused.Changed) != 1 {
		t.Errorf("refused, it is %+v", refused)
	}
}
