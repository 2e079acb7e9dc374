package supervisor

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// rulesOf is the service web of "services: {web: {command: x, TEXT}}".
func rulesOf(t testing.TB, text string) *config.Service {
	t.Helper()
	if text != "" {
		text = ", " + text
	}
	return proctest.Value(config.Parse("x", []byte("services: {web: {command: x"+text+"}}")))(t).Services["web"]
}

// tale plays events to one service and writes down what happens.
type tale struct {
	t     *testing.T
	rules *config.Service
	s     State
	now   time.Duration
}

func newTale(t *testing.T, rules string) *tale {
	return &tale{t: t, rules: rulesOf(t, rules), s: State{Met: true}}
}

// ev plays an event about the newest run, and returns the effects in short.
func (w *tale) ev(e Event) string {
	w.t.Helper()
	e.At, e.Random = Time(w.now)+1, 0.5
	if e.Run == 0 {
		e.Run = w.s.Run
	}
	before, was := w.s, fmt.Sprintf("%+v", w.s)
	next, effects := Step(w.rules, w.s, e)
	if got := fmt.Sprintf("%+v", before); got != was {
		w.t.Errorf("the step changed the state that it was given:\n%s\n%s", was, got)
	}
	w.s = next
	var all []string
	for _, e := range effects {
		switch e.Kind {
		case Launch:
			all = append(all, fmt.Sprintf("launch %d", e.Run))
		case Adopt:
			all = append(all, fmt.Sprintf("adopt %d", e.Run))
		case Signal:
			all = append(all, fmt.Sprintf("signal %d", e.Number))
		case Kill:
			all = append(all, "kill")
		case Ask:
			all = append(all, "ask "+e.Role.String())
		case RunHook:
			all = append(all, e.Hook.String())
		case Report:
			all = append(all, e.Notice.String())
		}
	}
	return strings.Join(append(all, "→ "+w.s.Phase.String()), ", ")
}

func (w *tale) want(e Event, want string) {
	w.t.Helper()
	if got := w.ev(e); got != want {
		w.t.Errorf("at %v %v: got %q; want %q", w.now, e.Kind, got, want)
	}
}

// tick continues to the deadline, which must be this long after the last event.
func (w *tale) tick(after time.Duration, want string) {
	w.t.Helper()
	if d := w.s.Deadline(); d == 0 || (d-1-Time(w.now)) != Time(after) {
		w.t.Errorf("the deadline is %v after now; want %v", time.Duration(d-1-Time(w.now)), after)
	}
	w.now += after
	w.want(Event{Kind: Tick}, want)
}

func (w *tale) answer(role Role, ok bool, want string) {
	w.t.Helper()
	w.want(Event{Kind: Probed, Role: role, Seq: w.s.Probes[role].Seq, OK: ok, Text: "no answer"}, want)
}

func exit(code int) Event {
	return Event{Kind: Exited, Exit: &process.Exit{Code: code}, Gone: true}
}

func killed(sig int) Event {
	return Event{Kind: Exited, Exit: &process.Exit{Code: -1, Signal: sig, Cause: process.CauseSignalled}, Gone: true}
}

var lost = Event{Kind: Exited, Exit: &process.Exit{Cause: process.CauseLost}, Gone: true}

const up = "started, ready, → running"

func (w *tale) up() {
	w.t.Helper()
	w.want(Event{Kind: WantUp}, fmt.Sprintf("launch %d, → starting", w.s.Run+1))
	w.want(Event{Kind: Launched}, up)
}

func TestAServiceIsStartedAndStopped(t *testing.T) {
	w := newTale(t, "")
	w.up()
	w.want(Event{Kind: WantUp}, "→ running")
	w.want(Event{Kind: WantDown}, "signal 15, → stopping")
	w.want(exit(143), "→ idle")
	w.want(exit(143), "→ idle")
	w.want(Event{Kind: TreeGone}, "→ idle")
	if w.s.Deadline() != 0 {
		t.Error("something is to happen to an idle service")
	}
}

