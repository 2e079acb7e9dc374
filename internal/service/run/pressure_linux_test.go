package run_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/service/supervisor"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// hog makes the test binary a program that takes memory, until this many MiB of its own are
// resident; -1: without end. From slowFrom MiB on it takes one each half second. Pages of
// its file count for whoever read them first, who may be outside of its control group.
const (
	hog      = "RUN_TEST_HOG"
	slowFrom = "RUN_TEST_HOG_SLOW"
)

func useMemory() {
	var most int
	fmt.Sscan(os.Getenv(hog), &most)
	slow := 1 << 20
	fmt.Sscan(os.Getenv(slowFrom), &slow)
	var held [][]byte
	for {
		var size, resident, ofFiles int
		b, _ := os.ReadFile("/proc/self/statm")
		fmt.Sscan(string(b), &size, &resident, &ofFiles)
		own := (resident - ofFiles) * os.Getpagesize()
		if most >= 0 && own >= most<<20 {
			fmt.Println("holds", len(held))
			time.Sleep(time.Hour)
		}
		one := make([]byte, 1<<20)
		for at := 0; at < len(one); at += 4096 {
			one[at] = 1
		}
		held = append(held, one)
		if own >= slow<<20 {
			time.Sleep(500 * time.Millisecond)
		}
		time.Sleep(time.Millisecond)
	}
}

// memoryGroup makes a control group with a limit, in whatever version has the memory.
func memoryGroup(t *testing.T, limit int64) (dir string) {
	t.Helper()
	proctest.Root(t)
	file := "memory.limit_in_bytes"
	base := "/sys/fs/cgroup/memory"
	if _, err := os.Stat(base + "/" + file); err != nil {
		base, file = "/sys/fs/cgroup", "memory.max"
		proctest.Must(t, os.WriteFile(base+"/cgroup.subtree_control", []byte("+memory"), 0o600))
	}
	dir = filepath.Join(base, "tend-test-"+strings.ToLower(t.Name())+"-"+fmt.Sprint(os.Getpid()))
	proctest.Must(t, os.Mkdir(dir, 0o755))
	t.Cleanup(func() {
		proctest.Eventually(t, "the control group is empty", func() bool { return os.Remove(dir) == nil })
	})
	proctest.Must(t, os.WriteFile(filepath.Join(dir, file), fmt.Append(nil, limit), 0o600))
	return dir
}

// said returns the text of the newest notice of a kind.
func (l *life) said(notice supervisor.Notice) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.texts[notice]
}

func TestAServiceThatIsShortOfDescriptorsIsReported(t *testing.T) {
	m := testkeeper.New(t)
	l := live(t, m, t.TempDir())
	l.declare(`  x: {command: 'for n in 3 4 5 6 7 8 9; do eval "exec $n</dev/null"; done; exec sleep 1000', limits: {files: 15}, pressure: {interval: 100ms, memory: 0, disk: 0, descriptors: 0.65}}` + "\n") // 9 of them are not enough yet
	l.up()
	proctest.Eventually(t, "somebody is told", func() bool { return l.noticed("x pressure") })
	if text := l.said(supervisor.NoticePressure); !strings.Contains(text, "has 10 of 15 open") {
		t.Errorf("it was said: %s", text)
	}
	if s := l.ready("x"); s.State.Run != 1 {
		t.Errorf("it was restarted: %+v", s.State)
	}
	l.end(m, "x")
}

