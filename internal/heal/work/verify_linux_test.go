package work

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testbin"
	"github.com/tend-run/tend/internal/support/testdaemon"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// TestItMustHoldLongerThanItEverLived: also if it did so in an attempt that did not help, and
// nothing is kept of that run any more.
func TestItMustHoldLongerThanItEverLived(t *testing.T) {
	g := newGround(t, 0)
	w := g.w
	w.order.Service, w.order.At = "web", time.Now().Add(-time.Hour)
	w.order.Healer.Hold = config.Duration(100 * time.Millisecond)
	run := func(line string) process.Process {
		return proctest.Value(w.client.Start(t.Context(), process.Spec{Argv: []string{"sh", "-c", line}, Labels: map[string]string{process.LabelService: "web"}}))(t)
	}
	hold := func() time.Duration { return proctest.Value(w.hold(t.Context()))(t) }
	if got := hold(); got != 100*time.Millisecond {
		t.Errorf("at first it is %v", got)
	}
	p := run("exec sleep 1000")
	time.Sleep(time.Second)
	proctest.Value(p.Kill(t.Context()))(t)
	if got := hold(); got != 100*time.Millisecond {
		t.Errorf("after a restart of ours it is %v", got)
	}
	p = run("sleep 1; exit 1")
	proctest.Value(p.Wait(t.Context(), process.Until{}))(t)
	if got := hold(); got < 2250*time.Millisecond || got > longHold {
		t.Errorf("after a second it is %v", got)
	}
	before := hold()
	proctest.Must(t, p.Remove(t.Context()))
	if got := hold(); got != before {
		t.Errorf("it was %v, and is %v once the run is forgotten", before, got)
	}
}

// A service that does not stay up is said to with what ended it, also while the next run
// goes on, of which the supervisor says nothing.
func TestAServiceThatDoesNotStayUpIsToldOfWithItsEnd(t *testing.T) {
	d := testdaemon.Serve(t, testdaemon.Config{Command: []string{testbin.Released.Tend(bin)}, Dir: t.TempDir()})
	c := d.Connect(t)
	text := "services:\n  web: {command: [sh, -c, 'sleep 1; exit 7'], readiness: {exec: [\"false\"], start: 1m}, restart: {delay: 10ms, max_delay: 10ms, max: 100}}\n"
	proctest.Must(t, c.ApplyServices(t.Context(), tend.ServiceFile{Dir: t.TempDir(), Text: []byte(text)}))
	proctest.Must(t, c.StartServices(t.Context()))
	w := &worker{client: c, there: c, order: &healer.Order{Service: "web"}}
	_, err := w.awaitReady(t.Context(), time.Minute)
	if _, ok := errors.AsType[*unwell](err); !ok || !strings.HasPrefix(err.Error(), "it does not stay up: ") || !strings.Contains(err.Error(), "7") {
		t.Errorf("it says %v", err)
	}
}

// A repair changes files that are watched, and so the service is restarted once more while it is
// looked at. That is not its fault; what it does by itself is.
func TestARestartThatWasAskedForIsNoFault(t *testing.T) {
	d := testdaemon.Serve(t, testdaemon.Config{Command: []string{testbin.Released.Tend(bin)}, Dir: t.TempDir()})
	c, dir := d.Connect(t), t.TempDir()
	text := "services:\n  web: {command: exec sleep 1000, watch: {paths: ['*.txt'], delay: 10ms}}\n"
	proctest.Must(t, c.ApplyServices(t.Context(), tend.ServiceFile{Dir: dir, Text: []byte(text)}))
	proctest.Must(t, c.StartServices(t.Context()))
	w := &worker{client: c, there: c, order: &healer.Order{Service: "web", Rules: &config.Service{}}}
	ready := func() tend.Service { return proctest.Value(w.awaitReady(t.Context(), time.Minute))(t) }
	for what, disturb := range map[string]func(){
		"a watched file": func() {
			proctest.Must(t, os.WriteFile(filepath.Join(dir, "a.txt"), []byte(time.Now().String()), 0o600))
		},
		"somebody": func() { proctest.Must(t, c.RestartServices(t.Context(), "web")) },
	} {
		first := ready()
		disturb()
		proctest.Eventually(t, what+" has it restarted", func() bool { return proctest.Value(w.service(t.Context()))(t).Runs > first.Runs })
		ready()
		if said, err := w.holds(t.Context(), first, time.Minute); !errors.As(err, new(*aside)) {
			t.Errorf("%s: %q, %v", what, said, err)
		}
	}
	first := ready()
	proctest.Must(t, syscall.Kill(first.PID, syscall.SIGKILL))
	proctest.Eventually(t, "it starts anew by itself", func() bool { return proctest.Value(w.service(t.Context()))(t).Restarts > first.Restarts })
	if said, err := w.holds(t.Context(), first, time.Minute); !errors.As(err, new(*unwell)) {
		t.Errorf("killed: %q, %v", said, err)
	}
}

