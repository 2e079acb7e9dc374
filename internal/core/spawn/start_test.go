//go:build linux && (amd64 || arm64)

package spawn

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/support/proctest"
)

func newStarter(t *testing.T) (s *Starter, null int) {
	t.Helper()
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	s = proctest.Value(New(null))(t)
	t.Cleanup(func() {
		for range len(s.places.free) {
			for _, fd := range <-s.places.free {
				unix.Close(fd)
			}
		}
		unix.Close(null)
	})
	return s, null
}

func shell(text string) *Program {
	return &Program{Path: "/bin/sh", Argv: []string{"sh", "-c", text}, Env: []string{"PATH=" + os.Getenv("PATH"), "NAME=value"}, Group: -1}
}

// output starts a program with a pipe for stdout and stderr and returns what it says
// and how it ends.
func output(s *Starter, null int, p *Program) (string, unix.WaitStatus, error) {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return "", 0, err
	}
	out := os.NewFile(uintptr(pipe[0]), "output")
	defer out.Close()
	p.Files = []int{null, pipe[1], pipe[1]}
	pid, pidfd, err := s.Start(p)
	unix.Close(pipe[1])
	if err != nil {
		return "", 0, err
	}
	b, err := io.ReadAll(out)
	if err != nil {
		return "", 0, err
	}
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_PIDFD, pidfd, &info, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		return "", 0, fmt.Errorf("its pidfd: %w", err)
	}
	unix.Close(pidfd)
	status, err := collect(pid)
	return string(b), status, err
}

func says(t *testing.T, s *Starter, null int, p *Program, want string) {
	t.Helper()
	got, status, err := output(s, null, p)
	if err != nil || status.ExitStatus() != 0 || got != want {
		t.Errorf("it says %q, %#x, %v; want %q", got, int(status), err, want)
	}
}

func TestAProgramGetsWhatItIsGiven(t *testing.T) {
	s, null := newStarter(t)
	dir := t.TempDir()
	p := shell(`pwd; echo $NAME $0 "$@"; exit 7`)
	p.Dir, p.Argv = dir, append(p.Argv, "zero", "", "a b")
	got, status, err := output(s, null, p)
	if err != nil || status.ExitStatus() != 7 || got != dir+"\nvalue zero  a b\n" {
		t.Errorf("%q, %#x, %v", got, int(status), err)
	}
	p = shell(`echo ${#LARGE}`)
	p.Env = append(p.Env, "LARGE="+strings.Repeat("x", 100_000)) // more than the usual script
	says(t, s, null, p, "100000\n")
	p = shell("ulimit -Sc; ulimit -Hc")
	p.Limits = []Limit{{Resource: unix.RLIMIT_CORE, Soft: 512, Hard: 1024}}
	says(t, s, null, p, "1\n2\n")
}

