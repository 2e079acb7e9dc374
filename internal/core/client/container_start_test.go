//go:build linux

package client_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/client"
	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/core/failpoint"
	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testbin"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// boxRoot is the root of a container, as its own processes see it. Package internal/sandbox/local has
// the one for use: this one follows symbolic links out of the container.
type containerRoot struct{ container.Info }

func (r containerRoot) Container() container.ID { return r.ID }

func (r containerRoot) User(name string) (files.User, error) {
	switch name {
	case "", "root":
		return files.User{Name: "root", Home: "/root"}, nil
	case "nobody":
		return files.User{Name: "nobody", UID: 65534, GID: 65534, Home: "/"}, nil
	case "far":
		return files.User{Name: "far", UID: 70000, GID: 70000, Home: "/"}, nil
	}
	return files.User{}, files.ErrUnknownUser
}

func (r containerRoot) Look(_ context.Context, _ files.User, look func(stat func(string) (fs.FileInfo, error))) error {
	look(func(path string) (fs.FileInfo, error) { return os.Stat(fmt.Sprintf("/proc/%d/root%s", r.PID, path)) })
	return nil
}

var hardened = container.Harden{Caps: 0x800405fb, Seccomp: true}

// inBox is a manager of processes in a container of the test's own.
func inContainer(t testing.TB, m *client.Manager, s container.Spec) (process.Manager, container.Info) {
	t.Helper()
	info := makeContainer(t, m.Containers(), s)
	return m.In(containerRoot{info}), info
}

func labelled(id container.ID, spec process.Spec) process.Spec {
	spec.Labels = map[string]string{"tend.sandbox": string(id)}
	return spec
}

// said runs a shell line in a container and returns its output and exit.
func said(t testing.TB, in process.Manager, id container.ID, spec process.Spec) (string, *process.Exit) {
	t.Helper()
	p, err := in.Start(t.Context(), labelled(id, spec))
	if err != nil {
		t.Fatalf("%s: %v", spec.Command(), err)
	}
	stream := process.Stdout
	if spec.PTY != nil {
		stream = process.PTY
	}
	out := proctest.Output(t, p, stream)
	return strings.TrimSpace(out), proctest.Wait(t, p, process.Until{}).Exit
}

