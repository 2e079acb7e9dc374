//go:build linux && (amd64 || arm64)

package spawn

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/internal/lib/seccomp"
	"github.com/tend-run/tend/internal/support/proctest"
)

// someCaps are capabilities that root keeps inside.
const someCaps uint64 = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_FOWNER | 1<<unix.CAP_FSETID | 1<<unix.CAP_KILL |
	1<<unix.CAP_SETGID | 1<<unix.CAP_SETUID | 1<<unix.CAP_SETPCAP | 1<<unix.CAP_NET_BIND_SERVICE | 1<<unix.CAP_SYS_CHROOT |
	1<<unix.CAP_SETFCAP

// uidBase is what root in a test's sandbox is outside.
const uidBase = 100_000

// spyArgument makes the test binary a program that looks at all that is started beside
// it; see TestNobodyInsideLooksIntoTheParent.
const spyArgument = "script-spy"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case spyArgument:
			spy()
		case callerArgument:
			caller()
		}
	}
	os.Exit(m.Run())
}

// sandbox is a namespace of each kind with the machine's root and a
// /proc of its own, and the pidfd of its first process.
type sandbox struct {
	pid, pidfd int
	zygotes    *zygotes // nil: starts take two children
}

// ways runs a test twice: with starts that take two children, and with those by a zygote.
func ways(t *testing.T, test func(t *testing.T, b *sandbox, s *Starter, null int)) {
	t.Run("two children", func(t *testing.T) {
		b := newSandbox(t)
		s, null := newStarter(t)
		test(t, b, s, null)
	})
	t.Run("zygote", func(t *testing.T) {
		b := newSandbox(t)
		s, null := newStarter(t)
		b.zygotes = newZygotes(t)
		test(t, b, s, null)
	})
}

const namespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWNET | unix.CLONE_NEWCGROUP

func newSandbox(t *testing.T) *sandbox {
	t.Helper()
	proctest.Root(t)
	ids := []syscall.SysProcIDMap{{HostID: uidBase, Size: 1 << 16}}
	cmd := exec.Command("/bin/sh", "-c", "mount -t proc proc /proc && mount -t tmpfs tmpfs /mnt && echo ready && exec sleep 100000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces, UidMappings: ids, GidMappings: ids, GidMappingsEnableSetgroups: true,
		Credential: &syscall.Credential{}, Pdeathsig: unix.SIGKILL}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	proctest.Must(t, err)
	proctest.Must(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("the first process says %q, %v", line, err)
	}
	b := &sandbox{pid: cmd.Process.Pid}
	b.pidfd, err = unix.PidfdOpen(b.pid, 0)
	proctest.Must(t, err)
	t.Cleanup(func() { unix.Close(b.pidfd) })
	return b
}

func hardened(t *testing.T, b *sandbox) *Enter {
	t.Helper()
	filter, err := seccomp.Default()
	proctest.Must(t, err)
	e := &Enter{PID1: b.pidfd, Flags: namespaces, Caps: someCaps, Filter: filter, NNP: true}
	if b.zygotes != nil {
		e.Zygote = b.zygotes.usual
	}
	return e
}

// other is for a program with other rights than the usual: its zygote is one of its own.
func (b *sandbox) other(t *testing.T, p *Program) *Program {
	if b.zygotes != nil {
		z := b.zygotes.make(t)
		usual, keyed := len(p.Enter.Filter), z.Filter
		z.Filter = func(k seccomp.Key) (seccomp.Filter, error) {
			if len(p.Enter.Filter) != usual {
				return p.Enter.Filter, nil
			}
			return keyed(k)
		}
		p.Enter.Zygote = z
	}
	return p
}

// word is where the kernel can write for a start.
func (b *sandbox) word() *uint32 {
	if b.zygotes == nil {
		return new(uint32)
	}
	return b.zygotes.word()
}

// inside is a shell in a sandbox, as its root.
func (b *sandbox) shell(t *testing.T, text string) *Program {
	p := shell(text)
	p.User, p.Enter, p.Dir = &User{}, hardened(t, b), "/"
	if b.zygotes != nil {
		p.Group = b.zygotes.group
	}
	return p
}

func TestAProgramInsideIsInTheSandbox(t *testing.T) { ways(t, testAProgramInsideIsInTheSandbox) }