// The command of a service that forks has ended when it is asked what the service is short of.
func TestWhatAForkedServiceHasLeftIsLookedAt(t *testing.T) {
	const serve = `for n in 3 4 5 6 7 8 9; do eval "exec $n</dev/null"; done; exec sleep 1000`
	for how, command := range map[string]string{
		"in its session": "(" + serve + ") & echo up",
		"as a daemon":    "setsid sh -c '" + serve + "' & until test -e $GO; do sleep 0.1; done",
	} {
		t.Run(how, func(t *testing.T) {
			m, dir := testkeeper.New(t), t.TempDir()
			forked := filepath.Join(t.TempDir(), "go")
			declare := func(l *life, pressure string) {
				l.declare(fmt.Sprintf("  x:\n    command: |\n      %s\n    env: {GO: %s}\n    forks: true\n    limits: {files: 15}\n    pressure: {interval: 100ms, memory: 0, disk: 0, descriptors: %s}\n", command, forked, pressure))
			}
			l := live(t, m, dir)
			declare(l, "0")
			l.up()
			l.ready("x")
			proctest.Must(t, os.WriteFile(forked, nil, 0o600))
			s := l.until("x", "forked", func(s supervisor.State) bool { return s.Forked })
			pid := pidOf(t, m, s)
			declare(l, "0.65")
			proctest.Eventually(t, "somebody is told", func() bool { return l.noticed("x pressure") })
			if text := l.said(supervisor.NoticePressure); !strings.Contains(text, "has 10 of 15 open") || strings.Contains(text, fmt.Sprintf("pid %d ", pid)) {
				t.Errorf("it was said: %s", text)
			}
			l.end(m, "x")
		})
	}
}

func TestAServiceThatUsesUpItsMemoryIsRestartedInTime(t *testing.T) {
	m := testkeeper.New(t)
	l := live(t, m, t.TempDir())
	group := memoryGroup(t, 200<<20)
	l.declare(fmt.Sprintf("  x: {command: 'echo $$ > %s/cgroup.procs; exec $SERVE', env: {%s: '188'}, stop: KILL, pressure: {interval: 500ms, restart: true}}\n", group, hog))
	l.up()
	s := l.until("x", "restarted", func(s supervisor.State) bool { return s.Run >= 2 })
	if text := l.said(supervisor.NoticePressure); !strings.Contains(text, "memory is short") || !strings.Contains(text, group) {
		t.Errorf("it was said: %s", text)
	}
	if !strings.Contains(s.State.Why, "memory is short") && s.State.Exit == nil {
		t.Errorf("it is %+v", s.State)
	}
	l.end(m, "x")
}

// Many looks find that a program which leaks has not grown since the one before.
func TestASlowLeakIsReportedBeforeTheMemoryIsUsedUp(t *testing.T) {
	m := testkeeper.New(t)
	l := live(t, m, t.TempDir())
	group := memoryGroup(t, 100<<20)
	l.declare(fmt.Sprintf("  x: {command: 'echo $$ > %s/cgroup.procs; exec $SERVE', env: {%s: '-1', %s: '75'}, stop: KILL, pressure: {interval: 200ms, memory: 1}}\n", group, hog, slowFrom))
	l.up()
	proctest.Eventually(t, "somebody is told", func() bool { return l.noticed("x pressure") })
	if text := l.said(supervisor.NoticePressure); !strings.Contains(text, "as it grows, nothing is left in ") || !strings.Contains(text, group) {
		t.Errorf("it was said: %s", text)
	}
	l.end(m, "x")
}

// Limits that it declares are those of its own control group, in whatever version has the
// controllers: what it is short of is looked at there.
func TestAServiceHasTheLimitsThatItDeclares(t *testing.T) {
	proctest.Root(t)
	m := testkeeper.New(t)
	l := live(t, m, t.TempDir())
	l.declare(fmt.Sprintf(`  greedy: {command: exec $SERVE, env: {%[1]s: '-1'}, restart: never, limits: {memory: 60MiB}}
  shell: {command: '%[1]s=-1 $SERVE; exit $?', restart: never, limits: {memory: 60MiB}}
  other: {command: exit 137, restart: never, limits: {memory: 60MiB}}
  short: {command: exec $SERVE, env: {%[1]s: '90'}, stop: KILL, limits: {memory: 100MiB}, pressure: {interval: 100ms, stalls: false, memory: 0.7, descriptors: 0, pids: 0, disk: 0}}
  many: {command: 'sleep 1000 & sleep 1000 & echo up; echo $(:); exec sleep 1000', limits: {pids: 3}, restart: never}
`, hog))
	l.up()
	s := l.phase("greedy", supervisor.Failed)
	if e := s.State.Exit; e == nil || e.Signal != 9 || e.Cause != process.CauseOOM || !strings.Contains(s.State.Why, "want of memory (limits.memory is 60 MiB)") {
		t.Errorf("without memory it has ended as %+v: %s", s.State.Exit, s.State.Why)
	}
	s = l.phase("shell", supervisor.Failed)
	if e := s.State.Exit; e == nil || e.Code != 137 || e.Signal != 0 || e.Cause != process.CauseOOM || !strings.Contains(s.State.Why, "want of memory (limits.memory is 60 MiB)") {
		t.Errorf("a shell whose child has no memory has ended as %+v: %s", s.State.Exit, s.State.Why)
	}
	s = l.phase("other", supervisor.Failed)
	if e := s.State.Exit; e == nil || e.Code != 137 || e.Cause != process.CauseExited || strings.Contains(s.State.Why, "memory") {
		t.Errorf("one that says the same has ended as %+v: %s", s.State.Exit, s.State.Why)
	}
	proctest.Eventually(t, "somebody is told", func() bool { return l.noticed("short pressure") })
	if text := l.said(supervisor.NoticePressure); !strings.Contains(text, "memory is short") || !strings.Contains(text, "/tend-") {
		t.Errorf("it was said: %s", text)
	}
	s = l.phase("many", supervisor.Failed)
	if got := proctest.Output(t, proctest.Find(t, m, s.ID), process.Stderr); !strings.Contains(got, "fork") {
		t.Errorf("one task too many: %q", got)
	}
	l.end(m, "short")
}