func TestAProgramRunsInItsContainer(t *testing.T) {
	m, _ := containerManager(t)
	s := newContainerDirs(t).spec(t)
	s.Net, s.Hostname, s.Harden = container.NetOwn, "within", hardened
	in, info := inContainer(t, m, s)
	for _, c := range []struct {
		spec process.Spec
		want string
	}{
		{process.Spec{Shell: "hostname; id -u; pwd"}, "within\n0\n/root"},
		{process.Spec{Shell: "id -u; id -g", User: "nobody"}, "65534\n65534"},
		{process.Spec{Shell: "readlink /proc/self/root; ls /proc/self/fd | wc -l"}, "/\n4"},
		{process.Spec{Shell: "grep -E 'NoNewPrivs|^Seccomp:' /proc/self/status | tr '\\t\\n' '  '"}, "NoNewPrivs: 1 Seccomp: 2"},
		{process.Spec{Shell: "unshare -Ur true || mount -t tmpfs x /mnt || nsenter -t 1 -m true || echo refused"}, "refused"},
		{process.Spec{Shell: "kill -9 -1; ls -l /proc/1/exe || cat /proc/1/environ || echo x > /proc/1/mem || echo refused"}, "refused"},
		// What is not below the group where its namespace begins has "/.." in its name.
		{process.Spec{Shell: "! grep '^0::/[.][.]' /proc/self/cgroup /proc/1/cgroup && echo below"}, "below"},
		{process.Spec{Shell: "tty | cut -c1-9; ls -l $(tty) | cut -d' ' -f1,3", PTY: &process.Size{Cols: 80, Rows: 24}}, "/dev/pts/\r\ncrw--w---- root"},
		{process.Spec{Shell: "test -w $(tty) && echo mine", User: "nobody", PTY: &process.Size{Cols: 80, Rows: 24}}, "mine"},
		{process.Spec{Shell: "echo in > /dev/stdout; echo $$", User: "nobody"}, "in\n"},
	} {
		out, exit := said(t, in, s.ID, c.spec)
		if lines := strings.Split(out, "\n"); c.want == "refused" {
			out = lines[len(lines)-1]
		}
		if out != c.want && !(strings.HasSuffix(c.want, "\n") && strings.HasPrefix(out, c.want)) || exit == nil || exit.Code != 0 {
			t.Errorf("%s: %q, %+v; want %q", c.spec.Command(), out, exit, c.want)
		}
	}
	p, err := in.Start(t.Context(), labelled(s.ID, process.Spec{Shell: "echo $$; exec sleep 600"}))
	proctest.Must(t, err)
	i, err := p.Info(t.Context())
	if err != nil || i.PID <= 1 || i.PID > 1000 {
		t.Errorf("it has the pid %d inside, %v", i.PID, err)
	}
	outside, err := m.Get(t.Context(), process.Selector{ID: p.ID()})
	proctest.Must(t, err)
	if o, err := outside.Info(t.Context()); err != nil || o.PID == i.PID || !livesOn(o.PID) {
		t.Errorf("it has the pid %d outside, %v", o.PID, err)
	}
	for name, c := range map[string]struct {
		spec process.Spec
		want process.StartReason
	}{
		"an id of nobody":        {process.Spec{Shell: "true", User: "far"}, process.StartBadUser},
		"a program not there":    {process.Spec{Argv: []string{"/none"}}, process.StartNotFound},
		"a directory not there":  {process.Spec{Argv: []string{"/bin/true"}, Dir: "/none"}, process.StartBadDir},
		"a file that is no such": {process.Spec{Argv: []string{"/etc/passwd"}}, process.StartPermission},
	} {
		_, err := in.Start(t.Context(), labelled(s.ID, c.spec))
		if failed, ok := errors.AsType[*process.StartError](err); !ok || failed.Reason != c.want {
			t.Errorf("%s: %v; want the reason %v", name, err, c.want)
		}
	}
	if _, err := m.Start(t.Context(), labelled(s.ID, process.Spec{Shell: "true"})); err == nil {
		t.Error("what has the label of the container started outside")
	}
	e := m.Containers()
	proctest.Must(t, e.Freeze(t.Context(), s.ID, true))
	if _, err := in.Start(t.Context(), labelled(s.ID, process.Spec{Shell: "true"})); !errors.Is(err, container.ErrFrozen) {
		t.Errorf("a start in a container that stands still: %v", err)
	}
	proctest.Must(t, e.End(t.Context(), s.ID))
	exit := proctest.Wait(t, p, process.Until{}).Exit
	if exit.Cause != process.CauseKilled || exit.Signal != int(unix.SIGKILL) {
		t.Errorf("the end of the container was %+v for its program", exit)
	}
	if _, err := in.Start(t.Context(), labelled(s.ID, process.Spec{Shell: "true"})); !errors.Is(err, container.ErrNotFound) {
		t.Errorf("a start in a container that has ended: %v", err)
	}
	_ = info
}

// No program in a container makes a core file, whatever limit it was to have.
func TestALimitOfCoresInAContainer(t *testing.T) {
	m, _ := containerManager(t)
	s := newContainerDirs(t).spec(t)
	in, _ := inContainer(t, m, s)
	cores := func(hard uint64) process.Spec {
		return process.Spec{Shell: "grep 'core file' /proc/self/limits | tr -s ' '", Limits: process.Limits{Rlimits: []process.Rlimit{
			{Resource: unix.RLIMIT_NOFILE, Soft: 100, Hard: 100}, {Resource: unix.RLIMIT_CORE, Hard: hard}}}}
	}
	for range 3 { // by a zygote, too
		if out, exit := said(t, in, s.ID, cores(0)); exit == nil || exit.Code != 0 || !strings.HasPrefix(out, "Max core file size 1 1 ") {
			t.Errorf("none are wanted: %q, %+v", out, exit)
		}
		p, err := in.Start(t.Context(), labelled(s.ID, cores(1<<20)))
		var failed *process.StartError
		if !errors.As(err, &failed) || failed.Reason != process.StartLimits || !strings.Contains(err.Error(), "limits.rlimits[1]") {
			t.Errorf("some are wanted: %v, %v", p, err)
		}
	}
}

