package run_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/service/run"
	"github.com/tend-run/tend/internal/service/sockets"
	"github.com/tend-run/tend/internal/service/supervisor"
	"github.com/tend-run/tend/internal/service/watch"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// role makes the test binary a server.
const role = "RUN_TEST_LISTEN"

func TestMain(m *testing.M) {
	if os.Getenv(hog) != "" {
		useMemory()
	}
	if sockets.Called(os.Args) {
		os.Exit(sockets.Main(os.Args[1:], os.Environ()))
	}
	if os.Getenv(socketRole) != "" {
		serveSockets()
	}
	if addr := os.Getenv(role); addr != "" {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := os.Stat(os.Getenv("DEAF")); err == nil {
				<-r.Context().Done()
			}
		}))
		return
	}
	goleak.VerifyTestMain(m)
}

// life is one supervisor from its start to its end.
type life struct {
	*run.Supervisor
	t    testing.TB
	stop func()

	mu      sync.Mutex
	notices []string                     // guarded by mu
	texts   map[supervisor.Notice]string // the newest of each; guarded by mu
}

func live(t testing.TB, m process.Manager, dir string) *life {
	t.Helper()
	return liveWith(t, m, dir, nil)
}

// liveWith is live where moving says whether output comes.
func liveWith(t testing.TB, m process.Manager, dir string, moving func(context.Context) error) *life {
	t.Helper()
	return liveConfig(t, run.Config{Manager: m, Dir: dir, Moving: moving})
}

// liveConfig is live with more than it has.
func liveConfig(t testing.TB, c run.Config) *life {
	t.Helper()
	l := &life{t: t, texts: map[supervisor.Notice]string{}}
	c.Program = []string{proctest.Value(os.Executable())(t)}
	c.Notice = func(service string, e supervisor.Effect) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.notices = append(l.notices, service+" "+e.Notice.String())
		l.texts[e.Notice] = e.Text
	}
	l.Supervisor = proctest.Value(run.Open(c))(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	l.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	t.Cleanup(l.stop)
	return l
}

// declare applies the services of a file.
func (l *life) declare(services string) {
	l.t.Helper()
	exe := proctest.Value(os.Executable())(l.t)
	c := proctest.Value(config.Parse("x", []byte("services:\n"+strings.ReplaceAll(services, "$SERVE", exe))))(l.t)
	for _, s := range c.Services {
		s.Cwd = "/"
	}
	proctest.Must(l.t, l.Apply(l.t.Context(), c))
}

func (l *life) up(names ...string) { l.t.Helper(); proctest.Must(l.t, l.Up(l.t.Context(), names...)) }
func (l *life) down(names ...string) {
	l.t.Helper()
	proctest.Must(l.t, l.Down(l.t.Context(), names...))
}

// end takes all services down, of which these are waited for, and fails if a process is left.
func (l *life) end(m process.Manager, names ...string) {
	l.t.Helper()
	l.down()
	for _, name := range names {
		l.phase(name, supervisor.Idle)
	}
	nothingLives(l.t, m)
}

// until waits until a service is as ok says, and returns it.
func (l *life) until(name, what string, ok func(supervisor.State) bool) run.Status {
	l.t.Helper()
	return proctest.Until(l.t, l.Wait, func(s run.Status) bool { return s.Name == name }, name, what, func(s run.Status) bool { return ok(s.State) })
}

func (l *life) ready(name string) run.Status {
	l.t.Helper()
	return l.until(name, "ready", func(s supervisor.State) bool { return s.Ready })
}

func (l *life) phase(name string, p supervisor.Phase) run.Status {
	l.t.Helper()
	return l.until(name, p.String(), func(s supervisor.State) bool { return s.Phase == p })
}

func (l *life) noticed(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(strings.Join(l.notices, "\n")+"\n", text+"\n")
}

func pidOf(t testing.TB, m process.Manager, s run.Status) int {
	t.Helper()
	return proctest.Info(t, proctest.Find(t, m, s.ID)).PID
}

// nothingLives fails if a service has left a process.
func nothingLives(t testing.TB, m process.Manager) {
	t.Helper()
	for _, in := range proctest.Value(m.List(t.Context(), process.Filter{}))(t) {
		if in.Exit == nil || !in.TreeGone {
			t.Errorf("%s of %s lives on: %+v", in.ID, in.Spec.Name, in)
		}
	}
}

