//go:build linux && (amd64 || arm64)

package spawn

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/memfd"
	"github.com/tend-run/tend/internal/core/microelf"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/internal/lib/seccomp"
	"github.com/tend-run/tend/internal/support/proctest"
)

// zygotes are what zygotes of a test have in common.
type zygotes struct {
	usual  *Zygote
	group  int // of what they make
	init   string
	fd     int
	shared []byte
	used   atomic.Int32 // words of shared
}

func newZygotes(t *testing.T) *zygotes {
	t.Helper()
	w := &zygotes{}
	root := "/sys/fs/cgroup"
	var st unix.Statfs_t
	if unix.Statfs(root+"/unified", &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC {
		root += "/unified"
	}
	for _, at := range []*string{&w.init, nil} {
		dir := proctest.Value(os.MkdirTemp(root, "script-test-"))(t)
		t.Cleanup(func() { unix.Rmdir(dir) })
		if at != nil {
			*at = dir
			continue
		}
		w.group = proctest.Value(unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0))(t)
		t.Cleanup(func() { unix.Close(w.group) })
	}
	w.fd = proctest.Value(memfd.Create("words", 0))(t)
	const size = 1 << 16
	proctest.Must(t, unix.Ftruncate(w.fd, size))
	w.shared = proctest.Value(unix.Mmap(w.fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED))(t)
	t.Cleanup(func() {
		unix.Munmap(w.shared)
		unix.Close(w.fd)
	})
	w.usual = w.make(t)
	return w
}

// make returns a zygote that the first start makes.
func (w *zygotes) make(t *testing.T) *Zygote {
	z := &Zygote{
		Shared: func() ([]byte, int) { return w.shared, w.fd },
		Group: func() (int, error) {
			return unix.Open(w.init, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		},
		Filter: seccomp.Keyed,
	}
	z.asked = lonely
	t.Cleanup(z.End)
	return z
}

// word is one of the shared memory.
func (w *zygotes) word() *uint32 {
	return (*uint32)(unsafe.Pointer(&w.shared[4*w.used.Add(1)]))
}

// withZygote returns a sandbox that has one.
func withZygote(t *testing.T) (b *sandbox, s *Starter, null int) {
	t.Helper()
	b = newSandbox(t)
	s, null = newStarter(t)
	b.zygotes = newZygotes(t)
	return b, s, null
}

// The first start goes without a zygote. All others that it can make are made by one, and
// the rest are not.
func TestWhatAZygoteMakes(t *testing.T) {
	b, s, null := withZygote(t)
	z := b.zygotes.usual
	z.asked = 0
	says(t, s, null, b.shell(t, "echo first"), "first\n")
	if z.PID() != 0 || z.served != 0 {
		t.Fatalf("the first start has made zygote %d, which served %d", z.PID(), z.served)
	}
	for i := range 3 {
		says(t, s, null, b.shell(t, "echo more"), "more\n")
		if z.PID() == 0 || z.served != i+1 {
			t.Fatalf("after %d starts more zygote %d has served %d", i+1, z.PID(), z.served)
		}
	}
	served, score, zero := z.served, 100, 0
	for name, change := range map[string]func(p *Program){
		"a priority":           func(p *Program) { p.Nice = 3 },
		"an OOM score":         func(p *Program) { p.OOM = &score },
		"an OOM score of zero": func(p *Program) { p.OOM = &zero },
		"a limit to be raised": func(p *Program) {
			var now unix.Rlimit
			proctest.Must(t, unix.Getrlimit(unix.RLIMIT_CORE, &now))
			proctest.Must(t, unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 0, Max: 1 << 20}))
			t.Cleanup(func() { unix.Setrlimit(unix.RLIMIT_CORE, &now) })
			p.Limits = []Limit{{Resource: unix.RLIMIT_CORE, Soft: 0, Hard: 1 << 21, Try: true}}
		},
		"no group":             func(p *Program) { p.Group = -1 },
		"much environment":     func(p *Program) { p.Env = append(p.Env, "LARGE="+strings.Repeat("x", usual)) },
		"a pid somewhere else": func(p *Program) { p.PIDAt = new(uint32) },
	} {
		p := b.shell(t, "echo well")
		change(p)
		says(t, s, null, p, "well\n")
		if z.served != served {
			t.Errorf("with %s a zygote made it", name)
		}
	}
	if z.asked > 4 {
		t.Errorf("it was asked %d times", z.asked)
	}
}

