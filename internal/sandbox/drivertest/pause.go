package drivertest

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// counter writes numbers, one a line, and as fast as it is read.
const counter = `n=0; while :; do n=$((n+1)); echo $n; done`

// boot is the name of the boot that programs inside see.
func boot(t *testing.T, s driver.Sandbox) string {
	t.Helper()
	out, _ := sh(t, s, "cat /proc/sys/kernel/random/boot_id")
	return out
}

// end is how much a process has written.
func end(t *testing.T, p process.Process) int64 {
	t.Helper()
	for _, s := range proctest.Info(t, p).Streams {
		if s.Stream == process.Stdout {
			return s.End
		}
	}
	t.Fatal("it has no output")
	return 0
}

func pausedWithMemory(t *testing.T, d driver.Driver) {
	pauser, ok := d.(driver.Pauser)
	if !ok || Lacks(t, d, "freeze") {
		return
	}
	work(t, d)
	s, info := create(t, d, driver.Spec{Isolation: driver.IsolationFull, Deadline: time.Now().Add(time.Hour)})
	first := boot(t, s)
	p := proctest.Start(t, s.Processes(), process.Spec{Shell: counter, Retention: process.Retention{Limit: 64 << 20}})
	proctest.Eventually(t, "it writes", func() bool { return end(t, p) > 1000 })
	began := time.Now()
	proctest.Must(t, pauser.Pause(t.Context(), info.ID, driver.PauseSpec{Memory: true}))
	t.Logf("the pause took %v", time.Since(began))
	if in, err := s.Info(t.Context()); err != nil || in.State != driver.Paused || in.PausedAt.IsZero() {
		t.Errorf("paused, it is %+v, %v", in, err)
	}
	if err := pauser.Pause(t.Context(), info.ID, driver.PauseSpec{Memory: true}); !errors.Is(err, driver.ErrPaused) {
		t.Errorf("a second pause: %v", err)
	}
	if _, err := s.Processes().Start(t.Context(), process.Spec{Shell: "true"}); !errors.Is(err, driver.ErrPaused) {
		t.Errorf("a start in it: %v", err)
	}
	past := time.Now() // a deadline rests meanwhile
	change(t, s, driver.Change{Deadline: &past})
	fs, err := s.Files("", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fs.Write("/tmp/meanwhile", strings.NewReader("x"), nil); err != nil {
		t.Errorf("its files cannot be written: %v", err)
	}
	stood := end(t, p) // what was on its way has come
	proctest.Eventually(t, "nothing is on its way any more", func() bool {
		before := stood
		stood = end(t, p)
		return stood == before
	})
	proctest.Must(t, pauser.Resume(t.Context(), info.ID))
	proctest.Must(t, pauser.Resume(t.Context(), info.ID)) // no error
	proctest.Eventually(t, "it goes on", func() bool { return end(t, p) > stood })
	if in, err := s.Info(t.Context()); err != nil || in.State != driver.Ready || !in.Deadline.IsZero() {
		t.Errorf("resumed, it is %+v, %v", in, err)
	}
	if got := boot(t, s); got != first {
		t.Errorf("resumed, its boot is %q; it was %q", got, first)
	}
	proctest.Kill(t, p)
	want := int64(1)
	for line := range strings.Lines(proctest.Output(t, p, process.Stdout)) {
		if n, err := strconv.ParseInt(strings.TrimSuffix(line, "\n"), 10, 64); strings.HasSuffix(line, "\n") && (err != nil || n != want) {
			t.Fatalf("%q comes where %d should", line, want)
		}
		want++
	}
	// A stop and an end of what stands still.
	p = proctest.Start(t, s.Processes(), process.Spec{Shell: "sleep 600"})
	proctest.Must(t, pauser.Pause(t.Context(), info.ID, driver.PauseSpec{Memory: true}))
	proctest.Must(t, s.Stop(t.Context()))
	if res := proctest.Wait(t, p, process.Until{}); res.Exit == nil {
		t.Error("a process outlives the stop")
	}
	proctest.Must(t, s.Start(t.Context()))
	if out, _ := sh(t, s, "cat /tmp/meanwhile"); out != "x" {
		t.Errorf("its /tmp holds %q after a stop", out)
	}
	if got := boot(t, s); got == first {
		t.Errorf("after a stop and a start its boot is still %q", got)
	}
	proctest.Must(t, pauser.Pause(t.Context(), info.ID, driver.PauseSpec{Memory: true}))
	proctest.Must(t, s.Destroy(t.Context()))
}

func pausedWithout(t *testing.T, d driver.Driver) {
	pauser, ok := d.(driver.Pauser)
	if !ok {
		return
	}
	s, info := create(t, d, driver.Spec{})
	if _, status := sh(t, s, "echo kept > file; echo kept > /tmp/file"); status != 0 {
		t.Fatal("status", status)
	}
	first := boot(t, s)
	p := proctest.Start(t, s.Processes(), process.Spec{Shell: "sleep 600"})
	proctest.Must(t, pauser.Pause(t.Context(), info.ID, driver.PauseSpec{}))
	if res := proctest.Wait(t, p, process.Until{}); res.Exit == nil {
		t.Error("a process goes on")
	}
	if got := state(t, s); got != driver.Paused {
		t.Errorf("it is %v", got)
	}
	if _, err := s.Processes().Start(t.Context(), process.Spec{Shell: "true"}); !errors.Is(err, driver.ErrPaused) {
		t.Errorf("a start in it: %v", err)
	}
	proctest.Must(t, pauser.Resume(t.Context(), info.ID))
	if out, _ := sh(t, s, "cat file /tmp/file"); out != "kept\nkept\n" || state(t, s) != driver.Ready {
		t.Errorf("resumed, it holds %q", out)
	}
	if got := boot(t, s); got == first && !Lacks(t, d, "mount") {
		t.Errorf("resumed without its memory, its boot is still %q", got)
	}
	proctest.Must(t, s.Stop(t.Context()))
	if err := pauser.Resume(t.Context(), info.ID); !errors.Is(err, driver.ErrStopped) {
		t.Errorf("a resume of what was stopped: %v", err)
	}
}

func measured(t *testing.T, d driver.Driver) {
	m, ok := d.(driver.Meter)
	if !ok {
		return
	}
	s, info := create(t, d, driver.Spec{})
	proctest.Start(t, s.Processes(), process.Spec{Shell: "while :; do :; done"})
	samples, err := m.Metrics(t.Context(), info.ID, time.Time{}, time.Time{})
	if err != nil || len(samples) == 0 {
		t.Fatalf("%+v, %v", samples, err)
	}
	last := samples[len(samples)-1]
	if last.Time.IsZero() || last.CPUs <= 0 || last.MemTotal <= 0 || last.CPUPercent < 0 || last.MemUsed < 0 || last.DiskTotal <= 0 {
		t.Errorf("it is %+v", last)
	}
	if none, err := m.Metrics(t.Context(), info.ID, time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)); err != nil || len(none) != 0 {
		t.Errorf("of a time before it was made: %+v, %v", none, err)
	}
	if _, err := m.Metrics(t.Context(), driver.NewID(), time.Time{}, time.Time{}); !errors.Is(err, driver.ErrNotFound) {
		t.Errorf("of none: %v", err)
	}
}