// A program outgrows each limit of its container, and nobody outside is concerned.
func TestLimitsOfAContainerHold(t *testing.T) {
	m, _ := containerManager(t)
	s := newContainerDirs(t).spec(t)
	s.Limits, s.Harden = container.Limits{Memory: 48 << 20, Tasks: 30, CPUs: 1}, hardened
	in, _ := inContainer(t, m, s)
	if _, exit := said(t, in, s.ID, process.Spec{Shell: "exec head -c 200m /dev/zero | tail"}); exit == nil || exit.Code == 0 && exit.Signal == 0 { // the shell may be what the kernel kills
		t.Errorf("a bomb of memory: %+v", exit)
	}
	if _, exit := said(t, in, s.ID, process.Spec{Argv: []string{"tail", "/dev/zero"}}); exit == nil || exit.Cause != process.CauseOOM {
		t.Errorf("memory: %+v", exit)
	}
	if u, err := m.Containers().Usage(t.Context(), s.ID); err != nil || u.OOMKills < 1 || u.MemoryPeak < 40<<20 {
		t.Errorf("usage: %+v, %v", u, err)
	}
	out, _ := said(t, in, s.ID, process.Spec{Shell: "exec 2>&1; i=0; while [ $i -lt 60 ]; do sleep 600 >/dev/null 2>&1 & i=$((i+1)); done"})
	if !strings.Contains(out, "fork") {
		t.Errorf("a bomb of processes: %q", out)
	}
	proctest.Must(t, m.Containers().End(t.Context(), s.ID))
}

// pointsManager is a manager over roles that die at named points.
func pointsManager(t *testing.T) (m *client.Manager, table *failpoint.Table, state string) {
	dir := t.TempDir()
	proctest.Must(t, testbin.Make(dir, testbin.Points))
	state, err := os.MkdirTemp("", "tend-")
	proctest.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(state) })
	table = proctest.Value(failpoint.Create(state))(t)
	cmd := exec.Command(testbin.Points.Keeper(dir), "launcher", "--state-dir", state)
	testkeeper.Run(t, state, cmd, cmd.Start)
	return testkeeper.Open(t, state), table, state
}

// The pid inside is what a client knows a program by: it stays the same though the keeper
// dies in the middle of its start, it ends at once, and another server reads of it.
func TestThePIDInsideOutlivesEverybody(t *testing.T) {
	m, table, state := pointsManager(t)
	s := newContainerDirs(t).spec(t)
	in, info := inContainer(t, m, s)
	want := map[process.ID]int{}
	run := func() {
		p := proctest.Start(t, in, labelled(s.ID, process.Spec{Shell: "echo $$"}))
		want[p.ID()] = proctest.Value(strconv.Atoi(strings.TrimSpace(proctest.Output(t, p, process.Stdout))))(t)
		proctest.Wait(t, p, process.Until{})
	}
	run()
	for p := failpoint.SpawnForked; p <= failpoint.SpawnUnanswered; p++ {
		table.Arm(p, 1, false)
		run()
		if times, _ := table.Struck(p); times != 1 {
			t.Errorf("the keeper died %d times at %s", times, p)
		}
	}
	for _, who := range []process.Manager{in, testkeeper.Open(t, state).In(containerRoot{info})} {
		infos := proctest.Value(who.List(t.Context(), process.Filter{}))(t)
		seen := 0
		for _, i := range infos {
			if pid, ok := want[i.ID]; ok {
				seen++
				if i.PID != pid {
					t.Errorf("process %s has the pid %d; it said %d", i.ID, i.PID, pid)
				}
			}
		}
		if seen != len(want) {
			t.Errorf("%d processes are listed, of %d", seen, len(want))
		}
	}
	proctest.Must(t, m.Containers().End(t.Context(), s.ID))
	nothingLeft(t, m.Containers(), state)
}