// The program has its own descriptors and no other, whatever the parent has; and those
// of the parent stay what they are.
func TestDescriptors(t *testing.T) {
	for _, many := range []int{0, 5000} {
		t.Run(fmt.Sprint(many, " more in the parent"), func(t *testing.T) {
			s, null := newStarter(t)
			for range many {
				fd, err := unix.FcntlInt(uintptr(null), unix.F_DUPFD_CLOEXEC, 0)
				if err != nil {
					t.Fatal(err)
				}
				defer unix.Close(fd)
			}
			leaked, err := unix.Dup(null) // somebody forgot close-on-exec
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(leaked)
			table := func() (links []string) {
				entries, err := os.ReadDir("/proc/self/fd")
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range entries {
					link, _ := os.Readlink("/proc/self/fd/" + e.Name())
					links = append(links, e.Name()+" "+link)
				}
				return links
			}
			before := table()
			for range 3 {
				// A table that was copied whole has room for all of it still.
				p := shell("ls /proc/$$/fd; grep FDSize /proc/$$/status; :")
				says(t, s, null, p, "0\n1\n2\nFDSize:\t64\n")
				p.OOM, p.Limits = new(int), []Limit{{Resource: unix.RLIMIT_CORE}}
				says(t, s, null, p, "0\n1\n2\nFDSize:\t64\n")
			}
			if _, _, err := output(s, null, &Program{Path: "/no/such", Argv: []string{"x"}, Group: -1}); !errors.Is(err, unix.ENOENT) {
				t.Error(err)
			}
			if after := table(); !slices.Equal(before, after) {
				t.Errorf("the parent's descriptors were %q, and are %q", before, after)
			}
		})
	}
	t.Run("low ones in any order", func(t *testing.T) {
		s, null := newStarter(t)
		var pipe [2]int
		proctest.Must(t, unix.Pipe2(pipe[:], unix.O_CLOEXEC))
		defer unix.Close(pipe[0])
		for _, files := range [][]int{{pipe[1], 0, 2}, {2, pipe[1], 1}, {pipe[1], 1, 2, null, 0, 3}} {
			p := shell(fmt.Sprintf("for i in $(seq 0 %d); do [ -e /proc/$$/fd/$i ] || exit 1; done; echo said >&%d", len(files)-1, slices.Index(files, pipe[1])))
			p.Files = files
			pid, pidfd, err := s.Start(p)
			if err != nil {
				t.Fatal(err)
			}
			unix.Close(pidfd)
			if status, err := collect(pid); err != nil || status != 0 {
				t.Errorf("%v: %#x, %v", files, int(status), err)
			}
			b := make([]byte, 16)
			if n, err := unix.Read(pipe[0], b); err != nil || string(b[:n]) != "said\n" {
				t.Errorf("%v: %q, %v", files, b[:max(n, 0)], err)
			}
		}
		unix.Close(pipe[1])
	})
}

// A start waits for a place, not for ever.
func TestAStartWithoutAPlace(t *testing.T) {
	s, null := newStarter(t)
	var held []*place
	for len(s.places.free) > 0 {
		held = append(held, <-s.places.free)
	}
	says(t, s, null, shell("ls /proc/$$/fd; :"), "0\n1\n2\n")
	for _, pl := range held {
		s.places.free <- pl
	}
}

func TestNoSignalIsBlockedOrIgnoredMore(t *testing.T) {
	s, null := newStarter(t)
	c := make(chan os.Signal, 64)
	signal.Notify(c)
	defer signal.Stop(c)
	argv := []string{"grep", "-E", "^Sig(Blk|Ign|Pnd)|^ShdPnd", "/proc/self/status"}
	want, err := exec.Command(argv[0], argv[1:]...).Output()
	if err != nil || !strings.Contains(string(want), "SigBlk:\t0000000000000000\n") {
		t.Fatalf("a child of the test has %q, %v", want, err)
	}
	for range 20 {
		says(t, s, null, &Program{Path: "/bin/grep", Argv: argv, Group: -1}, string(want))
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var mask unix.Sigset_t
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, nil, &mask); err != nil || mask != (unix.Sigset_t{}) {
		t.Errorf("the parent's mask is %v, %v", mask, err)
	}
}

func TestUsers(t *testing.T) {
	proctest.Root(t)
	s, null := newStarter(t)
	ids := func(u *User) *Program {
		p := shell("grep -E '^(Uid|Gid|Groups)' /proc/$$/status | tr -d ' '")
		p.User = u
		return p
	}
	proctest.Must(t, syscall.Setgroups([]int{0, 4}))
	defer syscall.Setgroups(nil)
	proctest.Must(t, unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0))
	says(t, s, null, ids(&User{UID: 1234, GID: 2345}), "Uid:\t1234\t1234\t1234\t1234\nGid:\t2345\t2345\t2345\t2345\nGroups:\t\n")
	if sysctl, _ := os.ReadFile("/proc/sys/fs/suid_dumpable"); string(sysctl) != "1\n" {
		// The kernel has done so before the child was the other user.
		if d, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); err != nil || d == 1 {
			t.Errorf("the other user may look into the memory that the child shares: %d, %v", d, err)
		}
	}
	says(t, s, null, ids(&User{UID: 1234, GID: 2345, Groups: []uint32{7, 5}}), "Uid:\t1234\t1234\t1234\t1234\nGid:\t2345\t2345\t2345\t2345\nGroups:\t57\n")
	says(t, s, null, ids(nil), "Uid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nGroups:\t04\n")
	p := ids(&User{UID: 1234, GID: 2345})
	p.Dir = t.TempDir()
	proctest.Must(t, os.Chmod(p.Dir, 0o700))
	if _, _, err := output(s, null, p); !errors.Is(err, unix.EACCES) {
		t.Errorf("a directory that the user may not enter: %v", err)
	}
}