// Whoever kills the zygote, and whenever: the start is done once, and the next ones too.
func TestAZygoteThatIsKilled(t *testing.T) {
	b, s, null := withZygote(t)
	z := b.zygotes.usual
	says(t, s, null, b.shell(t, "echo well"), "well\n")
	before := openFiles(t)
	for round := range 300 {
		var over atomic.Bool
		killed := make(chan struct{})
		go func() {
			defer close(killed)
			for spin := round * 20; !over.Load(); spin-- {
				if pid := z.PID(); spin <= 0 && pid != 0 {
					unix.Kill(pid, unix.SIGKILL)
					return
				}
			}
		}()
		p := b.shell(t, "echo once")
		p.PIDAt, p.FailedAt, p.Enter.Inner = b.word(), b.word(), b.word()
		b.zygotes.used.Add(-3)
		*p.PIDAt, *p.FailedAt, *p.Enter.Inner = 0, 0, 0
		got, status, err := output(s, null, p)
		if err != nil || status != 0 || got != "once\n" {
			t.Fatalf("round %d: it says %q, %#x, %v", round, got, int(status), err)
		}
		if *p.PIDAt == 0 || *p.FailedAt != 0 {
			t.Fatalf("round %d: pid %d, failed %d", round, *p.PIDAt, *p.FailedAt)
		}
		over.Store(true)
		<-killed
	}
	z.End()
	if after := openFiles(t); after > before {
		t.Errorf("%d descriptors were open, and are %d", before, after)
	}
	if left := children(t); len(left) != 1 {
		t.Errorf("children are left: %v", left)
	}
}

// A zygote that does not go on holds up a start as long as a program inside may, and no longer.
func TestAZygoteThatIsStopped(t *testing.T) {
	b, s, null := withZygote(t)
	z := b.zygotes.usual
	says(t, s, null, b.shell(t, "true"), "")
	pid := z.PID()
	proctest.Must(t, unix.Kill(pid, unix.SIGSTOP))
	says(t, s, null, b.shell(t, "echo well"), "well\n")
	if now := z.PID(); now == pid {
		t.Errorf("zygote %d is still there", pid)
	}
	says(t, s, null, b.shell(t, "echo well"), "well\n")
}

// Many at once, from several zygotes' points of view one after the other; and nothing is left
// open, here or there.
func TestManyAtOnceByAZygote(t *testing.T) {
	b, s, null := withZygote(t)
	z := b.zygotes.usual
	says(t, s, null, b.shell(t, "true"), "")
	here, there := openFiles(t), filesOf(t, z.PID())
	var wg sync.WaitGroup
	for w := range 8 {
		p := b.shell(t, fmt.Sprintf("echo %d $$", w))
		p.Enter.Inner = b.word()
		wg.Go(func() {
			for range 125 {
				got, status, err := output(s, null, p)
				if want := fmt.Sprintln(w, *p.Enter.Inner); err != nil || status != 0 || got != want {
					t.Errorf("it says %q, %#x, %v; want %q", got, int(status), err, want)
				}
			}
		})
	}
	wg.Wait()
	if after := openFiles(t); after != here {
		t.Errorf("%d descriptors were open, and are %d", here, after)
	}
	if after := filesOf(t, z.PID()); after != there || there != 3 {
		t.Errorf("the zygote had %d descriptors, and has %d", there, after)
	}
	if z.served < 900 {
		t.Errorf("it has made %d of 1,000", z.served)
	}
}

func filesOf(t *testing.T, pid int) int {
	t.Helper()
	return len(proctest.Value(os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)))(t))
}

// A zygote that nobody needs any more ends, and the next start makes another.
func TestAZygoteThatNobodyNeeds(t *testing.T) {
	b, s, null := withZygote(t)
	z := b.zygotes.usual
	z.rest = 50 * time.Millisecond
	before := openFiles(t)
	for i := range 3 {
		says(t, s, null, b.shell(t, "sleep 0.2; echo well"), "well\n")
		proctest.Eventually(t, "it ends", func() bool { return z.PID() == 0 && len(children(t)) == 1 })
		if z.served != i+1 {
			t.Errorf("%d starts were made by a zygote; want %d", z.served, i+1)
		}
	}
	if after := openFiles(t); after > before+1 { // the sysctl, at the first
		t.Errorf("%d descriptors were open, and are %d", before, after)
	}
}