func testAProgramInsideIsInTheSandbox(t *testing.T, b *sandbox, s *Starter, null int) {
	says(t, s, null, b.shell(t, "true"), "")
	for _, many := range []int{0, 3000} {
		for range many {
			fd, err := unix.FcntlInt(uintptr(null), unix.F_DUPFD_CLOEXEC, 0)
			proctest.Must(t, err)
			defer unix.Close(fd)
		}
		before := openFiles(t)
		outer, inner, failed := b.word(), b.word(), b.word()
		p := b.shell(t, `readlink /proc/self/ns/pid /proc/self/ns/user /proc/self/ns/mnt; echo $$ $PPID; ls /proc/$$/fd; grep FDSize /proc/$$/status`)
		p.PIDAt, p.FailedAt, p.Enter.Inner = outer, failed, inner
		var want strings.Builder
		for _, ns := range []string{"pid", "user", "mnt"} {
			link, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", b.pid, ns))
			proctest.Must(t, err)
			fmt.Fprintln(&want, link)
		}
		got, status, err := output(s, null, p)
		proctest.Must(t, err)
		fmt.Fprintf(&want, "%d 0\n0\n1\n2\nFDSize:\t64\n", *inner)
		if got != want.String() || status != 0 {
			t.Errorf("it says %q, %#x; want %q", got, int(status), want.String())
		}
		if *outer == 0 || *outer == *inner || *failed != 0 {
			t.Errorf("pid %d outside, %d inside, failed %d", *outer, *inner, *failed)
		}
		if after := openFiles(t); after != before {
			t.Errorf("%d descriptors were open, and are %d", before, after)
		}
	}
}

// What root inside has, and what it is denied, layer by layer.
func TestRightsInside(t *testing.T) { ways(t, testRightsInside) }

func testRightsInside(t *testing.T, b *sandbox, s *Starter, null int) {
	status := "grep -E '^(Uid|Gid|Groups|CapInh|CapPrm|CapEff|CapBnd|CapAmb|NoNewPrivs|Seccomp):' /proc/self/status | tr -s ' \\t' ' '"
	caps := fmt.Sprintf("%016x", someCaps)
	const none = "0000000000000000"
	says(t, s, null, b.shell(t, status), "Uid: 0 0 0 0\nGid: 0 0 0 0\nGroups: \nCapInh: "+none+"\nCapPrm: "+caps+"\nCapEff: "+caps+"\nCapBnd: "+caps+"\nCapAmb: "+none+"\nNoNewPrivs: 1\nSeccomp: 2\n")
	p := b.other(t, b.shell(t, status))
	p.User = &User{UID: 1000, GID: 1001, Groups: []uint32{7}}
	p.Enter.NNP = false
	says(t, s, null, p, "Uid: 1000 1000 1000 1000\nGid: 1001 1001 1001 1001\nGroups: 7 \nCapInh: "+none+"\nCapPrm: "+none+"\nCapEff: "+none+"\nCapBnd: "+caps+"\nCapAmb: "+none+"\nNoNewPrivs: 0\nSeccomp: 2\n")
	for name, c := range map[string]struct {
		text         string
		filter, caps bool // is enough alone
	}{
		"mounts":                             {"mount -t tmpfs x /tmp", true, true},
		"takes a mount away":                 {"umount /mnt", true, true},
		"makes a user namespace":             {"unshare -U true", true, false},
		"makes a mount namespace":            {"unshare -m true", true, true},
		"enters a namespace":                 {"nsenter -t 1 -u true", true, true},
		"reads the kernel's log":             {"dmesg", true, true},
		"reads the first process's memory":   {"head -c1 /proc/1/mem", false, true},
		"sets the clock":                     {"date -s @0", true, true},
		"makes a device":                     {"mknod /mnt/x b 7 0", false, true},
		"signals a process that is outside":  {fmt.Sprintf("kill -0 %d", os.Getpid()), false, false},
		"reads what belongs to root outside": {"cat /etc/shadow", false, false},
		"writes a sysctl":                    {"echo x > /proc/sys/kernel/panic", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			denied := "if { " + c.text + "; } >/dev/null 2>&1; then echo done; fi; echo went on"
			says(t, s, null, b.shell(t, denied), "went on\n")
			if c.caps {
				p := b.other(t, b.shell(t, denied))
				p.Enter.Filter = nil
				says(t, s, null, p, "went on\n")
			}
			if c.filter {
				p := b.other(t, b.shell(t, denied))
				p.Enter.Caps = ^uint64(0)
				says(t, s, null, p, "went on\n")
			}
		})
	}
	// And what it may do.
	says(t, s, null, b.shell(t, "touch /mnt/f && chown 33:44 /mnt/f && stat -c %u:%g /mnt/f && setpriv --reuid 65534 --regid 65534 --clear-groups id -u && sleep 0 & wait $! && echo well"), "33:44\n65534\nwell\n")
	// A user who is not root inside passes no directory that is closed to it, and executes
	// nothing that is.
	says(t, s, null, b.shell(t, "mkdir -m 700 /mnt/closed && cp /bin/true /mnt/closed/ && cp /bin/true /mnt/own && chmod 700 /mnt/own && echo made"), "made\n")
	for want, change := range map[Failure]func(p *Program){
		{Step: StepDir, Errno: unix.EACCES}:  func(p *Program) { p.Dir = "/mnt/closed" },
		{Step: StepExec, Errno: unix.EACCES}: func(p *Program) { p.Path = "/mnt/own" },
	} {
		p := b.shell(t, "true")
		p.User = &User{UID: 1000, GID: 1000}
		change(p)
		fails(t, b, s, null, p, want)
	}
}