func TestAServiceRunsAgainAfterAKill(t *testing.T) {
	m := testkeeper.New(t)
	l := live(t, m, t.TempDir())
	port := proctest.FreePort(t)
	l.declare(fmt.Sprintf("  web: {command: [$SERVE], env: {%s: '127.0.0.1:%d'}, health: {http: ':%d/', timeout: 20s, interval: 200ms}}\n", role, port, port))
	l.up()
	first := l.ready("web")
	before := pidOf(t, m, first)
	proctest.Must(t, syscall.Kill(before, syscall.SIGKILL))
	second := l.until("web", "ready again", func(s supervisor.State) bool { return s.Run == 2 && s.Ready })
	if after := pidOf(t, m, second); after == before {
		t.Errorf("the pid is %d, as before", after)
	}
	if e := second.State.Exit; e == nil || e.Signal != 9 || second.State.Total != 1 {
		t.Errorf("the exit is %+v after %d restarts", e, second.State.Total)
	}
	l.end(m, "web")
}

// interrupted is a manager whose keeper dies before it passes the first signal on.
type interrupted struct {
	process.Manager
	was atomic.Bool
}

func (m *interrupted) Get(ctx context.Context, s process.Selector) (process.Process, error) {
	p, err := m.Manager.Get(ctx, s)
	return interruptedProcess{p, m}, err
}

type interruptedProcess struct {
	process.Process
	m *interrupted
}

func (p interruptedProcess) Signal(ctx context.Context, number int, scope process.Scope) error {
	if !p.m.was.Swap(true) {
		return process.ErrUnavailable
	}
	return p.Process.Signal(ctx, number, scope)
}

// Else it were killed when its time is over, and what it was answering were lost.
func TestAServiceIsAskedToEndThoughAKeeperDiesMeanwhile(t *testing.T) {
	m := &interrupted{Manager: testkeeper.New(t)}
	l := live(t, m, t.TempDir())
	l.declare("  web: {command: 'trap \"exit 7\" TERM; echo up; while :; do sleep 0.05; done', stop: {timeout: 10m}, health: {log: up}}\n")
	l.up()
	l.ready("web")
	proctest.Must(t, l.Restart(t.Context(), "web"))
	if s := l.until("web", "run again", func(s supervisor.State) bool { return s.Run == 2 }); s.State.Exit == nil || s.State.Exit.Code != 7 {
		t.Errorf("the exit is %+v; want the service's own", s.State.Exit)
	}
	if !m.was.Load() {
		t.Error("no signal was sent")
	}
}

// The death of the supervisor at any moment is the end of Run without more.
func TestServicesOutliveTheSupervisorAndAreAdopted(t *testing.T) {
	m, dir := testkeeper.New(t), t.TempDir()
	l := live(t, m, dir)
	port := proctest.FreePort(t)
	l.declare(fmt.Sprintf(`
  web: {command: [$SERVE], env: {%s: '127.0.0.1:%d'}, health: {tcp: %d, timeout: 20s, interval: 200ms}}
  one: {command: exec sleep 1000}
  two: {command: exec sleep 1000}
  gone: {command: exec sleep 1000, restart: on-failure}
`, role, port, port))
	l.up()
	pids := map[string]int{}
	for _, name := range []string{"web", "one", "two", "gone"} {
		pids[name] = pidOf(t, m, l.ready(name))
	}
	l.stop()
	// While nobody looks, one dies and is collected.
	proctest.Must(t, syscall.Kill(pids["two"], syscall.SIGKILL))
	for _, in := range proctest.Value(m.List(t.Context(), process.Filter{Labels: map[string]string{process.LabelService: "two"}}))(t) {
		proctest.Wait(t, proctest.Find(t, m, in.ID), process.Until{})
	}
	l = live(t, m, dir)
	for _, name := range []string{"web", "one", "gone"} {
		s := l.ready(name)
		if pid := pidOf(t, m, s); pid != pids[name] || s.State.Run != 1 {
			t.Errorf("%s has pid %d in run %d; it had %d", name, pid, s.State.Run, pids[name])
		}
	}
	l.until("two", "running again", func(s supervisor.State) bool { return s.Run == 2 && s.Ready })
	// And they are supervised.
	proctest.Must(t, syscall.Kill(pids["one"], syscall.SIGKILL))
	l.until("one", "running again", func(s supervisor.State) bool { return s.Run == 2 && s.Ready })
	l.down("gone")
	l.phase("gone", supervisor.Idle)
	l.stop()
	l = live(t, m, dir)
	l.ready("web")
	if s := l.phase("gone", supervisor.Idle); s.State.Up {
		t.Error("what was stopped is wanted again")
	}
	l.end(m, "web", "one", "two")
}