func TestWhatDoesNotEndIsKilledWithItsTree(t *testing.T) {
	w := newTale(t, "stop: {signal: INT, timeout: 3s}")
	w.up()
	w.want(Event{Kind: WantDown}, "signal 2, → stopping")
	w.tick(3*time.Second, "kill, → killing")
	w.tick(killAgain, "survivor, kill, → killing")
	w.want(Event{Kind: Exited, Exit: killed(9).Exit}, "→ killing")
	w.want(Event{Kind: TreeGone}, "→ idle")
}

func TestWhatAProcessLeavesBehindIsKilledBeforeTheNextStart(t *testing.T) {
	w := newTale(t, "")
	w.up()
	w.want(Event{Kind: Exited, Exit: &process.Exit{Code: 1}}, "exit, kill, → killing")
	w.want(Event{Kind: TreeGone}, "launch 2, → starting")
}

func TestTheFirstRestartIsAtOnceAndFurtherOnesWait(t *testing.T) {
	w := newTale(t, "restart: {delay: 1s, factor: 3, max_delay: 5s, jitter: 0.5}")
	w.up()
	w.want(killed(9), "exit, launch 2, → starting")
	for i, wait := range []time.Duration{time.Second, 3 * time.Second, 5 * time.Second, 5 * time.Second} {
		w.want(Event{Kind: Launched}, up)
		want := "exit, → pausing"
		if i == 1 {
			want = "exit, flapping, → pausing"
		}
		w.want(exit(1), want)
		w.tick(wait, fmt.Sprintf("launch %d, → starting", i+3))
	}
	w.want(Event{Kind: Launched}, up)
	w.want(exit(1), "exit, failed, → failed")
	w.tick(5*time.Minute, "launch 7, → starting")
	if len(w.s.Restarts) != 0 || w.s.Total != 5 {
		t.Errorf("%d restarts are in the window after a new try; %d in all", len(w.s.Restarts), w.s.Total)
	}
}

// pm2's count is reset by a life of some seconds, so it never gives up (or at the first
// crash). Here only the window counts.
func TestSlowFlapsAreBoundedWhateverTheUptime(t *testing.T) {
	w := newTale(t, "restart: {max: 4, within: 1m, delay: 0, retry: 0}")
	w.up()
	for i := range 4 {
		w.now += 6 * time.Second
		want := fmt.Sprintf("exit, launch %d, → starting", i+2)
		if i == 2 {
			want = "exit, flapping, launch 4, → starting"
		}
		w.want(exit(0), want)
		w.want(Event{Kind: Launched}, up)
	}
	w.now += 6 * time.Second
	w.want(exit(0), "exit, failed, → failed")
	if w.s.Deadline() != 0 {
		t.Error("it is tried again without a retry")
	}
	w.want(Event{Kind: Changed}, "launch 6, → starting")
}

func TestRestartsFarApartGoOnForEver(t *testing.T) {
	w := newTale(t, "restart: {max: 2, within: 10s}")
	w.up()
	for i := range 100 {
		w.now += 6 * time.Second
		if i%2 == 1 {
			w.now += 6 * time.Second
		}
		w.ev(exit(1))
		if w.s.Phase == Pausing {
			w.now += w.s.Deadline().Sub(Time(w.now))
			w.ev(Event{Kind: Tick})
		}
		w.want(Event{Kind: Launched}, up)
	}
}

func TestPoliciesAndCodes(t *testing.T) {
	for _, tt := range []struct {
		rules string
		exit  Event
		want  string
	}{
		{"", exit(0), "exit, launch 2, → starting"},
		{"restart: on-failure", exit(0), "exit, completed, → completed"},
		{"restart: on-failure", exit(1), "exit, launch 2, → starting"},
		{"restart: on-failure", killed(11), "exit, launch 2, → starting"},
		{"restart: never", exit(0), "exit, completed, → completed"},
		{"restart: never", exit(3), "exit, failed, → failed"},
		{"restart: never", killed(9), "exit, failed, → failed"},
		{"restart: never", lost, "exit, failed, → failed"},
		{"restart: {policy: on-failure, success_codes: [0, 3]}", exit(3), "exit, completed, → completed"},
		{"restart: {permanent_codes: [78]}", exit(78), "exit, failed, → failed"},
		{"restart: {policy: always, max: 1}", lost, "exit, launch 2, → starting"},
	} {
		w := newTale(t, tt.rules)
		w.up()
		w.want(tt.exit, tt.want)
	}
	w := newTale(t, "restart: {max: 1, delay: 0}")
	w.up()
	for i := range 5 { // of the death of the machine, say
		w.want(lost, fmt.Sprintf("exit, launch %d, → starting", i+2))
		w.want(Event{Kind: Launched}, up)
	}
}