func fails(t *testing.T, b *sandbox, s *Starter, null int, p *Program, want Failure) {
	t.Helper()
	failed := b.word()
	p.FailedAt = failed
	before := openFiles(t)
	p.Files = []int{null, null, null}
	var got *Failure
	if _, pidfd, err := s.Start(p); !errors.As(err, &got) || *got != want {
		t.Errorf("%v; want %v", err, &want)
		unix.Close(pidfd)
	}
	if *failed != 1 {
		t.Errorf("its failure is noted as %d", *failed)
	}
	if after := openFiles(t); p.Enter.Zygote == nil && after != before {
		t.Errorf("%d descriptors were open, and are %d", before, after)
	}
}

// Each failure on the way inside is named, and leaves nothing behind.
func TestFailuresInside(t *testing.T) { ways(t, testFailuresInside) }

func testFailuresInside(t *testing.T, b *sandbox, s *Starter, null int) {
	says(t, s, null, b.shell(t, "true"), "")
	over := exec.Command("/bin/true")
	proctest.Must(t, over.Start())
	pidfd, err := unix.PidfdOpen(over.Process.Pid, 0)
	proctest.Must(t, err)
	defer unix.Close(pidfd)
	proctest.Must(t, over.Wait())
	high := -1001
	for name, c := range map[string]struct {
		want   Failure
		change func(p *Program)
	}{
		"a sandbox that has ended":   {Failure{Step: StepEnter, Errno: unix.ESRCH}, func(p *Program) { p.Enter.PID1 = pidfd }},
		"no sandbox":                 {Failure{Step: StepEnter, Errno: unix.EINVAL}, func(p *Program) { p.Enter.PID1 = null }},
		"no group":                   {Failure{Step: StepEnter, Errno: unix.EBADF}, func(p *Program) { p.Group = null }},
		"a user that is not mapped":  {Failure{Step: StepUser, Errno: unix.EINVAL}, func(p *Program) { p.User.UID = 70_000 }},
		"a group that is not mapped": {Failure{Step: StepUser, Errno: unix.EINVAL}, func(p *Program) { p.User.Groups = []uint32{70_000} }},
		"a filter that is none":      {Failure{Step: StepHarden, Errno: unix.EINVAL}, func(p *Program) { p.Enter.Filter = seccomp.Filter{{}} }},
		"a ruleset that is none":     {Failure{Step: StepHarden, Errno: unix.EBADFD}, func(p *Program) { p.Enter.Landlock = null }},
		"a score that is none":       {Failure{Step: StepOOM, Errno: unix.EINVAL}, func(p *Program) { p.OOM = &high }},
		"no directory":               {Failure{Step: StepDir, Errno: unix.ENOENT}, func(p *Program) { p.Dir = "/no/such" }},
		"no program":                 {Failure{Step: StepExec, Errno: unix.ENOENT}, func(p *Program) { p.Path = "/no/such" }},
	} {
		t.Run(name, func(t *testing.T) {
			p := b.other(t, b.shell(t, "true"))
			p.User = &User{}
			c.change(p)
			before := openFiles(t)
			fails(t, b, s, null, p, c.want)
			if z := p.Enter.Zygote; z != nil {
				z.End()
			}
			if after := openFiles(t); after > before {
				t.Errorf("%d descriptors were open, and are %d", before, after)
			}
		})
	}
	// The first process dies; its namespaces live on.
	unix.Kill(b.pid, unix.SIGKILL)
	waitDead(t, b.pidfd)
	p := b.shell(t, "true")
	p.Files = []int{null, null, null}
	var got *Failure
	if _, _, err := s.Start(p); !errors.As(err, &got) || got.Step != StepEnter || got.Errno != unix.ESRCH && got.Errno != unix.ENOMEM {
		t.Errorf("in a sandbox whose first process has died: %v", err)
	}
}