// At each point of a start in a container the keeper dies: the program runs once, and its
// status is known.
func TestAStartInAContainerOutlivesTheKeeper(t *testing.T) {
	m, table, state := pointsManager(t)
	s := newContainerDirs(t).spec(t)
	s.Net, s.Harden, s.Limits = container.NetOwn, hardened, container.Limits{Tasks: 100}
	in, info := inContainer(t, m, s)
	said(t, in, s.ID, process.Spec{Shell: "true"}) // the network is there
	for p := failpoint.SpawnReserved; p <= failpoint.SpawnUnanswered; p++ {
		t.Run(p.String(), func(t *testing.T) {
			warm(t, in, info)
			table.Arm(p, 1, false)
			out, exit := said(t, in, s.ID, process.Spec{Shell: "echo x >> /tmp/" + p.String() + "; hostname; exit 7"})
			if exit == nil || exit.Code != 7 || out != "sandbox" {
				t.Errorf("%q, %+v", out, exit)
			}
			if times, _ := table.Struck(p); times != 1 {
				t.Errorf("the keeper died %d times there", times)
			}
			if b, err := os.ReadFile(filepath.Join(s.Dir, "up/tmp", p.String())); err != nil || string(b) != "x\n" {
				t.Errorf("it ran as often as %q says, %v", b, err)
			}
		})
	}
	for _, p := range []failpoint.Point{failpoint.ExitSeen, failpoint.ExitRecorded, failpoint.ExitAnnounced, failpoint.KillSent} {
		t.Run(p.String(), func(t *testing.T) {
			long, err := in.Start(t.Context(), labelled(s.ID, process.Spec{Shell: "setsid sleep 600 & exec sleep 600"}))
			proctest.Must(t, err)
			table.Arm(p, 1, false)
			if _, err := long.Kill(t.Context()); err != nil {
				t.Error(err)
			}
			if exit := proctest.Wait(t, long, process.Until{}).Exit; exit.Signal != int(unix.SIGKILL) {
				t.Errorf("%+v", exit)
			}
		})
	}
	proctest.Must(t, m.Containers().End(t.Context(), s.ID))
	nothingLeft(t, m.Containers(), state)
	_ = info
}

// Programs in fifty containers, while keepers die and are upgraded: each runs once, with
// its own status.
func TestProgramsInManyContainersOverManyKeepers(t *testing.T) {
	m, state := containerManager(t)
	dirs := newContainerDirs(t)
	program, err := os.MkdirTemp("", "tend-bin-")
	proctest.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(program) })
	proctest.Must(t, testbin.Make(program, testbin.Roles))
	type insider struct {
		in process.Manager
		id container.ID
		up string
	}
	var all []insider
	for i := range 50 {
		s := dirs.spec(t)
		s.Harden = hardened
		if i%2 == 0 {
			s.Net = container.NetOwn
		}
		in, info := inContainer(t, m, s)
		all = append(all, insider{in, info.ID, s.Dir + "/up"})
	}
	done := make(chan struct{})
	runs := make([]int, len(all))
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := w; ; i = (i + 4) % len(all) {
				select {
				case <-done:
					return
				default:
				}
				b := all[i]
				p, err := b.in.Start(t.Context(), labelled(b.id, process.Spec{Shell: fmt.Sprintf("echo x >> /tmp/runs; setsid sleep 600 >/dev/null 2>&1 & exit %d", i)}))
				if err != nil {
					t.Errorf("start in %s: %v", b.id, err)
					return
				}
				runs[i]++
				res, err := p.Wait(t.Context(), process.Until{})
				if err != nil || res.Exit == nil || res.Exit.Code != i {
					t.Errorf("in %s: %+v, %v; want the code %d", b.id, res.Exit, err, i)
				}
				if i%3 == 0 {
					if _, err := p.Kill(t.Context()); err != nil && !errors.Is(err, process.ErrExited) {
						t.Errorf("kill in %s: %v", b.id, err)
					}
				}
			}
		})
	}
	for i := range 15 {
		if i%3 == 2 {
			if err := m.UpgradeKeeper(t.Context(), testbin.Roles.Keeper(program)); err != nil {
				t.Logf("upgrade: %v", err)
			}
			continue
		}
		killKeeper(t, state)
	}
	close(done)
	wg.Wait()
	for i, b := range all {
		if text, _ := os.ReadFile(b.up + "/tmp/runs"); strings.Count(string(text), "x") != runs[i] {
			t.Errorf("in %s %d programs ran; %d were started", b.id, strings.Count(string(text), "x"), runs[i])
		}
		proctest.Must(t, m.Containers().End(t.Context(), b.id))
	}
	nothingLeft(t, m.Containers(), state)
}