// The supervisor dies again and again while services start and end.
func TestNoServiceIsDoubledHoweverOftenTheSupervisorDies(t *testing.T) {
	m, dir := testkeeper.New(t), t.TempDir()
	const services = `
  a: {command: 'sleep 0.05', restart: {max: 0, delay: 1ms}}
  b: {command: exec sleep 1000, depends_on: {a: started}}
  c: {command: 'sleep 0.02; exit 1', restart: {max: 0, delay: 1ms, jitter: 0}}
`
	for i := range 15 {
		l := live(t, m, dir)
		l.declare(services)
		l.up()
		n := int64(i)
		l.until("c", "restarted", func(s supervisor.State) bool { return s.Run > n })
		l.stop()
		alive := map[string]int{}
		for _, in := range proctest.Value(m.List(t.Context(), process.Filter{Live: true}))(t) {
			alive[in.Spec.Name]++
		}
		for name, n := range alive {
			if n > 1 {
				t.Fatalf("%d processes of %s live", n, name)
			}
		}
	}
	l := live(t, m, dir)
	if s := l.ready("b"); s.State.Run != 1 {
		t.Errorf("b was started %d times", s.State.Run)
	}
	l.end(m, "a", "b", "c")
}

func TestHostileServicesEnd(t *testing.T) {
	m := testkeeper.New(t)
	l := live(t, m, t.TempDir())
	for name, service := range map[string]string{
		"ignores TERM":     "{command: \"trap '' TERM; echo up; while :; do sleep 1000; done\", stop: {timeout: 200ms}, health: {log: up}}",
		"leaves a child":   "{command: \"setsid sleep 1000 & echo up; exec sleep 1000\", stop: {timeout: 200ms}, health: {log: up}}",
		"floods its log":   "{command: exec yes, log: {limit: 64KiB, pattern: never}, stop: {timeout: 5s}}",
		"holds its pipe":   "{command: \"(trap '' TERM; sleep 1000) & echo up; wait\", stop: {timeout: 200ms}, health: {log: up}}",
		"closes its pipes": "{command: \"exec >/dev/null 2>&1; exec sleep 1000\"}",
		"is stopped":       "{command: \"kill -STOP $$; exec sleep 1000\", stop: {timeout: 200ms}}",
	} {
		t.Run(name, func(t *testing.T) {
			l.declare("  x: " + service + "\n")
			l.up()
			l.ready("x")
			l.end(m, "x")
		})
	}
}

// The command ends at once and leaves a process that would hold the port.
func TestWhatIsLeftOfARunIsGoneBeforeTheNext(t *testing.T) {
	m := testkeeper.New(t)
	l := live(t, m, t.TempDir())
	port := proctest.FreePort(t)
	l.declare(fmt.Sprintf(`
  web: {command: 'setsid $SERVE & sleep 0.1; exit 1', env: {%s: '127.0.0.1:%d'}, restart: {max: 3, delay: 10ms, retry: 0}}
`, role, port))
	l.up()
	s := l.phase("web", supervisor.Failed)
	if s.State.Run != 4 || s.State.Total != 3 || !l.noticed("web flapping") || !l.noticed("web failed") {
		t.Errorf("it is %+v after %v", s.State, l.notices)
	}
	nothingLives(t, m)
	proctest.Value(net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)))(t).Close()
}

func TestAServiceThatForksIsKept(t *testing.T) {
	m := testkeeper.New(t)
	l := live(t, m, t.TempDir())
	l.declare("  x: {command: 'sleep 1000 & echo $!', forks: true, restart: {delay: 1ms}}\n")
	l.up()
	s := l.until("x", "forked", func(s supervisor.State) bool { return s.Forked })
	var child int
	res := proctest.Wait(t, proctest.Find(t, m, s.ID), process.Until{Match: `\d+`})
	if _, err := fmt.Sscan(res.Match, &child); err != nil {
		t.Fatalf("%q: %v", res.Match, err)
	}
	proctest.Must(t, syscall.Kill(child, syscall.SIGKILL))
	l.until("x", "forked again", func(s supervisor.State) bool { return s.Run == 2 && s.Forked })
	l.end(m, "x")
}

