package run_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/scene"
	"github.com/tend-run/tend/internal/testkeeper"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/supervisor"
)

// hog makes the test binary a program that takes memory, until this many MiB of it are
// resident; -1: without end.
const hog = "RUN_TEST_HOG"

func useMemory() {
	var most int
	fmt.Sscan(os.Getenv(hog), &most)
	var held [][]byte
	for {
		var size, resident int
		b, _ := os.ReadFile("/proc/self/statm")
		fmt.Sscan(string(b), &size, &resident)
		if most >= 0 && resident*os.Getpagesize() >= most<<20 {
			fmt.Println("holds", len(held))
			time.Sleep(time.Hour)
		}
		one := make([]byte, 1<<20)
		for at := 0; at < len(one); at += 4096 {
			one[at] = 1
		}
		held = append(held, one)
		time.Sleep(time.Millisecond)
	}
}

// memoryGroup makes a control group with a limit, in whatever version has the memory.
func memoryGroup(t *testing.T, limit int64) (dir string) {
	t.Helper()
	scene.Root(t)
	file := "memory.limit_in_bytes"
	base := "/sys/fs/cgroup/memory"
	if _, err := os.Stat(base + "/" + file); err != nil {
		base, file = "/sys/fs/cgroup", "memory.max"
		scene.Must(t, os.WriteFile(base+"/cgroup.subtree_control", []byte("+memory"), 0o600))
	}
	dir = filepath.Join(base, "tend-test-"+strings.ToLower(t.Name())+"-"+fmt.Sprint(os.Getpid()))
	scene.Must(t, os.Mkdir(dir, 0o755))
	t.Cleanup(func() {
		scene.Eventually(t, "the control group is empty", func() bool { return os.Remove(dir) == nil })
	})
	scene.Must(t, os.WriteFile(filepath.Join(dir, file), fmt.Append(nil, limit), 0o600))
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
	l.declare(`  x: {command: 'for n in 3 4 5 6 7 8 9; do eval "exec $n</dev/null"; done; exec sleep 1000', limits: {files: 15}, pressure: {interval: 100ms, memory: 0, disk: 0, descriptors: 0.5}}` + "\n")
	l.up()
	scene.Eventually(t, "somebody is told", func() bool { return l.noticed("x pressure") })
	if text := l.said(supervisor.NoticePressure); !strings.Contains(text, "has 10 of 15 open") {
		t.Errorf("it was said: %s", text)
	}
	if s := l.ready("x"); s.State.Run != 1 {
		t.Errorf("it was restarted: %+v", s.State)
	}
	l.down()
	l.phase("x", supervisor.Idle)
	nothingLives(t, m)
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
	l.down()
	l.phase("x", supervisor.Idle)
	nothingLives(t, m)
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
	scene.Eventually(t, "it is in its group", func() bool {
		b := scene.Value(os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid)))(t)
		return strings.Contains(string(b), filepath.Base(group))
	})
	// Looks are made every 100 ms: one of them comes before the end.
	scene.Wait(t, scene.Find(t, m, s.ID), process.Until{Quiet: time.Second})
	scene.Must(t, os.WriteFile(start, nil, 0o600))
	s = l.phase("x", supervisor.Failed)
	if e := s.State.Exit; e == nil || e.Signal != 9 || e.Cause != process.CauseOOM || !strings.Contains(s.State.Why, "want of memory") {
		t.Errorf("it has ended as %+v: %s", s.State.Exit, s.State.Why)
	}
}