// TestAContainerKillsWhatEntersIt: a program inside kills each other one, those on their way to
// their exec, too. Each start comes to its end, and so does the container.
// A program inside stops each child on its way to a program. Such a child shares the
// keeper's descriptors, its lock too: neither the start nor the next keeper may hang.
func TestAContainerStopsWhatEntersIt(t *testing.T) {
	m, state := containerManager(t)
	s := newContainerDirs(t).spec(t)
	s.Net, s.Harden = container.NetOwn, hardened
	in, _ := inContainer(t, m, s)
	// It looks often enough to meet children on their way, and does not take a core for as long as one is waited for.
	stopper, err := in.Start(t.Context(), labelled(s.ID, process.Spec{Argv: []string{"/usr/bin/perl", "-e", `$| = 1; print "on"; while (1) { kill 19, -1; select undef, undef, undef, 0.0002 }`}}))
	proctest.Must(t, err)
	proctest.Eventually(t, "it stops", func() bool {
		i, err := stopper.Info(t.Context())
		return err == nil && len(i.Streams) > 0 && i.Streams[0].End == 2
	})
	hung := func() (n int) {
		all, _ := procfs.PIDs()
		for _, pid := range all {
			if stat, ok := procfs.ReadStat(pid); ok && stat.NoExec && stat.Stopped() {
				n++
			}
		}
		return n
	}
	start := func(into chan<- error) {
		for t.Context().Err() == nil { // a child may come to its program before it is stopped
			_, err := in.Start(t.Context(), labelled(s.ID, process.Spec{Argv: []string{"/bin/true"}}))
			if err != nil && !errors.Is(err, process.ErrUnavailable) { // the next keeper may take long to come
				into <- err
				return
			}
		}
	}
	first := make(chan error, 1)
	go start(first)
	proctest.Eventually(t, "a start that hangs", func() bool { return hung() > 0 })
	unix.Kill(pids(t, state).Keeper, unix.SIGKILL)
	p, err := m.Start(t.Context(), process.Spec{Argv: []string{"/bin/true"}})
	proctest.Must(t, err)
	if exit := proctest.Wait(t, p, process.Until{}).Exit; exit.Code != 0 || exit.Signal != 0 {
		t.Errorf("on the machine: %+v", exit)
	}
	// It is repeated, or another one follows, until one hangs again and is given up.
	if err := <-first; !strings.Contains(err.Error(), "took longer than") {
		t.Error(err)
	}
	proctest.Must(t, m.Containers().End(t.Context(), s.ID))
}

func TestAContainerKillsWhatEntersIt(t *testing.T) {
	m, _ := containerManager(t)
	s := newContainerDirs(t).spec(t)
	s.Net, s.Harden = container.NetOwn, hardened
	in, _ := inContainer(t, m, s)
	killer, err := in.Start(t.Context(), labelled(s.ID, process.Spec{Argv: []string{"/usr/bin/perl", "-e", `$| = 1; print "on"; kill 9, -1 while 1`}}))
	proctest.Must(t, err)
	proctest.Eventually(t, "it kills", func() bool {
		i, err := killer.Info(t.Context())
		return err == nil && len(i.Streams) > 0 && i.Streams[0].End == 2
	})
	for n := 0; n < 20; {
		p, err := in.Start(t.Context(), labelled(s.ID, process.Spec{Argv: []string{"/bin/true"}}))
		proctest.Must(t, err)
		exit := proctest.Wait(t, p, process.Until{}).Exit
		if exit.Signal == int(unix.SIGKILL) && exit.Cause == process.CauseSignalled {
			n++
		} else if exit.Signal != 0 || exit.Code != 0 {
			t.Errorf("its exit is %+v", exit)
		}
	}
	proctest.Must(t, m.Containers().End(t.Context(), s.ID))
}