// What the zygote is: nobody for who is inside, and nothing but what starts need.
func TestWhatAZygoteIs(t *testing.T) {
	b, s, null := withZygote(t)
	z := b.zygotes.usual
	says(t, s, null, b.shell(t, "true"), "")
	dir := fmt.Sprintf("/proc/%d/", z.PID())
	for _, ns := range []string{"user", "mnt", "net", "ipc", "uts", "cgroup", "pid_for_children"} {
		want := proctest.Value(os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", b.pid, strings.TrimSuffix(ns, "_for_children"))))(t)
		if got := proctest.Value(os.Readlink(dir + "ns/" + ns))(t); got != want {
			t.Errorf("its %s is %s; want %s", ns, got, want)
		}
	}
	if got, want := proctest.Value(os.Readlink(dir+"ns/pid"))(t), proctest.Value(os.Readlink("/proc/self/ns/pid"))(t); got != want {
		t.Errorf("it is in %s; want %s", got, want)
	}
	status := string(proctest.Value(os.ReadFile(dir + "status"))(t))
	for _, want := range []string{"Name:\ttend-zygote\n", "NoNewPrivs:\t1\n", "Seccomp:\t2\n", fmt.Sprintf("CapBnd:\t%016x\n", someCaps)} {
		if !strings.Contains(status, want) {
			t.Errorf("no %q in %s", want, status)
		}
	}
	maps := string(proctest.Value(os.ReadFile(dir + "maps"))(t))
	for line := range strings.Lines(maps) {
		if f := strings.Fields(line); len(f) > 5 && !strings.HasPrefix(f[5], "/memfd:tend-zygote") && !strings.HasPrefix(f[5], "/memfd:words") && !strings.HasPrefix(f[5], "[") {
			t.Errorf("it has %s", line)
		}
	}
	for _, fd := range proctest.Value(filepath.Glob(dir + "fd/*"))(t) {
		if link := proctest.Value(os.Readlink(fd))(t); !strings.HasPrefix(link, "socket:") {
			t.Errorf("it has %s open", link)
		}
	}
	// The stub of a start is seen until it is collected, which may take until after the exec.
	says(t, s, null, b.shell(t, "n=0; while set -- /proc/[0-9]*; [ $# -gt 2 ] && [ $n -lt 1000 ]; do n=$((n+1)); sleep 0.01; done; echo $#; cat /proc/[0-9]*/comm | grep -c zygote; true"), "2\n0\n") // sleep and sh
	// It ends when the other end is closed, whoever closed it.
	pid := z.PID()
	fd := proctest.Value(unix.PidfdOpen(pid, 0))(t)
	defer unix.Close(fd)
	proctest.Must(t, unix.Shutdown(z.running.socket, unix.SHUT_RDWR))
	waitDead(t, fd)
}

// Its program is code that means the same wherever it lies.
func TestTheZygotesProgramIsWhole(t *testing.T) {
	program := zygoteProgram()
	if n := len(program); n < 300 || n > 1000 {
		t.Errorf("it has %d bytes", n)
	}
	if bytes.Contains(program, []byte("gote-end")) {
		t.Error("its end is in it")
	}
}

// While a zygote makes programs, one that is inside with all capabilities there looks at each
// before its exec. It must find nothing: neither memory nor registers, which have the key.
func TestNobodyInsideLooksIntoAZygote(t *testing.T) {
	b, s, null := withZygote(t)
	path := testProgram(t)
	z := b.zygotes.usual
	says(t, s, null, b.shell(t, "true"), "")
	starts := 0
	// The zygote lies open before each start, or not: the first shows that the spy would find it.
	watch := func(open bool) (seen, found int) {
		spy := &Program{Path: path, Argv: []string{"spy", spyArgument}, User: &User{}, Enter: hardened(t, b), Group: -1, Dir: "/"}
		spy.Enter.Zygote, spy.Enter.Filter, spy.Enter.Caps = nil, nil, ^uint64(0)
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
				if open {
					sc := <-z.running.scripts
					sc.reset()
					sc.call(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
					sc.call(unix.SYS_GETPID).flags = last
					proctest.Must(t, z.running.send(sc, []int{null}, 0))
					z.running.scripts <- sc // the next start takes another
				}
				says(t, s, null, b.shell(t, "true"), "")
				starts++
			}
		}
	}
	proctest.Eventually(t, "the spy finds a zygote that lies open", func() bool {
		_, found := watch(true)
		return found > 0
	})
	for looked := 0; looked < 300; {
		seen, found := watch(false)
		if looked += seen; found > 0 {
			t.Fatalf("the spy saw %d processes, and found something of %d", seen, found)
		}
	}
	if z.served < starts*9/10 {
		t.Errorf("the zygote has made %d of %d", z.served, starts)
	}
}