func TestAStartThatFailsCountsAndOneOfUnknownResultIsRepeated(t *testing.T) {
	w := newTale(t, "restart: {max: 1, retry: 0}")
	w.want(Event{Kind: WantUp}, "launch 1, → starting")
	w.want(Event{Kind: Unknown}, "→ starting")
	w.tick(again, "launch 1, → starting")
	w.want(Event{Kind: NotLaunched, Text: "no such file"}, "exit, launch 2, → starting")
	w.want(Event{Kind: NotLaunched, Text: "no such file"}, "exit, failed, → failed")
	if !strings.Contains(w.s.Why, "no such file") {
		t.Errorf("it failed because %q", w.s.Why)
	}
}

func TestAStopWhileItStarts(t *testing.T) {
	w := newTale(t, "")
	w.want(Event{Kind: WantUp}, "launch 1, → starting")
	w.want(Event{Kind: WantDown}, "kill, → killing")
	w.want(Event{Kind: Launched}, "→ killing")
	w.want(Event{Kind: WantUp}, "→ killing")
	w.want(Event{Kind: TreeGone}, "launch 2, → starting")
	w.want(Event{Kind: Launched, Run: 1}, "→ starting")
}

func TestHealthIsAskedFromTheStartAndRestartsWhatHangs(t *testing.T) {
	w := newTale(t, "health: {http: ':80', interval: 2s, timeout: 1s}")
	w.want(Event{Kind: WantUp}, "launch 1, → starting")
	w.want(Event{Kind: Launched}, "started, → running")
	w.tick(50*time.Millisecond, "ask startup, → running")
	w.answer(Startup, false, "→ running")
	w.tick(100*time.Millisecond, "ask startup, → running")
	w.answer(Startup, false, "→ running")
	w.tick(200*time.Millisecond, "ask startup, → running")
	w.answer(Startup, true, "ready, → running")
	w.tick(2*time.Second, "ask liveness, → running")
	w.answer(Liveness, true, "→ running")
	begin := w.now
	w.tick(2*time.Second, "ask liveness, → running")
	w.now += time.Second
	w.answer(Liveness, false, "ask liveness, → running") // the next one is due at once
	w.now += time.Second
	w.answer(Liveness, false, "ask liveness, → running")
	w.now += time.Second
	w.answer(Liveness, false, "unhealthy, signal 15, → stopping")
	if took := w.now - begin; took > 6*time.Second {
		t.Errorf("a hang is seen after %v", took)
	}
	w.want(exit(0), "launch 2, → starting")
}

func TestOneFailureBetweenSuccessesMeansNothing(t *testing.T) {
	w := newTale(t, "health: {tcp: 80, failures: 2}")
	w.want(Event{Kind: WantUp}, "launch 1, → starting")
	w.want(Event{Kind: Launched}, "started, → running")
	w.ev(Event{Kind: Tick})
	w.now += 50 * time.Millisecond
	w.want(Event{Kind: Tick}, "ask startup, → running")
	w.answer(Startup, true, "ready, → running")
	for i := range 20 {
		w.now += time.Duration(w.s.Deadline()) - w.now
		w.want(Event{Kind: Tick}, "ask liveness, → running")
		w.answer(Liveness, i%2 == 0, "→ running")
	}
}