// Each failure has the errno that syscall.ForkExec gives, and leaves nothing behind.
func TestFailures(t *testing.T) {
	s, null := newStarter(t)
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		proctest.Must(t, os.WriteFile(path, []byte(text), mode))
		return path
	}
	plain, empty := write("plain", "echo", 0o644), write("empty", "\x00\x01", 0o755)
	loop := filepath.Join(dir, "loop")
	proctest.Must(t, os.Symlink(loop, loop))
	true_ := []string{"true"}
	for name, p := range map[string]Program{
		"no file":               {Path: "/no/such", Argv: true_},
		"no interpreter":        {Path: write("script", "#!/no/such\n", 0o755), Argv: true_},
		"not executable":        {Path: plain, Argv: true_},
		"a directory":           {Path: dir, Argv: true_},
		"no program":            {Path: empty, Argv: true_},
		"below a file":          {Path: plain + "/x", Argv: true_},
		"links in a circle":     {Path: loop, Argv: true_},
		"a long name":           {Path: "/" + strings.Repeat("x", 300), Argv: true_},
		"a long argument":       {Path: "/bin/true", Argv: []string{"true", strings.Repeat("x", 200<<10)}},
		"no directory":          {Path: "/bin/true", Argv: true_, Dir: "/no/such"},
		"a directory is a file": {Path: "/bin/true", Argv: true_, Dir: plain},
		"a null in the path":    {Path: "/bin/tr\x00ue", Argv: true_},
		"a null in an argument": {Path: "/bin/true", Argv: []string{"true", "\x00"}},
		"a null in a variable":  {Path: "/bin/true", Argv: true_, Env: []string{"A=\x00"}},
		"a null in a directory": {Path: "/bin/true", Argv: true_, Dir: "/\x00"},
		"no terminal":           {Path: "/bin/true", Argv: true_, Terminal: true},
		"no group":              {Path: "/bin/true", Argv: true_, Group: null},
	} {
		t.Run(name, func(t *testing.T) {
			if p.Group == 0 {
				p.Group = -1
			}
			attr := &syscall.ProcAttr{Dir: p.Dir, Env: p.Env, Files: []uintptr{uintptr(null), uintptr(null), uintptr(null)},
				Sys: &syscall.SysProcAttr{Setsid: true, Setctty: p.Terminal, UseCgroupFD: p.Group >= 0, CgroupFD: p.Group}}
			_, want := syscall.ForkExec(p.Path, p.Argv, attr)
			if want == nil {
				t.Fatal("syscall.ForkExec started it")
			}
			before := openFiles(t)
			p.Files = []int{null, null, null}
			pid, pidfd, err := s.Start(&p)
			if !errors.Is(err, want) {
				t.Errorf("%v; want %v", err, want)
			}
			if pid != 0 || pidfd != -1 {
				t.Errorf("pid %d, pidfd %d", pid, pidfd)
			}
			if after := openFiles(t); after != before {
				t.Errorf("%d descriptors were open, and are %d", before, after)
			}
			if _, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); err != unix.ECHILD {
				t.Errorf("a child is left: %v", err)
			}
		})
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// Many at once, while the parent opens, closes, collects garbage and is signalled.
func TestManyAtOnce(t *testing.T) {
	s, null := newStarter(t)
	stop := make(chan struct{})
	var noise, starts sync.WaitGroup
	noise.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			runtime.GC()
			unix.Kill(os.Getpid(), unix.SIGURG)
			if f, err := os.Open("/proc/self/status"); err == nil {
				io.ReadAll(f)
				f.Close()
			}
		}
	})
	var mu sync.Mutex
	var trouble error
	for i := range 24 {
		starts.Go(func() {
			for j := range 20 {
				want := fmt.Sprintf("%d %d\n0\n1\n2\n", i, j)
				got, status, err := output(s, null, shell(fmt.Sprintf("echo %d %d; ls /proc/$$/fd; :", i, j)))
				if err == nil && (got != want || status != 0) {
					err = fmt.Errorf("it says %q, %#x; want %q", got, int(status), want)
				}
				if _, _, no := output(s, null, &Program{Path: "/no/such", Argv: []string{"x"}, Group: -1}); !errors.Is(no, unix.ENOENT) {
					err = errors.Join(err, fmt.Errorf("no such program: %w", no))
				}
				mu.Lock()
				trouble = errors.Join(trouble, err)
				mu.Unlock()
			}
		})
	}
	starts.Wait()
	close(stop)
	noise.Wait()
	if trouble != nil {
		t.Error(trouble)
	}
}