func waitDead(t *testing.T, pidfd int) {
	t.Helper()
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 60_000)
		if err == unix.EINTR {
			continue
		}
		if n != 1 {
			t.Fatalf("it lives on: %v", err)
		}
		return
	}
}

// Somebody kills the child that enters the sandbox, or the stub, while the program's process
// is on its way. The program runs once all the same, and the start waits for it: it makes its
// calls in the memory of others.
func TestAHelperOfAStartIsKilled(t *testing.T) {
	for _, which := range []string{"the child that enters", "the stub"} {
		t.Run(which, func(t *testing.T) { aHelperIsKilled(t, which == "the stub") })
	}
}

func aHelperIsKilled(t *testing.T, isStub bool) {
	b := newSandbox(t)
	s, null := newStarter(t)
	proctest.Eventually(t, "it is killed in time", func() bool {
		pid, stub := new(Digits), new(uint32)
		p := b.shell(t, "exit 7")
		p.Files, p.Enter.Digits, p.SessionAt = []int{null, null, null}, pid, stub
		started := make(chan error, 1)
		go func() {
			second, pidfd, err := s.Start(p)
			if err == nil {
				stat, ok := procfs.ReadStat(second)
				if ok && stat.NoExec && !stat.Dead() {
					t.Error("the program was not executed when the start was over")
				}
				var status unix.WaitStatus
				if status, err = collect(second); err == nil && status.ExitStatus() != 7 {
					t.Errorf("the program ended with %#x", int(status))
				}
				unix.Close(pidfd)
			}
			started <- err
		}()
		for pid.Number() == 0 {
		}
		second := pid.Number()
		unix.Kill(second, unix.SIGSTOP)
		killed := false
		for _, child := range children(t) {
			if child != second && child != b.pid && isStub == (child == int(atomic.LoadUint32(stub))) {
				killed = unix.Kill(child, unix.SIGKILL) == nil
			}
		}
		if !killed { // it was too fast
			unix.Kill(second, unix.SIGCONT)
		}
		stat, ok := procfs.ReadStat(second)
		killed = killed && ok && stat.NoExec // else it had done its work
		time.Sleep(50 * time.Millisecond)
		unix.Kill(second, unix.SIGCONT)
		if err := <-started; err != nil {
			t.Fatalf("killed: %v; it says %v", killed, err)
		}
		if left := children(t); len(left) != 1 {
			t.Fatalf("children are left: %v", left)
		}
		return killed
	})
	says(t, s, null, b.shell(t, "echo well"), "well\n")
}

// children of this process.
func children(t *testing.T) (pids []int) {
	lists, err := filepath.Glob("/proc/self/task/*/children")
	proctest.Must(t, err)
	for _, list := range lists {
		text, _ := os.ReadFile(list) // a thread may have ended
		for _, f := range strings.Fields(string(text)) {
			pid, err := strconv.Atoi(f)
			proctest.Must(t, err)
			pids = append(pids, pid)
		}
	}
	return pids
}

// Limits that only the parent may set hold inside, and the program is in its cgroups.
func TestLimitsInside(t *testing.T) { ways(t, testLimitsInside) }

func testLimitsInside(t *testing.T, b *sandbox, s *Starter, null int) {
	p := b.shell(t, "nice; ulimit -Sn; cat /proc/self/oom_score_adj; ulimit -Hf")
	was, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	proctest.Must(t, err)
	score := 321
	p.Nice, p.OOM = 20-was+4, &score
	p.Limits = []Limit{{Resource: unix.RLIMIT_NOFILE, Soft: 33, Hard: 44}, {Resource: unix.RLIMIT_FSIZE, Soft: 0, Hard: 2048}}
	before := openFiles(t)
	says(t, s, null, p, fmt.Sprintf("%d\n33\n321\n4\n", p.Nice))
	says(t, s, null, p, fmt.Sprintf("%d\n33\n321\n4\n", p.Nice))
	if after := openFiles(t); after > before+1 {
		t.Errorf("%d descriptors were open, and are %d", before, after)
	}
}