func TestAServiceThatDoesNotComeUpIsRestarted(t *testing.T) {
	w := newTale(t, "startup: {log: ready, start: 10s}, readiness: {tcp: 80}")
	w.want(Event{Kind: WantUp}, "launch 1, → starting")
	w.want(Event{Kind: Launched}, "started, → running")
	w.tick(10*time.Second, "unhealthy, signal 15, → stopping")
	w.want(exit(0), "launch 2, → starting")
	w.want(Event{Kind: Launched}, "started, → running")
	w.want(Event{Kind: Probed, Role: Startup, OK: true}, "→ running")
	w.tick(50*time.Millisecond, "ask readiness, → running")
	w.answer(Readiness, true, "ready, → running")
	for range 3 {
		w.ev(Event{Kind: Tick})
		w.now += time.Duration(w.s.Deadline()) - w.now
		w.ev(Event{Kind: Tick})
		w.ev(Event{Kind: Probed, Role: Readiness, Seq: w.s.Probes[Readiness].Seq})
	}
	if w.s.Ready || w.s.Phase != Running {
		t.Errorf("after failures of readiness: %+v", w.s)
	}
}

func TestDoubtfulFailuresDoNotCountButNotForEver(t *testing.T) {
	w := newTale(t, "liveness: {tcp: 80, failures: 2}")
	w.up()
	n := 0
	for ; w.s.Phase == Running && n < 100; n++ {
		w.now += time.Duration(w.s.Deadline()) - w.now
		w.ev(Event{Kind: Tick})
		w.ev(Event{Kind: Probed, Role: Liveness, Seq: w.s.Probes[Liveness].Seq, Doubt: true})
	}
	if n != doubtful*2+2 {
		t.Errorf("it is restarted after %d doubtful failures", n)
	}
}

func TestTimeThatStoodStillIsNoFailure(t *testing.T) {
	t.Run("an answer that comes an hour late does not count", func(t *testing.T) {
		w := newTale(t, "liveness: {tcp: 80, failures: 1}")
		w.up()
		w.tick(50*time.Millisecond, "ask liveness, → running")
		w.now += time.Hour
		w.answer(Liveness, false, "ask liveness, → running")
		w.answer(Liveness, false, "unhealthy, signal 15, → stopping")
	})
	t.Run("what has time to end gets it again, once", func(t *testing.T) {
		w := newTale(t, "")
		w.up()
		w.want(Event{Kind: WantDown}, "signal 15, → stopping")
		w.now += time.Hour
		w.want(Event{Kind: Tick}, "→ stopping")
		w.tick(10*time.Second, "kill, → killing")
	})
	t.Run("a caller that is always late comes to an end", func(t *testing.T) {
		w := newTale(t, "")
		w.up()
		w.want(Event{Kind: WantDown}, "signal 15, → stopping")
		for n := 0; w.s.Phase == Stopping; n++ {
			if w.now += 13 * time.Second; n > 3 {
				t.Fatal("it is never killed")
			}
			w.ev(Event{Kind: Tick})
		}
	})
	t.Run("startup gets its time again", func(t *testing.T) {
		w := newTale(t, "startup: {log: ready, start: 10s}")
		w.want(Event{Kind: WantUp}, "launch 1, → starting")
		w.want(Event{Kind: Launched}, "started, → running")
		w.now += time.Hour
		w.want(Event{Kind: Tick}, "resumed, → running")
		w.tick(10*time.Second, "unhealthy, signal 15, → stopping")
	})
	t.Run("who says that it stood still is believed", func(t *testing.T) {
		w := newTale(t, "liveness: {tcp: 80, failures: 1, timeout: 10m}")
		w.up()
		w.tick(50*time.Millisecond, "ask liveness, → running")
		old := w.s.Probes[Liveness].Seq
		w.want(Event{Kind: Resumed, Gap: time.Minute}, "resumed, ask liveness, → running")
		w.want(Event{Kind: Probed, Role: Liveness, Seq: old}, "→ running")
	})
	t.Run("a clock that goes back changes nothing", func(t *testing.T) {
		w := newTale(t, "")
		w.now = time.Hour
		w.up()
		w.now = 0
		w.want(exit(1), "exit, launch 2, → starting")
		if w.s.Last < Time(time.Hour) {
			t.Error("time went back")
		}
	})
}

func TestAStuckLogRestartsOrIsReported(t *testing.T) {
	w := newTale(t, "log: {pattern: Bundling}")
	w.up()
	w.want(Event{Kind: Stuck}, "stuck, signal 15, → stopping")
	w.want(exit(0), "launch 2, → starting")
	w = newTale(t, "log: {pattern: Bundling, stuck: report}")
	w.up()
	w.want(Event{Kind: Stuck}, "stuck, → running")
	w.want(Event{Kind: Stuck, Run: 7}, "→ running")
}