// The OOM score of a program is set before it runs, and by others as soon as its start
// returns. The kernel gives it to all that share the memory, which a child does until
// its exec.
func TestAnOOMScoreIsTheProgramsAlone(t *testing.T) {
	s, null := newStarter(t)
	const path = "/proc/self/oom_score_adj"
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		p := shell("exec sleep 60")
		p.Files = []int{null, null, null}
		score := 100 + i
		p.OOM = &score
		pid, pidfd, err := s.Start(p)
		if err != nil {
			t.Fatal(err)
		}
		own := fmt.Sprintf("/proc/%d/oom_score_adj", pid)
		got, readErr := os.ReadFile(own)
		err = os.WriteFile(own, []byte("1000"), 0)
		unix.Kill(pid, unix.SIGKILL)
		unix.Close(pidfd)
		collect(pid)
		if err != nil || readErr != nil || string(got) != fmt.Sprintln(score) {
			t.Fatalf("it is %q, %v, %v; want %d", got, readErr, err, score)
		}
		if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
			t.Fatalf("the parent's is %q, %v; it was %q", after, err, before)
		}
	}
}

// All limits hold before the program runs, also those that the parent's rights are needed
// for, and one that is refused is named.
func TestLimits(t *testing.T) {
	proctest.Root(t)
	s, null := newStarter(t)
	p := shell("nice; ulimit -Sn; ulimit -Hn; ulimit -Sc; ulimit -Hc; id -u")
	var files unix.Rlimit
	proctest.Must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &files))
	was, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	proctest.Must(t, err)
	p.Nice = 20 - was + 3
	p.User = &User{UID: 1234, GID: 1234}
	p.Limits = []Limit{{Resource: unix.RLIMIT_NOFILE, Soft: 20, Hard: files.Max}, {Resource: unix.RLIMIT_CORE, Soft: 1024, Hard: 2048}, {Resource: 99, Try: true}}
	says(t, s, null, p, fmt.Sprintf("%d\n20\n%d\n2\n4\n1234\n", p.Nice, files.Max))

	// More than the parent has: its own rights count, not the user's.
	hdr, caps := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
	proctest.Must(t, unix.Capget(&hdr, &caps[0]))
	p = shell("ulimit -Hn")
	p.User = &User{UID: 1234, GID: 1234}
	p.Limits = []Limit{{Resource: unix.RLIMIT_NOFILE, Soft: 20, Hard: files.Max + 1}}
	if caps[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0 {
		says(t, s, null, p, fmt.Sprintln(files.Max+1))
	} else if _, _, err := output(s, null, p); !errors.Is(err, unix.EPERM) {
		t.Errorf("without CAP_SYS_RESOURCE: %v", err)
	}
	bad := -1001
	for want, change := range map[Failure]func(p *Program){
		{Step: StepLimit, Limit: 1, Errno: unix.EINVAL}: func(p *Program) { p.Limits = []Limit{{Resource: unix.RLIMIT_CORE}, {Resource: 99}} },
		{Step: StepLimit, Limit: 0, Errno: unix.EPERM}:  func(p *Program) { p.Limits = []Limit{{Resource: unix.RLIMIT_NOFILE, Soft: 1 << 40, Hard: 1 << 40}} },
		{Step: StepOOM, Errno: unix.EINVAL}:             func(p *Program) { p.OOM = &bad },
		{Step: StepTasks, Errno: unix.EBADF}:            func(p *Program) { p.Own = []int{1 << 20} },
		{Step: StepDir, Errno: unix.ENOENT}:             func(p *Program) { p.Dir = "/no/such" },
		{Step: StepTerminal, Errno: unix.ENOTTY}:        func(p *Program) { p.Terminal = true },
		{Step: StepExec, Errno: unix.ENOENT}:            func(p *Program) { p.Path = "/no/such" },
	} {
		t.Run(want.Error(), func(t *testing.T) {
			p := shell("exit 3")
			p.Files = []int{null, null, null}
			change(p)
			var pid, failed uint32
			p.PIDAt, p.FailedAt = &pid, &failed
			var got *Failure
			if _, _, err := s.Start(p); !errors.As(err, &got) || *got != want {
				t.Errorf("it says %v", err)
			}
			if pid == 0 || failed != 1 {
				t.Errorf("its pid was noted as %d, its failure as %d", pid, failed)
			}
		})
	}
}