// A server that listens where nobody asks is told long before its time is over, and what
// listens where it should is not.
func TestAServiceThatServesElsewhereIsReported(t *testing.T) {
	m := testkeeper.New(t)
	l := live(t, m, t.TempDir())
	asked, other, third := proctest.FreePort(t), proctest.FreePort(t), proctest.FreePort(t)
	deaf := filepath.Join(t.TempDir(), "deaf")
	proctest.Must(t, os.WriteFile(deaf, nil, 0o600))
	health := fmt.Sprintf("health: {http: ':%d/', interval: 100ms, timeout: 200ms}", asked)
	l.declare(fmt.Sprintf("  right: {command: [$SERVE], env: {%s: '127.0.0.1:%d', DEAF: %s}, stop: KILL, health: {http: ':%d/', timeout: 200ms}}\n", role, third, deaf, third) +
		fmt.Sprintf("  elsewhere: {command: [$SERVE], env: {%s: '127.0.0.1:%d'}, stop: KILL, %s}\n", role, other, health) +
		fmt.Sprintf("  says: {command: 'echo \"ready on http://[::1]:5173\"; exec sleep 1000', stop: KILL, %s}\n", health) +
		fmt.Sprintf("  quiet: {command: 'echo starting; exec sleep 1000', stop: KILL, %s}\n", health))
	l.up()
	for _, name := range []string{"elsewhere", "says"} {
		proctest.Eventually(t, name+" is told", func() bool { return l.noticed(name + " elsewhere") })
	}
	for _, name := range []string{"right", "quiet"} {
		if l.noticed(name + " elsewhere") {
			t.Errorf("%s is told: %s, %v", name, l.said(supervisor.NoticeElsewhere), l.notices)
		}
	}
	if text := l.said(supervisor.NoticeElsewhere); !strings.Contains(text, supervisor.NotWhereAsked) || !strings.Contains(text, fmt.Sprint(":", asked, "/")) {
		t.Errorf("it was said: %s", text)
	}
	l.end(m, "right", "elsewhere", "says", "quiet")
}

// What is stopped wakes to end.
func TestAStoppedServiceEndsInTime(t *testing.T) {
	m := testkeeper.New(t)
	l := live(t, m, t.TempDir())
	l.declare("  web: {command: 'trap \"exit 7\" TERM; echo up; while :; do sleep 0.05; done', stop: {timeout: 10m}, health: {log: up}}\n")
	l.up()
	s := l.ready("web")
	proctest.Must(t, syscall.Kill(pidOf(t, m, s), syscall.SIGSTOP))
	l.end(m, "web")
}

func TestWhatHangsIsRestarted(t *testing.T) {
	m := testkeeper.New(t)
	l := live(t, m, t.TempDir())
	port, deaf := proctest.FreePort(t), filepath.Join(t.TempDir(), "deaf")
	l.declare(fmt.Sprintf("  web: {command: [$SERVE], env: {%s: '127.0.0.1:%d', DEAF: %s}, stop: KILL, restart: {max: 0, delay: 10ms}, health: {http: ':%d/', interval: 100ms, timeout: 200ms, failures: 2}}\n", role, port, deaf, port))
	l.up()
	l.ready("web")
	proctest.Must(t, os.WriteFile(deaf, nil, 0o600))
	l.until("web", "restarted", func(s supervisor.State) bool { return s.Run >= 2 })
	if !l.noticed("web unhealthy") {
		t.Errorf("nobody was told: %v", l.notices)
	}
	proctest.Must(t, os.Remove(deaf))
	l.ready("web")
}

func TestAStuckLogRestarts(t *testing.T) {
	m := testkeeper.New(t)
	l := live(t, m, t.TempDir())
	marks := t.TempDir()
	l.declare(fmt.Sprintf("  dev: {command: 'mkdir %s/was 2>/dev/null && { echo start; printf \"Bundling...\"; sleep 1000; }; printf \"start\\nBundling...\\ndone\\n\"; exec sleep 1000', stop: KILL, log: {pattern: Bundling, quiet: 300ms}}\n", marks))
	l.up()
	l.until("dev", "restarted", func(s supervisor.State) bool { return s.Run == 2 && s.Ready })
	if !l.noticed("dev stuck") {
		t.Errorf("nobody was told: %v", l.notices)
	}
	// Its last line is another one now.
	s := l.ready("dev")
	proctest.Wait(t, proctest.Find(t, m, s.ID), process.Until{Match: "done"})
	proctest.Wait(t, proctest.Find(t, m, s.ID), process.Until{Quiet: time.Second}) // well beyond the 300 ms
	if s := l.ready("dev"); s.State.Run != 2 {
		t.Errorf("it was restarted again: %+v", s.State)
	}
}