func TestAServiceThatWritesWhatIsWatchedIsLeftInPeace(t *testing.T) {
	w := newTale(t, "watch: src")
	w.up()
	for n := range maxChanges {
		w.now += time.Second
		w.want(Event{Kind: Changed, Text: "src/a.ts"}, "signal 15, → stopping")
		w.want(exit(0), fmt.Sprintf("launch %d, → starting", n+2))
		if w.s.Why != "src/a.ts has changed" || len(w.s.Restarts) != 0 {
			t.Fatalf("it is %+v", w.s)
		}
		w.want(Event{Kind: Launched}, up)
	}
	w.now += time.Second
	w.want(Event{Kind: Changed, Text: "src/a.ts"}, "unfollowed, → running")
	w.want(Event{Kind: Changed, Text: "src/a.ts"}, "→ running") // once is enough
	w.now += time.Minute
	w.want(Event{Kind: Changed, Text: "src/a.ts"}, "signal 15, → stopping")
	w.want(Event{Kind: WantDown}, "→ stopping")
	w.want(exit(0), "→ idle")
	w.want(Event{Kind: Changed, Text: "src/a.ts"}, "→ idle")
}

// One that writes what is watched and ends is not started for ever by its own changes,
// which come while it pauses.
func TestAServiceThatWritesWhatIsWatchedAndEndsIsLeftInPeace(t *testing.T) {
	w := newTale(t, "watch: src")
	w.ev(Event{Kind: WantUp})
	for n := 0; w.s.Phase != Failed; n++ {
		if n > 1000 {
			t.Fatalf("it was started %d times, and is started still", w.s.Run)
		}
		w.now += 10 * time.Millisecond
		if w.s.Phase == Starting {
			w.ev(Event{Kind: Launched})
			w.ev(exit(1))
			continue
		}
		w.ev(Event{Kind: Changed, Text: "src/a.ts"})
		if w.s.Phase == Pausing {
			w.now = time.Duration(w.s.Deadline())
			w.ev(Event{Kind: Tick})
		}
	}
	if len(w.s.Changes) != maxChanges+1 {
		t.Errorf("it was restarted for %d changes", len(w.s.Changes))
	}
}

func TestPressureIsReportedAndRestartsWhereItMay(t *testing.T) {
	w := newTale(t, "pressure: true")
	w.up()
	w.want(Event{Kind: Pressure, OK: true, Text: "memory is short"}, "pressure, → running")
	w.want(Event{Kind: Pressure, OK: true, Run: 7}, "→ running")
	w = newTale(t, "pressure: {restart: true}")
	w.up()
	w.want(Event{Kind: Pressure, Text: "memory is short, and others hold it"}, "pressure, → running")
	w.want(Event{Kind: Pressure, OK: true, Text: "memory is short"}, "pressure, signal 15, → stopping")
	w.want(Event{Kind: Pressure, OK: true}, "→ stopping")
	w.want(exit(0), "launch 2, → starting")
	if !strings.Contains(w.s.Why, "memory is short") || w.s.Total != 1 {
		t.Errorf("it is %+v", w.s)
	}
	w.want(Event{Kind: Pressure, OK: true}, "→ starting")
}

func TestAnEndForWantOfMemoryIsSaidInWords(t *testing.T) {
	w := newTale(t, "")
	w.up()
	oom := killed(9)
	oom.Exit.Cause = process.CauseOOM
	w.want(oom, "exit, launch 2, → starting")
	if w.s.Why != "it ended: signal: killed, by the kernel for want of memory" {
		t.Errorf("it restarts because %q", w.s.Why)
	}
	w = newTale(t, "limits: {memory: 60MiB}")
	w.up()
	w.want(oom, "exit, launch 2, → starting")
	if w.s.Why != "it ended: signal: killed, by the kernel for want of memory (limits.memory is 60 MiB)" {
		t.Errorf("with a limit it restarts because %q", w.s.Why)
	}
}