// A service lives on when the kernel kills a process of it, and does not answer for that.
func TestAKilledWorkerIsWhyAServiceDoesNotAnswer(t *testing.T) {
	proctest.Root(t)
	m := testkeeper.New(t)
	l := live(t, m, t.TempDir())
	at := t.TempDir()
	l.declare(fmt.Sprintf(`  x: {command: 'cd %[2]s; until test -e go; do sleep 0.1; done; %[1]s=-1 $SERVE; touch gone; exec sleep 1000', limits: {memory: 60MiB}, stop: KILL, restart: never, liveness: {exec: 'cd %[2]s; touch asked; test ! -e gone', interval: 100ms, timeout: 1m, failures: 2}}
`, hog, at))
	l.up()
	proctest.Eventually(t, "it is asked, and so it is known what the kernel had counted", func() bool {
		_, err := os.Stat(filepath.Join(at, "asked"))
		return err == nil
	})
	proctest.Must(t, os.WriteFile(filepath.Join(at, "go"), nil, 0o600))
	s := l.phase("x", supervisor.Failed)
	const want = "the kernel has killed a process of it for want of memory (limits.memory is 60 MiB)"
	if !l.noticed("x starved") || l.said(supervisor.NoticeStarved) != want {
		t.Errorf("it was said: %s", l.said(supervisor.NoticeStarved))
	}
	if text := l.said(supervisor.NoticeUnhealthy); !strings.Contains(text, want) || !strings.Contains(s.State.Why, want) {
		t.Errorf("it does not answer because %q, and has failed because %q", text, s.State.Why)
	}
}

func TestAnEndForWantOfMemoryHasItsCause(t *testing.T) {
	m := testkeeper.New(t)
	l := live(t, m, t.TempDir())
	group := memoryGroup(t, 60<<20)
	start := filepath.Join(t.TempDir(), "go")
	l.declare(fmt.Sprintf("  x: {command: 'echo $$ > %s/cgroup.procs; until test -e %s; do sleep 0.1; done; exec $SERVE', env: {%s: '-1'}, restart: never, pressure: {interval: 100ms, memory: 0, stalls: false}}\n", group, start, hog))
	l.up()
	s := l.ready("x")
	pid := pidOf(t, m, s)
	proctest.Eventually(t, "it is in its group", func() bool {
		b := proctest.Value(os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid)))(t)
		return strings.Contains(string(b), filepath.Base(group))
	})
	// Looks are made every 100 ms: one of them comes before the end.
	proctest.Wait(t, proctest.Find(t, m, s.ID), process.Until{Quiet: time.Second})
	proctest.Must(t, os.WriteFile(start, nil, 0o600))
	s = l.phase("x", supervisor.Failed)
	if e := s.State.Exit; e == nil || e.Signal != 9 || e.Cause != process.CauseOOM || !strings.Contains(s.State.Why, "want of memory") {
		t.Errorf("it has ended as %+v: %s", s.State.Exit, s.State.Why)
	}
}
