//go:build linux

package client_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/client"
	"github.com/tend-run/tend/internal/lib/kernelfault"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

const cgroups = "/sys/fs/cgroup"

// A machine without a usable cgroup tree does all but find descendants that hide.
func TestAProcessLivesAndIsKilledWhateverTheCgroupTreeIs(t *testing.T) {
	proctest.Root(t)
	gone := kernelfault.Mount{Kind: kernelfault.Gone, Path: cgroups}
	type machine struct {
		name  string
		world kernelfault.World
		says  string // of the promise that is not kept; "": it is kept
		limit bool   // a limit can be set on a machine with controllers of v1
	}
	machines := []machine{
		{"no cgroup filesystem at all", kernelfault.World{Mounts: []kernelfault.Mount{gone}}, "no cgroup2 filesystem is mounted", false},
		{"a cgroup2 tree alone", kernelfault.World{Mounts: []kernelfault.Mount{gone, {Kind: kernelfault.Cgroup2, Path: cgroups}}}, "", false},
		{"a cgroup2 tree that is read-only", kernelfault.World{Mounts: []kernelfault.Mount{gone, {Kind: kernelfault.Cgroup2, Path: cgroups}, {Kind: kernelfault.ReadOnly, Path: cgroups}}}, "cannot be written", false},
		{"clone3 refused by a sandbox", kernelfault.World{Rules: []kernelfault.Rule{{Call: unix.SYS_CLONE3, Arg: -1, Errno: unix.ENOSYS}}}, "clone3 is refused", true},
	}
	var st unix.Statfs_t
	if unified := cgroups + "/unified"; unix.Statfs(unified, &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC {
		machines = append(machines, machine{"v1 controllers alone", kernelfault.World{Mounts: []kernelfault.Mount{{Kind: kernelfault.Gone, Path: unified}}}, "no cgroup2 filesystem is mounted", true})
	}
	for _, c := range machines {
		t.Run(c.name, func(t *testing.T) {
			m, stateDir := poor(t, c.world)
			if c.says == "" {
				fact(t, m.Facts(), "kill_reaches_tree")
			} else if got := broken(t, m.Facts(), "kill_reaches_tree"); !strings.Contains(got, c.says) {
				t.Errorf("the keeper says %q; want %q", got, c.says)
			}
			livesAndDies(t, m, stateDir)
			p, err := m.Start(t.Context(), process.Spec{Argv: []string{"true"}, Limits: process.Limits{PidsMax: 10}})
			switch {
			case c.limit && hasV1():
				if err != nil {
					t.Fatalf("a limit that v1 has says %v", err)
				}
				proctest.WantExit(t, p, 0)
			case c.says != "" && (!errors.Is(err, process.ErrUnsupported) || !strings.Contains(err.Error(), "limits.pids_max needs the cgroup controller")):
				t.Errorf("a limit that cannot be set says %v", err)
			}
		})
	}
}

// A tree in which no group can be made any more: what starts from then on goes
// without one, and that is told while it runs.
func TestAProcessThatGetsNoCgroupLivesAndIsKilled(t *testing.T) {
	proctest.Root(t)
	var tree string
	t.Cleanup(func() { // the last keeper takes the tree for unusable, and leaves it
		groups, _ := filepath.Glob(filepath.Join(tree, "*"))
		for _, g := range groups {
			unix.Rmdir(g)
		}
		unix.Rmdir(tree)
	})
	stateDir := testkeeper.Start(t)
	m := testkeeper.Open(t, stateDir)
	_, root, ok := strings.Cut(fact(t, m.Facts(), "kill_reaches_tree"), "cgroup.kill in ")
	if !ok {
		t.Fatalf("the keeper says %q", m.Facts())
	}
	tree = root
	proctest.Must(t, os.WriteFile(filepath.Join(tree, "cgroup.max.descendants"), []byte("0"), 0o600))
	p := proctest.Start(t, m, process.Spec{Argv: []string{"sleep", "1000"}})
	if got := broken(t, m.Facts(), "kill_reaches_tree"); !strings.Contains(got, "1 of the running processes") || !strings.Contains(got, "temporarily unavailable") {
		t.Errorf("the keeper says %q", got)
	}
	if k, err := p.Kill(t.Context()); err != nil || k.Verified || len(k.Survivors) > 0 {
		t.Errorf("the kill says %+v, %v", k, err)
	}
	kept(t, m, "kill_reaches_tree")
	livesAndDies(t, m, stateDir)
}

// livesAndDies: input, output, a descendant, a kill of both, and a keeper that
// is killed in the middle.
func livesAndDies(t *testing.T, m *client.Manager, stateDir string) {
	t.Helper()
	p := proctest.Start(t, m, process.Spec{Shell: "sleep 1000 & echo $!; read x; echo got $x; wait", Stdin: process.StdinPipe})
	unix.Kill(pids(t, stateDir).Keeper, unix.SIGKILL)
	proctest.Write(t, p, "that\n")
	proctest.Wait(t, p, process.Until{Match: "got that"})
	proctest.Kill(t, p)
	r, err := p.Wait(t.Context(), process.Until{EOF: true})
	if err != nil || r.Exit == nil || r.Exit.Signal != int(unix.SIGKILL) || r.Exit.Cause != process.CauseKilled {
		t.Fatalf("killed, it ended with %+v, %v", r.Exit, err)
	}
	child, rest, _ := strings.Cut(proctest.Output(t, p, process.Stdout), "\n")
	if rest != "got that\n" {
		t.Errorf("after the first line stdout is %q", rest)
	}
	if b, err := os.ReadFile("/proc/" + child + "/stat"); err == nil && !strings.Contains(string(b), ") Z ") {
		t.Errorf("its descendant lives on: %s", b)
	}
	proctest.WantExit(t, proctest.Start(t, m, process.Spec{Shell: "exit 9"}), 9)
}

func TestExitStatusesSurviveTheKeeperWithoutPidfdInfo(t *testing.T) {
	for _, errno := range []unix.Errno{unix.ENOTTY, unix.EINVAL} {
		t.Run(errno.Error(), func(t *testing.T) {
			m, stateDir := poor(t, kernelfault.World{Rules: []kernelfault.Rule{{Call: unix.SYS_IOCTL, Arg: 1, Value: unix.PIDFD_GET_INFO, Errno: errno}}})
			if got := broken(t, m.Facts(), "exit_status_survives_two_roles"); !strings.Contains(got, "6.15") {
				t.Errorf("the keeper says %q", got)
			}
			p := proctest.Start(t, m, process.Spec{Shell: "read x; exit 6", Stdin: process.StdinPipe})
			unix.Kill(pids(t, stateDir).Keeper, unix.SIGKILL)
			proctest.Write(t, p, "\n")
			proctest.WantExit(t, p, 6)
		})
	}
}

func TestOutputThatCannotBePunchedIsDroppedAllTheSame(t *testing.T) {
	m, _ := poor(t, kernelfault.World{Rules: []kernelfault.Rule{{Call: unix.SYS_FALLOCATE, Arg: -1, Errno: unix.EOPNOTSUPP}}})
	if got := broken(t, m.Facts(), "retention_frees_space"); !strings.Contains(got, "keeps its space") {
		t.Errorf("the keeper says %q", got)
	}
	p := proctest.Start(t, m, process.Spec{Shell: "yes | head -c 1000000; echo; echo end", Retention: process.Retention{Limit: process.MinRetention}})
	proctest.Wait(t, p, process.Until{EOF: true})
	info := proctest.Info(t, p)
	for _, s := range info.Streams {
		if kept := s.End - s.Base; s.Stream == process.Stdout && (s.End != 1000005 || s.Base == 0 || kept > process.MinRetention) {
			t.Errorf("stdout has %d bytes, of which %d are kept", s.End, kept)
		}
	}
}

// A filesystem that cannot be spliced to: only calls that write to the spool
// are refused.
func TestOutputIsReadAndWrittenWhereItCannotBeSpliced(t *testing.T) {
	stateDir, l := watched(t, unix.SYS_SPLICE)
	go l.Each(func(call *kernelfault.Call) (held bool) {
		if held = strings.HasPrefix(call.File(2), stateDir); held {
			l.Fail(call, unix.EINVAL)
		}
		return held
	})
	m := testkeeper.Open(t, stateDir)
	if got := broken(t, m.Facts(), "output_survives_keeper"); !strings.Contains(got, "may lose") {
		t.Errorf("the keeper says %q", got)
	}
	for _, pty := range []*process.Size{nil, {Cols: 80, Rows: 24}} {
		p := proctest.Start(t, m, process.Spec{Shell: "seq 1 20000", PTY: pty})
		stream, newline := process.Stdout, "\n"
		if pty != nil {
			stream, newline = process.PTY, "\r\n"
		}
		got := strings.Split(proctest.Output(t, p, stream), newline)
		if len(got) != 20001 || got[0] != "1" || got[19999] != "20000" {
			t.Errorf("%s has %d lines; want 20001, the last one empty", stream, len(got))
		}
	}
	livesAndDies(t, m, stateDir)
}

// readOnly makes all that writes below a directory fail while it is switched on.
func readOnly(t *testing.T) (stateDir string, on *atomic.Bool) {
	t.Helper()
	stateDir, l := watched(t, unix.SYS_SPLICE, unix.SYS_PWRITE64, unix.SYS_WRITE, unix.SYS_OPENAT, unix.SYS_MKDIRAT, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_FTRUNCATE, unix.SYS_FALLOCATE)
	on = new(atomic.Bool)
	go l.Each(func(call *kernelfault.Call) (held bool) {
		var file string
		switch {
		case !on.Load():
		case call.Call == unix.SYS_SPLICE:
			file = call.File(2)
		case call.Call == unix.SYS_OPENAT:
			if call.Args[2]&(unix.O_WRONLY|unix.O_RDWR|unix.O_CREAT) != 0 {
				file = call.Path(1)
			}
		case call.Call == unix.SYS_MKDIRAT || call.Call == unix.SYS_RENAMEAT || call.Call == unix.SYS_RENAMEAT2:
			file = call.Path(1)
		default:
			file = call.File(0)
		}
		if held = strings.HasPrefix(file, stateDir); held {
			l.Fail(call, unix.EROFS)
		}
		return held
	})
	return stateDir, on
}

func TestAStateDirectoryThatBecomesReadOnlyHoldsOutputBackAndEndsNoRole(t *testing.T) {
	stateDir, on := readOnly(t)
	m := testkeeper.Open(t, stateDir)
	before := pids(t, stateDir)
	p := proctest.Start(t, m, process.Spec{Shell: "read x; seq 1 10000; exit 8", Stdin: process.StdinPipe})
	short := proctest.Start(t, m, process.Spec{Shell: "read x; exit 7", Stdin: process.StdinPipe})
	on.Store(true)
	for _, p := range []process.Process{p, short} {
		proctest.Write(t, p, "\n")
	}
	proctest.WantExit(t, short, 7)
	proctest.Eventually(t, "the keeper says that processes wait", func() bool {
		return slices.ContainsFunc(m.Facts(), func(f string) bool {
			return strings.HasPrefix(f, "spool_takes_output!") && strings.Contains(f, "read-only file system")
		})
	})
	_, err := m.Start(t.Context(), process.Spec{Argv: []string{"true"}})
	var failed *process.StartError
	if !errors.As(err, &failed) || failed.Reason != process.StartResources || !errors.Is(err, unix.EROFS) {
		t.Errorf("a start says %v", err)
	}
	on.Store(false)
	if got := proctest.Output(t, p, process.Stdout); strings.Count(got, "\n") != 10000 || !strings.HasSuffix(got, "\n10000\n") {
		t.Errorf("%d bytes of output after the directory became writable", len(got))
	}
	proctest.WantExit(t, p, 8)
	kept(t, m, "spool_takes_output")
	if after := pids(t, stateDir); after != before {
		t.Errorf("roles were %+v and are %+v", before, after)
	}
	if _, err := os.Stat(filepath.Join(stateDir, "spool", string(p.ID()), "journal")); err != nil {
		t.Error(err)
	}
}

func TestTheFileLimitIsToldAlsoWhenItIsReached(t *testing.T) {
	stateDir := shortDir(t)
	cmd := exec.Command("/bin/sh", "-c", `ulimit -n 120 && exec "$0" launcher --state-dir "$1"`, keeperBinary, stateDir)
	testkeeper.Run(t, stateDir, cmd, cmd.Start)
	m := testkeeper.Open(t, stateDir)
	if got := fact(t, m.Facts(), "process_limit"); !strings.Contains(got, "file limit of 120") {
		t.Errorf("the keeper says %q", got)
	}
	before := pids(t, stateDir)
	var err error
	var running []process.Process
	for err == nil && len(running) < 120 {
		var p process.Process
		if p, err = m.Start(t.Context(), process.Spec{Argv: []string{"cat"}, Stdin: process.StdinPipe}); err == nil {
			running = append(running, p)
		}
	}
	var failed *process.StartError
	if !errors.As(err, &failed) || failed.Reason != process.StartResources || !strings.Contains(err.Error(), "ulimit -n") {
		t.Fatalf("start %d says %v", len(running)+1, err)
	}
	fact(t, m.Facts(), "process_limit")
	for i, p := range running {
		text := strings.Repeat("x", i)
		if _, err := p.Write(t.Context(), process.Input{Data: []byte(text), EOF: true}); err != nil {
			t.Fatalf("process %d takes no input: %v", i, err)
		}
		proctest.WantOutput(t, p, process.Stdout, text)
	}
	proctest.Eventually(t, "a process starts when others have ended", func() bool {
		_, err = m.Start(t.Context(), process.Spec{Argv: []string{"true"}})
		return err == nil
	})
	if after := pids(t, stateDir); after != before {
		t.Errorf("roles were %+v and are %+v", before, after)
	}
}

// kept waits until the keeper says that it keeps a promise.
func kept(t *testing.T, m *client.Manager, name string) {
	t.Helper()
	proctest.Eventually(t, name+" is kept", func() bool {
		return slices.ContainsFunc(m.Facts(), func(f string) bool { return strings.HasPrefix(f, name+"=") })
	})
}