// What the kernel has taken from a run explains what comes of it, and says nothing of the
// next run.
func TestWhatTheKernelHasKilledIsSaidOfWhatFollows(t *testing.T) {
	const before = "the kernel has killed a process of it for want of memory (limits.memory is 60 MiB)"
	w := newTale(t, "limits: {memory: 60MiB}")
	w.up()
	w.want(Event{Kind: Starved, Run: 7}, "→ running")
	w.want(Event{Kind: Starved}, "starved, → running")
	w.want(Event{Kind: Exited, Exit: &process.Exit{Code: 137}, Gone: true}, "exit, launch 2, → starting")
	if w.s.Why != "it ended: exit status 137; "+before || w.s.Starved != "" {
		t.Errorf("it restarts because %q; of the new run %q is said", w.s.Why, w.s.Starved)
	}
	w = newTale(t, "limits: {memory: 60MiB}, liveness: {http: ':1', failures: 1}")
	w.up()
	w.want(Event{Kind: Starved}, "starved, → running")
	w.s.Probes[Liveness] = Probe{Asked: w.s.Last, Seq: 5}
	w.want(Event{Kind: Probed, Role: Liveness, Seq: 5, Text: "connection refused"}, "unhealthy, signal 15, → stopping")
	if w.s.Why != "its liveness probe failed 1 times in a row: connection refused; "+before {
		t.Errorf("it restarts because %q", w.s.Why)
	}
}

func TestAServiceWhoseSocketsNobodyHoldsIsRestarted(t *testing.T) {
	w := newTale(t, "restart: {max: 1, retry: 0}")
	w.up()
	w.want(Event{Kind: Unheld, Run: 7}, "→ running")
	w.want(Event{Kind: Unheld, Text: "the holder has ended"}, "unheld, signal 15, → stopping")
	w.want(Event{Kind: Unheld}, "→ stopping")
	w.want(Event{Kind: Exited, Exit: &process.Exit{}, Gone: true}, "launch 2, → starting")
	if w.s.Total != 1 || !strings.Contains(w.s.Why, "the holder has ended") {
		t.Errorf("it is %+v", w.s)
	}
	w.want(Event{Kind: Launched}, up)
	w.want(Event{Kind: Unheld}, "unheld, signal 15, → stopping")
	w.want(Event{Kind: Exited, Exit: &process.Exit{}, Gone: true}, "failed, → failed")
	// What is never restarted continues with what it has.
	w = newTale(t, "restart: never")
	w.up()
	w.want(Event{Kind: Unheld}, "unheld, → running")
}