// While nobody moves output to where it is read, none is missing.
func TestALogThatCannotComeIsNotStuck(t *testing.T) {
	m := testkeeper.New(t)
	var moves atomic.Bool
	asked := make(chan struct{})
	l := liveWith(t, m, t.TempDir(), func(ctx context.Context) error {
		if moves.Load() {
			return nil
		}
		select {
		case asked <- struct{}{}:
		case <-ctx.Done():
		}
		return process.ErrUnavailable
	})
	l.declare("  dev: {command: 'echo Bundling; exec sleep 1000', stop: KILL, log: {pattern: Bundling, quiet: 100ms}}\n")
	l.up()
	for range 3 { // each is an answer more, so the ones before led to nothing
		<-asked
	}
	if s := l.ready("dev"); s.State.Run != 1 || l.noticed("dev stuck") {
		t.Errorf("its output could not come, and it is %+v", s.State)
	}
	moves.Store(true)
	select {
	case <-asked: // a question that was under way
	default:
	}
	l.until("dev", "restarted", func(s supervisor.State) bool { return s.Run >= 2 })
}

func TestDependenciesByLineAndByCompletion(t *testing.T) {
	m := testkeeper.New(t)
	l := live(t, m, t.TempDir())
	dir := t.TempDir()
	l.declare(fmt.Sprintf(`
  db: {command: 'sleep 0.1; touch %[1]s/db; echo accepting; exec sleep 1000', readiness: {log: accept}}
  job: {command: 'test -e %[1]s/db && touch %[1]s/job', restart: never, depends_on: {db: {log: accepting}}}
  web: {command: 'test -e %[1]s/job || exit 1; exec sleep 1000', restart: never, depends_on: {job: completed, db: ready}}
`, dir))
	l.up("web")
	l.ready("web")
	if s := l.phase("job", supervisor.Completed); !s.State.Done {
		t.Errorf("the job is %+v", s.State)
	}
}

func TestAStartThatCannotBeSaysWhy(t *testing.T) {
	m := testkeeper.New(t)
	l := live(t, m, t.TempDir())
	l.declare("  x: {command: [no-such-program], restart: never}\n  y: {command: 'true', user: nobody-of-this-name, restart: {max: 1, delay: 1ms, retry: 0}}\n")
	l.up()
	if s := l.phase("x", supervisor.Failed); !strings.Contains(s.State.Why, "no-such-program") {
		t.Errorf("x failed because %q", s.State.Why)
	}
	if s := l.phase("y", supervisor.Failed); !strings.Contains(s.State.Why, "nobody-of-this-name") {
		t.Errorf("y failed because %q", s.State.Why)
	}
}

func TestADeclarationIsAppliedByDifference(t *testing.T) {
	m, dir := testkeeper.New(t), t.TempDir()
	l := live(t, m, dir)
	const both = "  a: {command: exec sleep 1000}\n  b: {command: exec sleep 1000, env: {V: 1}}\n"
	l.declare(both)
	l.up()
	a, b := pidOf(t, m, l.ready("a")), pidOf(t, m, l.ready("b"))
	l.declare(strings.Replace(both, "V: 1", "V: 2", 1))
	s := l.until("b", "restarted", func(s supervisor.State) bool { return s.Run == 2 && s.Ready })
	if pidOf(t, m, s) == b || pidOf(t, m, l.ready("a")) != a {
		t.Error("not b alone was restarted")
	}
	l.declare("  a: {command: exec sleep 1000}\n")
	proctest.Eventually(t, "b is forgotten", func() bool {
		_, err := os.Stat(filepath.Join(dir, "b.json"))
		return os.IsNotExist(err)
	})
	if all := proctest.Value(l.List(t.Context()))(t); len(all) != 1 || all[0].State.Run != 1 {
		t.Errorf("what is left is %+v", all)
	}
	c := proctest.Value(config.Parse("x", []byte("services: {a: {command: x, sandbox: s}}")))(t)
	if err := l.Apply(t.Context(), c); err == nil || !strings.Contains(err.Error(), "services.a.sandbox cannot be used: this server has no sandboxes") {
		t.Errorf("got %v", err)
	}
}

// What a service is watched for changes while it runs, as the same process.
func TestARunGoesOnUnderAnotherDeclaration(t *testing.T) {
	m := testkeeper.New(t)
	l := live(t, m, t.TempDir())
	const before = "{command: 'for i in 3 4 5 6 7 8; do eval \"exec $i</dev/null\"; done; echo Bundling; exec sleep 1000', limits: {files: 12}, restart: {max: 0}"
	l.declare("  x: " + before + "}\n")
	l.up()
	first := pidOf(t, m, l.ready("x"))
	l.declare("  x: " + before + ", pressure: {descriptors: 0.5, interval: 100ms}}\n")
	proctest.Eventually(t, "that descriptors are short", func() bool { return strings.Contains(l.said(supervisor.NoticePressure), "descriptors are short") })
	l.declare("  x: " + before + ", log: {pattern: Bundling, quiet: 100ms, stuck: report}}\n")
	proctest.Eventually(t, "that its log is stuck", func() bool { return l.noticed("x stuck") })
	l.declare("  x: " + before + "}\n  y: {command: exec sleep 1000, depends_on: {x: {log: Bundling}}}\n")
	l.up("y")
	l.ready("y")
	if s := l.ready("x"); s.State.Run != 1 || pidOf(t, m, s) != first {
		t.Errorf("it has another process: %+v", s.State)
	}
	l.end(m, "x")
}