// testProgram is a copy of this program that everybody may execute.
func testProgram(t *testing.T) string {
	t.Helper()
	dir := proctest.Value(os.MkdirTemp("", "script-spy-"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	proctest.Must(t, os.Chmod(dir, 0o755))
	path := filepath.Join(dir, "spy")
	program := proctest.Value(os.ReadFile(proctest.Value(os.Executable())(t)))(t)
	proctest.Must(t, os.WriteFile(path, program, 0o755))
	return path
}

// callerArgument makes the test binary a program that tries to call clone3, with the keys
// that are its further arguments, and with others.
const callerArgument = "script-caller"

// caller prints what clone3 answers with the key of its arguments, and without; and what it
// is told about filters.
func caller() {
	var key [3]uintptr
	for i := range key {
		key[i], _ = func() (uintptr, error) {
			n, err := strconv.ParseUint(os.Args[2+i], 16, 64)
			return uintptr(n), err
		}()
	}
	try := func(key [3]uintptr) unix.Errno {
		// Without memory for its arguments: EFAULT is the kernel's own answer.
		_, _, errno := unix.RawSyscall6(unix.SYS_CLONE3, 0, 88, 0, key[0], key[1], key[2])
		return errno
	}
	fmt.Println("with the key:", unix.ErrnoName(try(key)))
	wrong := map[unix.Errno]int{}
	for bit := range 192 {
		k := key
		k[bit/64] ^= 1 << (bit % 64)
		wrong[try(k)]++
	}
	wrong[try([3]uintptr{})]++
	fmt.Println("without:", len(wrong), wrong[unix.ENOSYS])
	runtime.LockOSThread()
	const getFilter = 0x420c // PTRACE_SECCOMP_GET_FILTER
	child := exec.Command("/bin/sleep", "100")
	child.SysProcAttr = &unix.SysProcAttr{Ptrace: true}
	if err := child.Start(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	var status unix.WaitStatus
	unix.Wait4(child.Process.Pid, &status, 0, nil)
	var filter [4096]byte
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, getFilter, uintptr(child.Process.Pid), 0, uintptr(unsafe.Pointer(&filter)), 0, 0)
	fmt.Println("the filter:", unix.ErrnoName(errno))
	child.Process.Kill()
	os.Exit(0)
}

// Only who has the key gets clone3 through the filter, and what has the filter cannot
// read the key from it.
func TestTheKeyOfAZygote(t *testing.T) {
	b, s, null := withZygote(t)
	z := b.zygotes.usual
	says(t, s, null, b.shell(t, "true"), "")
	key := z.running.key
	p := b.shell(t, "")
	p.Path = testProgram(t)
	p.Argv = []string{"caller", callerArgument}
	for _, k := range key {
		p.Argv = append(p.Argv, fmt.Sprintf("%x", k))
	}
	says(t, s, null, p, "with the key: EFAULT\nwithout: 1 193\nthe filter: EACCES\n")
	// That of another zygote is of no use.
	q := b.other(t, b.shell(t, ""))
	q.Path, q.Argv = p.Path, p.Argv
	says(t, s, null, q, "with the key: ENOSYS\nwithout: 1 193\nthe filter: EACCES\n")
	if q.Enter.Zygote.served != 1 || q.Enter.Zygote.running.key == key {
		t.Error("the other one was not asked, or has the same key")
	}
}

// A program's registers have nothing of the key as it begins: one that calls clone3 at once,
// with the arguments that are there, is refused. It ends with 1 if not.
func TestRegistersHaveNothingOfTheKey(t *testing.T) {
	b, s, null := withZygote(t)
	dir := proctest.Value(os.MkdirTemp("", "script-registers-"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	proctest.Must(t, os.Chmod(dir, 0o755))
	path := filepath.Join(dir, "registers")
	proctest.Must(t, os.WriteFile(path, microelf.Program(registersCode), 0o755))
	for range 20 {
		p := b.shell(t, "")
		p.Path = path
		says(t, s, null, p, "")
	}
	if b.zygotes.usual.served != 20 {
		t.Errorf("the zygote has made %d", b.zygotes.usual.served)
	}
}

// The bound of a child that somebody inside stops holds for those of a zygote.
func TestAZygotesChildThatIsStopped(t *testing.T) {
	t.Run("program", func(t *testing.T) { aZygotesChildIsStopped(t, 2) })
	t.Run("stub", func(t *testing.T) { aZygotesChildIsStopped(t, 1) })
}

// aZygotesChildIsStopped stops the child, 1, or the child of that, 2, as soon as its number is
// known.
func aZygotesChildIsStopped(t *testing.T, generation int) {
	b, s, null := withZygote(t)
	says(t, s, null, b.shell(t, "true"), "")
	z := b.zygotes.usual
	stub, pid := b.word(), (*Digits)(unsafe.Pointer(b.word()))
	p := b.shell(t, "true")
	p.Files, p.SessionAt, p.Enter.Digits = []int{null, null, null}, stub, pid
	stopped := stopNextChild(t, z.PID(), generation, func() bool {
		return atomic.LoadUint32(stub) != 0 && (generation == 1 || pid.Number() != 0)
	})
	began := time.Now()
	if _, _, err := s.Start(p); err != ErrSlow {
		t.Fatalf("after %v: %v", time.Since(began), err)
	}
	if got := <-stopped; got == 0 {
		t.Fatal("the child was not stopped")
	} else if stat, ok := procfs.ReadStat(got); ok && !stat.Dead() {
		t.Errorf("the stopped child %d is left: %+v", got, stat)
	}
	if z.PID() == 0 {
		t.Error("the zygote was ended for it")
	}
	says(t, s, null, b.shell(t, "echo well"), "well\n")
	z.End()
	if left := children(t); len(left) != 1 {
		t.Errorf("children are left: %v", left)
	}
}

// stopNextChild sends SIGSTOP to the next child of a process, with generation 2 to the next
// child of that child, at its first call for which when reports true. The channel gives
// its number, or 0.
func stopNextChild(t *testing.T, process, generation int, when func() bool) <-chan int {
	t.Helper()
	seized, stopped := make(chan error), make(chan int, 1)
	go func() {
		defer close(stopped)
		runtime.LockOSThread() // this thread is the tracer
		// It must not end: what it has started before may be told so as the death of its parent.
		defer runtime.UnlockOSThread()
		const options = unix.PTRACE_O_TRACEFORK | unix.PTRACE_O_TRACEVFORK | unix.PTRACE_O_TRACECLONE
		_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(process), 0, options, 0, 0)
		if errno != 0 {
			seized <- errno
			return
		}
		seized <- nil
		var status unix.WaitStatus
		for {
			if _, err := unix.Wait4(process, &status, unix.WALL, nil); err != nil || !status.Stopped() {
				return
			}
			child, err := unix.PtraceGetEventMsg(process)
			if err != nil {
				return
			}
			unix.PtraceDetach(process)
			process = int(child)
			if _, err := unix.Wait4(process, &status, unix.WALL, nil); err != nil || !status.Stopped() {
				return
			}
			if generation--; generation == 0 {
				break
			}
			unix.PtraceCont(process, 0)
		}
		for !when() {
			unix.PtraceSyscall(process, 0)
			if _, err := unix.Wait4(process, &status, unix.WALL, nil); err != nil || !status.Stopped() {
				return
			}
		}
		unix.Kill(process, unix.SIGSTOP)
		unix.PtraceDetach(process)
		stopped <- process
	}()
	proctest.Must(t, <-seized)
	return stopped
}