func TestANoticeIsASignOfOneKind(t *testing.T) {
	got := map[string]string{}
	for n := NoticeStarted; int(n) < len(noticeNames); n++ {
		if s := n.Signal(); s != "" {
			got[n.String()] = s
		}
	}
	want := map[string]string{
		"exit": "exit", "failed": "exit", "flapping": "flap", "unhealthy": "health", "elsewhere": "health", "stuck": "stuck", "pressure": "pressure",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestAServiceThatForksLivesInItsTree(t *testing.T) {
	w := newTale(t, "forks: true")
	w.up()
	w.want(Event{Kind: Exited, Exit: &process.Exit{}}, "→ running")
	w.want(Event{Kind: TreeGone}, "exit, launch 2, → starting")
	w.want(Event{Kind: Launched}, up)
	w.want(Event{Kind: Exited, Exit: &process.Exit{}}, "→ running")
	w.want(Event{Kind: WantDown}, "signal 15, → stopping")
	w.want(Event{Kind: TreeGone}, "→ idle")
	w.want(Event{Kind: WantUp}, "launch 3, → starting")
	w.want(Event{Kind: Launched}, up)
	w.want(Event{Kind: Exited, Exit: &process.Exit{Code: 1}}, "exit, kill, → killing")
}

func TestASchedule(t *testing.T) {
	w := newTale(t, "schedule: '@hourly'")
	w.want(Event{Kind: Due}, "→ idle")
	w.want(Event{Kind: WantUp}, "→ waiting")
	w.want(Event{Kind: Due}, "launch 1, → starting")
	w.want(Event{Kind: Launched}, up)
	w.want(Event{Kind: Due}, "→ running")
	w.want(exit(0), "exit, completed, → waiting")
	w.want(Event{Kind: Due}, "launch 2, → starting")
	w.want(Event{Kind: Launched}, up)
	w.want(exit(1), "exit, failed, → failed")
	w.want(Event{Kind: Due}, "launch 3, → starting")
	w.want(Event{Kind: Launched}, up)
	w.want(Event{Kind: WantDown}, "signal 15, → stopping")
	w.want(exit(0), "→ idle")
	w.want(Event{Kind: WantRestart}, "launch 4, → starting")
	w = newTale(t, "schedule: {cron: '@hourly', overlap: restart}")
	w.want(Event{Kind: WantUp}, "→ waiting")
	w.want(Event{Kind: Due}, "launch 1, → starting")
	w.want(Event{Kind: Launched}, up)
	w.want(Event{Kind: Due}, "signal 15, → stopping")
	w.want(exit(0), "launch 2, → starting")
}

// A state goes through JSON between any two events, and another process continues.
func TestAServiceIsAdopted(t *testing.T) {
	alive := Event{Kind: Found, Alive: true}
	gone := Event{Kind: Found}
	ended := Event{Kind: Found, Exit: &process.Exit{Code: 1}, Gone: true}
	rest := Event{Kind: Found, Exit: &process.Exit{Code: 1}}
	at := func(p Phase) *tale {
		w := newTale(t, "health: {tcp: 80}, restart: {delay: 0}")
		w.want(Event{Kind: WantUp}, "launch 1, → starting")
		if p == Starting {
			return w
		}
		w.want(Event{Kind: Launched}, "started, → running")
		w.tick(50*time.Millisecond, "ask startup, → running")
		w.answer(Startup, true, "ready, → running")
		switch p {
		case Stopping:
			w.want(Event{Kind: WantDown}, "signal 15, → stopping")
		case Killing:
			w.want(Event{Kind: WantDown}, "signal 15, → stopping")
			w.tick(10*time.Second, "kill, → killing")
		case Idle:
			w.want(Event{Kind: WantDown}, "signal 15, → stopping")
			w.want(exit(0), "→ idle")
		}
		return w
	}
	for _, tt := range []struct {
		phase Phase
		ev    Event
		want  string
	}{
		{Starting, alive, "started, → running"},
		{Starting, gone, "launch 1, → starting"},
		{Starting, ended, "started, exit, launch 2, → starting"},
		{Running, alive, "→ running"},
		{Running, ended, "exit, launch 2, → starting"},
		{Running, rest, "exit, kill, → killing"},
		{Running, gone, "exit, launch 2, → starting"},
		{Stopping, alive, "signal 15, → stopping"},
		{Stopping, ended, "→ idle"},
		{Stopping, gone, "→ idle"},
		{Killing, alive, "kill, → killing"},
		{Killing, gone, "→ idle"},
		{Idle, alive, "kill, → killing"},
		{Idle, gone, "→ idle"},
	} {
		w := at(tt.phase)
		b := proctest.Value(json.Marshal(w.s))(t)
		var s State
		proctest.Must(t, json.Unmarshal(b, &s))
		if diff := cmp.Diff(w.s, s); diff != "" {
			t.Fatalf("a state is another after JSON:\n%s", diff)
		}
		w.s, w.now = s, w.now+time.Hour
		ready := s.Ready
		w.want(tt.ev, tt.want)
		if tt.phase == Running && tt.ev.Alive {
			if w.s.Ready != ready || w.s.Total != 0 {
				t.Errorf("an adopted service is %+v", w.s)
			}
			w.tick(2*time.Second, "ask liveness, → running")
		}
	}
}

func TestAStateOfAnEarlierBootStartsAgain(t *testing.T) {
	w := newTale(t, "")
	w.now = 1000 * time.Hour
	w.up()
	w.s, w.now = w.s.Rebase(5), 5
	w.want(Event{Kind: Found, Exit: &process.Exit{Cause: process.CauseShutdown}, Gone: true}, "exit, launch 2, → starting")
	if len(w.s.Restarts) != 0 {
		t.Error("the end of the machine counts as a failure")
	}
}