func TestAScheduledServiceStartsAtItsTimes(t *testing.T) {
	m := testkeeper.New(t)
	l := live(t, m, t.TempDir())
	l.declare("  job: {command: 'true', schedule: '@every 1s'}\n")
	l.up()
	l.phase("job", supervisor.Waiting)
	l.until("job", "run twice", func(s supervisor.State) bool { return s.Run == 2 && s.Phase == supervisor.Waiting })
	l.end(m, "job")
}

// project is a service whose files are watched.
type project struct {
	*life
	m        process.Manager
	dir, app string // of the records, and of the service
	delay    string
	rules    *config.Watch
}

func newProject(t *testing.T, delay, command string) *project {
	t.Helper()
	p := &project{m: testkeeper.New(t), dir: t.TempDir(), app: t.TempDir(), delay: delay}
	p.write(t, "src/main.js", "1")
	p.write(t, "lib/main.js", "1")
	p.live(t)
	proctest.Must(t, p.watch("src", command))
	p.up()
	p.known()
	return p
}

func (p *project) live(t *testing.T) { t.Helper(); p.life = live(t, p.m, p.dir) }

func (p *project) write(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join(p.app, name)
	proctest.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	proctest.Must(t, os.WriteFile(path+"~", []byte(text), 0o600)) // the name of a backup does not count
	proctest.Must(t, os.Rename(path+"~", path))
}

func (p *project) watch(paths, command string) error {
	c := proctest.Value(config.Parse("x", []byte("services: {dev: {"+command+", watch: {paths: "+paths+", delay: "+p.delay+"}}}")))(p.t)
	c.Services["dev"].Cwd = p.app
	err := p.Apply(p.t.Context(), c)
	if err == nil {
		p.rules = c.Services["dev"].Watch
	}
	return err
}

// known waits until what the files are is stored.
func (p *project) known() {
	p.t.Helper()
	w := proctest.Value(watch.Open(p.app, p.rules))(p.t)
	are := w.Sum()
	proctest.Must(p.t, w.Close())
	proctest.Eventually(p.t, "it is known what the files are", func() bool {
		data, _ := os.ReadFile(filepath.Join(p.dir, "dev.files"))
		return strings.Contains(string(data), are.Hash)
	})
}

// edited changes a file, and waits for the run that follows, which must be n.
func (p *project) edited(t *testing.T, name string, n int64) run.Status {
	t.Helper()
	p.known() // and so it is watched
	p.write(t, name, fmt.Sprint("of run ", n, time.Now()))
	p.until("dev", "restarted", func(s supervisor.State) bool { return s.Ready && s.Run >= n })
	p.known() // that is after all restarts for it were asked for
	s := p.ready("dev")
	if s.State.Run != n {
		t.Errorf("it is run %d; want %d", s.State.Run, n)
	}
	return s
}

const sleeper = "command: exec sleep 1000"

func TestAChangedFileRestarts(t *testing.T) {
	p := newProject(t, "50ms", sleeper)
	s := p.edited(t, "src/main.js", 2)
	p.stop()
	// Another supervisor continues watching.
	p.live(t)
	if now := p.ready("dev"); now.ID != s.ID {
		t.Errorf("%s was adopted of %s", now.ID, s.ID)
	}
	p.edited(t, "src/main.js", 3)
	// What is not watched any more does nothing.
	proctest.Must(t, p.watch("lib", sleeper))
	p.known()
	p.write(t, "src/main.js", "not watched")
	p.edited(t, "lib/main.js", 4)
	for i := range watch.MaxDirs + 1 {
		proctest.Must(t, os.MkdirAll(filepath.Join(p.app, "lib", fmt.Sprint(i)), 0o755))
	}
	var invalid *process.InvalidError
	if err := p.watch("src", sleeper); err != nil {
		t.Errorf("got %v", err)
	}
	p.known()
	if err := p.watch("lib", sleeper); !errors.As(err, &invalid) || invalid.Field != "services.dev.watch" {
		t.Errorf("got %v", err)
	}
	p.end(p.m, "dev")
	p.declare("  other: {command: exec sleep 1000}\n")
	if _, err := os.Stat(filepath.Join(p.dir, "dev.files")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of a service that is forgotten there is still what its files were: %v", err)
	}
}