// The pid is there before the child has done anything, and whoever shares the memory
// sees it.
func TestThePIDIsNotedBeforeTheChildRuns(t *testing.T) {
	s, null := newStarter(t)
	mem, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANON)
	proctest.Must(t, err)
	defer unix.Munmap(mem)
	noted, failed := (*uint32)(unsafe.Pointer(&mem[0])), (*uint32)(unsafe.Pointer(&mem[4]))
	var pipe [2]int
	proctest.Must(t, unix.Pipe2(pipe[:], unix.O_CLOEXEC))
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	sc, err := s.emptyScript(usual)
	proctest.Must(t, err)
	sc.page.clone.tell(noted)
	sc.note(&Program{FailedAt: failed})
	sc.call(unix.SYS_WRITE, uintptr(pipe[1]), uintptr(unsafe.Pointer(noted)), 4)
	sc.call(unix.SYS_EXIT_GROUP, 0)
	pid, err := sc.run(unix.CLONE_PIDFD, unix.SIGCHLD, -1)
	proctest.Must(t, err)
	unix.Close(int(sc.page.pidfd))
	collect(pid)
	s.give(sc)
	var saw [4]byte
	if n, err := unix.Read(pipe[0], saw[:]); n != 4 || int(binary.NativeEndian.Uint32(saw[:])) != pid || int(*noted) != pid || *failed != 0 {
		t.Errorf("the child of pid %d saw %d (%v); now there is %d, and %d", pid, saw, err, *noted, *failed)
	}
	says(t, s, null, &Program{Path: "/bin/echo", Argv: []string{"echo", "ran"}, Group: -1, PIDAt: noted, FailedAt: failed}, "ran\n")
	if *failed != 0 {
		t.Error("a program that ran is noted as failed")
	}
}

// A child joins cgroups v1 before its program runs, whatever descriptors those are.
func TestCgroupsV1(t *testing.T) {
	proctest.Root(t)
	mounts, err := os.ReadFile("/proc/self/mounts")
	proctest.Must(t, err)
	var tasks []int
	var want []string
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		if len(f) < 4 || f[2] != "cgroup" || !strings.Contains(f[3], "memory") && !strings.Contains(f[3], "pids") {
			continue
		}
		dir, err := os.MkdirTemp(f[1], "script-test-")
		proctest.Must(t, err)
		t.Cleanup(func() { unix.Rmdir(dir) })
		fd, err := unix.Open(dir+"/tasks", unix.O_WRONLY|unix.O_CLOEXEC, 0)
		proctest.Must(t, err)
		defer unix.Close(fd)
		high, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 500)
		proctest.Must(t, err)
		defer unix.Close(high)
		tasks, want = append(tasks, high), append(want, "/"+filepath.Base(dir))
	}
	s, null := newStarter(t)
	p := shell("grep -o '/script-test-[^/]*$' /proc/self/cgroup | sort")
	if len(tasks) == 0 { // no such hierarchy on this machine: nothing is joined
		p = shell("true")
	}
	p.Tasks, p.Own = tasks[:len(tasks)/2], tasks[len(tasks)/2:]
	slices.Sort(want)
	says(t, s, null, p, strings.Join(append(want, ""), "\n"))
}