// It is restarted three times, for what it writes itself.
func TestVerifyGoesOnWithTheProcessThatFollows(t *testing.T) {
	g := newGround(t, 0)
	w := g.w
	w.order.Service, w.order.At, w.order.Rules = "web", time.Now(), &config.Service{}
	w.order.Healer.Hold = config.Duration(time.Second)
	dir := t.TempDir()
	proctest.Must(t, os.WriteFile(filepath.Join(dir, "a.txt"), nil, 0o600))
	text := "services:\n  web: {command: '[ $(wc -l <a.txt) -gt 2 ] || echo x >>a.txt; exec sleep 1000', watch: {paths: ['*.txt'], delay: 300ms}}\n"
	proctest.Must(t, w.client.ApplyServices(t.Context(), tend.ServiceFile{Dir: dir, Text: []byte(text)}))
	proctest.Must(t, w.client.StartServices(t.Context()))
	if said, err := w.verify(t.Context()); err != nil || !strings.HasPrefix(said, "well for ") {
		t.Errorf("%q, %v", said, err)
	}
}

// A process that was adopted is verified as any other: by the probes, and as one process.
func TestVerifyOfAnAdoptedProcess(t *testing.T) {
	g := newGround(t, 0)
	w := g.w
	w.order.Service, w.order.At, w.order.Healer.Hold = "web", time.Now(), config.Duration(500*time.Millisecond)
	dir := t.TempDir()
	proctest.Must(t, os.WriteFile(filepath.Join(dir, "well"), nil, 0o600))
	w.order.Rules = &config.Service{Cwd: dir, Env: map[string]string{"PATH": os.Getenv("PATH")}, Readiness: &config.Probe{Exec: config.Command{Argv: []string{"test", "-e", filepath.Join(dir, "well")}}, Timeout: config.Duration(time.Minute)}}
	text := "services:\n  web: {command: exec sleep 1000, readiness: {exec: [test, -e, well], interval: 100ms, timeout: 1m}, restart: never}\n"
	proctest.Must(t, w.client.ApplyServices(t.Context(), tend.ServiceFile{Dir: dir, Text: []byte(text), Env: map[string]string{"PATH": os.Getenv("PATH")}}))
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	proctest.Must(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	proctest.Must(t, w.client.AdoptService(t.Context(), "web", cmd.Process.Pid))
	said, err := w.verify(t.Context())
	if err != nil || !strings.HasPrefix(said, "well for ") || !strings.Contains(said, fmt.Sprintf("as pid %d,", cmd.Process.Pid)) {
		t.Fatalf("%q, %v", said, err)
	}
	first := proctest.Value(w.service(t.Context()))(t)
	if !first.Adopted || first.Process != "" {
		t.Errorf("it is %+v", first)
	}
	proctest.Must(t, os.Remove(filepath.Join(dir, "well")))
	if said, err := w.holds(t.Context(), first, time.Minute); !errors.As(err, new(*unwell)) || !strings.Contains(err.Error(), "it did not hold") {
		t.Errorf("not ready: %q, %v", said, err)
	}
	proctest.Must(t, os.WriteFile(filepath.Join(dir, "well"), nil, 0o600))
	first = proctest.Value(w.awaitReady(t.Context(), time.Minute))(t)
	proctest.Must(t, cmd.Process.Kill())
	<-ended
	if said, err := w.holds(t.Context(), first, time.Minute); !errors.As(err, new(*unwell)) {
		t.Errorf("killed: %q, %v", said, err)
	}
}