// The program is in its cgroup v2 from the beginning, though inside nobody sees that group.
func TestAGroupInside(t *testing.T) {
	b := newSandbox(t)
	s, null := newStarter(t)
	root := "/sys/fs/cgroup"
	var st unix.Statfs_t
	if unix.Statfs(root+"/unified", &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC {
		root += "/unified"
	}
	dir, err := os.MkdirTemp(root, "script-test-")
	proctest.Must(t, err)
	t.Cleanup(func() { unix.Rmdir(dir) })
	group, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	proctest.Must(t, err)
	defer unix.Close(group)
	var pipe [2]int
	proctest.Must(t, unix.Pipe2(pipe[:], unix.O_CLOEXEC))
	p := b.shell(t, "read x; true")
	p.Group, p.Files = group, []int{pipe[0], null, null}
	pid, pidfd, err := s.Start(p)
	unix.Close(pipe[0])
	proctest.Must(t, err)
	members, err := os.ReadFile(dir + "/cgroup.procs")
	if err != nil || string(members) != fmt.Sprintln(pid) {
		t.Errorf("in the group are %q, %v; want %d", members, err, pid)
	}
	unix.Close(pipe[1])
	unix.Close(pidfd)
	collect(pid)
}

// While programs start, one that is inside looks at each of them before its exec: at that
// moment it shares the parent's memory. It must find nothing.
func TestNobodyInsideLooksIntoTheParent(t *testing.T) {
	b := newSandbox(t)
	s, null := newStarter(t)
	path := testProgram(t)
	// The parent lies open meanwhile, or not: the first shows that the spy would find it.
	watch := func(open bool) (seen, found int) {
		var stop atomic.Bool
		opened := make(chan struct{})
		go func() {
			defer close(opened)
			for open && !stop.Load() {
				unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
			}
		}()
		defer func() {
			stop.Store(true)
			<-opened
			unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
		}()
		spy := &Program{Path: path, Argv: []string{"spy", spyArgument}, User: &User{}, Enter: hardened(t, b), Group: -1, Dir: "/"}
		said := make(chan string, 1)
		go func() {
			out, _, err := output(s, null, spy)
			said <- fmt.Sprint(out, err)
		}()
		for {
			select {
			case out := <-said:
				if _, err := fmt.Sscanf(out, "%d %d", &seen, &found); err != nil {
					t.Fatalf("the spy says %q", out)
				}
				return seen, found
			default:
			}
			p := &Program{Path: "/bin/true", Argv: []string{"true"}, Files: []int{null, null, null}, User: &User{}, Enter: hardened(t, b), Group: -1}
			pid, pidfd, err := s.Start(p)
			proctest.Must(t, err)
			unix.Close(pidfd)
			collect(pid)
		}
	}
	proctest.Eventually(t, "the spy finds a parent that lies open", func() bool {
		_, found := watch(true)
		return found > 0
	})
	for looked := 0; looked < 500; {
		seen, found := watch(false)
		if looked += seen; found > 0 {
			t.Fatalf("the spy saw %d processes, and found the parent %d times", seen, found)
		}
	}
}

// spy looks at the processes that come after it, for a while: at memory, descriptors and
// program of each.
func spy() {
	self, _ := os.Readlink("/proc/self/exe")
	seen, found := 0, 0
	last := os.Getpid()
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		for next := last + 1; next < last+64; next++ {
			dir := "/proc/" + strconv.Itoa(next)
			if unix.Access(dir, unix.F_OK) != nil {
				continue
			}
			last = next
			exe, err := os.Readlink(dir + "/exe")
			if exe == self {
				break // a thread of its own
			}
			seen++
			hit := err == nil && (strings.HasSuffix(exe, ".test") || strings.Contains(exe, "tend-zygote"))
			for fd := 3; fd < 12 && !hit; fd++ {
				link, err := os.Readlink(dir + "/fd/" + strconv.Itoa(fd))
				hit = err == nil && !strings.HasPrefix(link, "/usr/") && !strings.HasPrefix(link, "/lib") && !strings.HasPrefix(link, "/etc/ld.so") // what the program itself opens
			}
			if maps, err := os.ReadFile(dir + "/maps"); err == nil && (strings.Contains(string(maps), ".test") || strings.Contains(string(maps), "tend-zygote")) {
				hit = true
			}
			if mem, err := os.Open(dir + "/mem"); err == nil {
				var b [1]byte
				n, _ := mem.ReadAt(b[:], memoryAt)
				hit = hit || n == 1
				mem.Close()
			}
			if hit {
				found++
			}
			break
		}
	}
	fmt.Println(seen, found)
	os.Exit(0)
}