// What changes while nobody looks restarts what was started before, once. Nothing else does.
func TestFilesThatChangeWhileNoServerRuns(t *testing.T) {
	for what, tt := range map[string]struct {
		before func(t *testing.T, p *project) // while a supervisor runs
		during func(t *testing.T, p *project) // and while none does
		runs   int64                          // that are begun after that
		delay  string
	}{
		"no file":         {runs: 0},
		"a file":          {during: func(t *testing.T, p *project) { p.write(t, "src/main.js", "other") }, runs: 1},
		"a new file":      {during: func(t *testing.T, p *project) { p.write(t, "src/new/b.js", "1") }, runs: 1},
		"an ignored file": {during: func(t *testing.T, p *project) { p.write(t, "src/node_modules/b.js", "1") }, runs: 0},
		"a file of which only the time has changed, before": {before: func(t *testing.T, p *project) {
			old := time.Now().Add(-time.Hour)
			proctest.Must(t, os.Chtimes(filepath.Join(p.app, "src/main.js"), old, old))
			p.known()
		}, runs: 0},
		"a file just before": {before: func(t *testing.T, p *project) {
			p.write(t, "src/main.js", "other") // it is told, and whoever told it dies
			p.until("dev", "restarted", func(s supervisor.State) bool { return s.Ready && s.Run == 2 })
		}, runs: 0, delay: "1s"},
		"a file, and the service ends": {during: func(t *testing.T, p *project) {
			p.write(t, "src/main.js", "other")
			all := proctest.Value(p.m.List(t.Context(), process.Filter{Live: true}))(t)
			if len(all) != 1 {
				t.Fatalf("there are %+v", all)
			}
			proctest.Value(proctest.Find(t, p.m, all[0].ID).Kill(t.Context()))(t)
		}, runs: 1},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			p := newProject(t, cmp.Or(tt.delay, "50ms"), sleeper)
			p.ready("dev")
			if tt.before != nil {
				tt.before(t, p)
			}
			n := p.ready("dev").State.Run
			p.stop()
			if tt.during != nil {
				tt.during(t, p)
			}
			p.live(t)
			s := p.until("dev", "ready", func(s supervisor.State) bool { return s.Ready && s.Run >= n+tt.runs })
			if s.State.Run != n+tt.runs {
				t.Errorf("it is run %d; want %d", s.State.Run, n+tt.runs)
			}
			p.edited(t, "src/main.js", n+tt.runs+1) // once
			p.end(p.m, "dev")
		})
	}
}

// A service that has completed runs again for what has changed, as it does while a
// supervisor runs.
func TestACompletedServiceRunsForWhatHasChangedMeanwhile(t *testing.T) {
	p := newProject(t, "50ms", "command: 'true', restart: on-failure")
	p.phase("dev", supervisor.Completed)
	p.stop()
	p.write(t, "src/main.js", "other")
	p.live(t)
	p.until("dev", "completed again", func(s supervisor.State) bool { return s.Phase == supervisor.Completed && s.Run == 2 })
	p.end(p.m, "dev")
}

func TestADamagedRecordIsNotTakenForNone(t *testing.T) {
	dir := t.TempDir()
	proctest.Must(t, os.WriteFile(filepath.Join(dir, "web.json"), []byte("{"), 0o600))
	if _, err := run.Open(run.Config{Manager: testkeeper.New(t), Dir: dir}); err == nil || !strings.Contains(err.Error(), "web.json is damaged") {
		t.Errorf("got %v", err)
	}
}

// A tend that is older than the one that wrote a record leaves that service, which continues,
// and looks after all others.
func TestARecordOfAnotherVersionHoldsItsServiceAlone(t *testing.T) {
	m, dir := testkeeper.New(t), t.TempDir()
	l := live(t, m, dir)
	l.declare("  db: {command: exec sleep 1000}\n  web: {command: exec sleep 1000, depends_on: {db: started}}\n  job: {command: exec sleep 1000}\n")
	l.up()
	before := map[string]process.ID{}
	for _, name := range []string{"db", "web", "job"} {
		before[name] = l.ready(name).ID
	}
	l.stop()
	file := filepath.Join(dir, "db.json")
	known := proctest.Value(os.ReadFile(file))(t)
	for what, change := range map[string][2]string{
		"a phase":            {`"Phase":"running"`, `"Phase":"hibernating"`},
		"what follows":       {`"Then":0`, `"Then":77`},
		"a hook":             {`"Hook":0`, `"Hook":77`},
		"a policy, as rules": {`"rules":{`, `"rules":{"Restart":"sometimes",`},
	} {
		t.Run(what+" that is not known", func(t *testing.T) {
			stored := strings.Replace(string(known), change[0], change[1], 1)
			if stored == string(known) {
				t.Fatalf("the record has no %s: %s", change[0], known)
			}
			proctest.Must(t, os.WriteFile(file, []byte(stored), 0o600))
			l := live(t, m, dir)
			if s := l.phase("db", supervisor.Failed); s.ID != before["db"] || !strings.Contains(s.State.Why, "another version") || !strings.Contains(s.State.Why, file) {
				t.Errorf("db is %s: %s", s.ID, s.State.Why)
			}
			if s := l.ready("job"); s.ID != before["job"] {
				t.Errorf("job is %s", s.ID)
			}
			for what, ask := range map[string]func(context.Context, ...string) error{"up": l.Up, "down": l.Down, "restart": l.Restart} {
				var foreign *supervisor.ForeignError
				if err := ask(t.Context(), "db"); !errors.As(err, &foreign) || foreign.Name != "db" {
					t.Errorf("%s: %v", what, err)
				}
			}
			l.up()
			l.stop()
			if now := proctest.Value(os.ReadFile(file))(t); string(now) != stored {
				t.Errorf("its record is %s", now)
			}
		})
	}
	proctest.Must(t, os.WriteFile(file, known, 0o600))
	l = live(t, m, dir)
	for name, id := range before {
		if s := l.ready(name); s.ID != id {
			t.Errorf("%s is %s, and was %s", name, s.ID, id)
		}
	}
	l.end(m, "db", "web", "job")
}

// One that is held does not hold others back that end, and does not leave.
func TestWhatAnotherVersionHasStoredOutlivesOtherFiles(t *testing.T) {
	m, dir := testkeeper.New(t), t.TempDir()
	l := live(t, m, dir)
	l.declare("  db: {command: exec sleep 1000}\n  web: {command: exec sleep 1000, depends_on: {db: started}}\n")
	l.up()
	id := l.ready("web").ID
	l.ready("db")
	l.stop()
	file := filepath.Join(dir, "web.json")
	proctest.Must(t, os.WriteFile(file, []byte(strings.Replace(string(proctest.Value(os.ReadFile(file))(t)), `"running"`, `"hibernating"`, 1)), 0o600))
	l = live(t, m, dir)
	l.down()
	l.phase("db", supervisor.Idle)
	l.declare("  other: {command: exec sleep 1000}\n")
	l.up()
	l.ready("other")
	if all := proctest.Value(l.List(t.Context()))(t); len(all) != 2 {
		t.Errorf("there are %+v", all)
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
	if in := proctest.Value(proctest.Find(t, m, id).Info(t.Context()))(t); in.Exit != nil {
		t.Errorf("what ran of it has ended: %v", in.Exit)
	}
	proctest.Value(proctest.Find(t, m, id).Kill(t.Context()))(t)
	l.end(m, "other")
}

// What could not be stored is stored once it can be, though nothing more happens.
func TestWhatCouldNotBeStoredIsStoredLater(t *testing.T) {
	m, dir := testkeeper.New(t), t.TempDir()
	l := live(t, m, dir)
	l.declare("  x: {command: exec sleep 1000}\n")
	l.up()
	l.ready("x")
	file := filepath.Join(dir, "x.json")
	proctest.Must(t, os.Remove(file))
	proctest.Must(t, os.MkdirAll(filepath.Join(file, "in the way"), 0o700))
	l.down()
	l.phase("x", supervisor.Idle)
	proctest.Must(t, os.RemoveAll(file))
	proctest.Eventually(t, "it is stored", func() bool {
		_, err := os.Stat(file)
		return err == nil
	})
	l.stop()
	l = live(t, m, dir)
	if s := l.phase("x", supervisor.Idle); s.State.Up {
		t.Error("it is wanted again")
	}
}

// BenchmarkRestart is from kill -9 to the next process.
func BenchmarkRestart(b *testing.B) {
	m := testkeeper.New(b)
	l := live(b, m, b.TempDir())
	l.declare("  x: {command: [sleep, 1000], restart: {max: 0, delay: 0}}\n")
	l.up()
	s := l.ready("x")
	for b.Loop() {
		b.StopTimer()
		pid, n := pidOf(b, m, s), s.State.Run
		b.StartTimer()
		proctest.Must(b, syscall.Kill(pid, syscall.SIGKILL))
		s = l.until("x", "running again", func(s supervisor.State) bool { return s.Run == n+1 && s.Ready })
	}
}
