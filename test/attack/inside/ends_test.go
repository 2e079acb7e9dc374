//go:build linux

package inside

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testdaemon"
	"github.com/tend-run/tend/process"
)

// undead is a program that looks like a zombie: its first thread has ended, and another continues.
const undead = `
def go_on():
    libc.prctl(15, b"undead")
    while open("/proc/self/stat").read().rsplit(")", 1)[1].split()[0] != "Z": time.sleep(0.001)
    print("holds undead", flush=True)
    while True: time.sleep(1)
threading.Thread(target=go_on).start()
call(SYS_exit, 0)`

// isUndead says how many threads of that name live.
const isUndead = `
n = 0
for pid in os.listdir("/proc"):
    if pid.isdigit():
        for tid in tried(lambda: os.listdir("/proc/%s/task" % pid)):
            try: n += open("/proc/%s/task/%s/comm" % (pid, tid)).read() == "undead\n"
            except OSError: pass
print(n)`

// storm makes and ends children of all kinds without an end: its own, those of its parent (the keeper), stopped, traced, with
// their own sessions.
const storm = `
def child(flags):
    pid = call(SYS_clone, flags, 0, 0, 0, 0)
    if pid == 0:
        if os.getpid() % 3 == 0: os.setsid()
        if os.getpid() % 5 == 0: os.kill(os.getpid(), signal.SIGSTOP)
        if os.getpid() % 7 == 0: call(SYS_ptrace, 0, 0, 0, 0)
        os.kill(os.getpid(), signal.SIGKILL if os.getpid() % 2 else signal.SIGSEGV)
    return pid
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
print("holds storm", flush=True)
while True:
    for flags in (17, 0x8000 | 17, 0x8000, 0): child(flags)
    for pid in os.listdir("/proc"):
        if pid.isdigit() and pid != "1" and int(pid) != os.getpid() and tried(lambda: open("/proc/%s/stat" % pid).read().rsplit(")",
            1)[1].split()[0]) in ("T", "t"): tried(lambda: os.kill(int(pid), 18 if int(pid) % 2 else 9))`

var ends = []attempt{
	{"outlives a kill by looking dead", false, func(t *testing.T, w *world) {
		s := w.sandbox(t)
		p, _ := hold(t, s, "0:0", undead)
		res, err := p.Kill(t.Context())
		if err != nil || len(res.Survivors)+len(res.Strays) > 0 {
			t.Errorf("it is killed: %+v, %v", res, err)
		}
		if exit := proctest.Wait(t, p, process.Until{}).Exit; exit.Signal != int(unix.SIGKILL) {
			t.Errorf("it has ended with %+v", exit)
		}
		if n := says(t, s, "0:0", isUndead); n != "0" {
			t.Errorf("%s of its threads live on", n)
		}
	}},
	{"has a descendant that looks dead outlive its kill", false, func(t *testing.T, w *world) {
		s := w.sandbox(t)
		p, _ := hold(t, s, "0:0", `
if os.fork() == 0:
    os.setsid()`+strings.ReplaceAll(undead, "\n", "\n    ")+`
sys.stdin.read()`)
		proctest.Kill(t, p)
		if n := says(t, s, "0:0", isUndead); n != "0" {
			t.Errorf("%s threads of a descendant live on", n)
		}
	}},
	{"makes, stops, traces and ends children without an end while its sandbox is removed", false, func(t *testing.T, w *world) {
		s := w.sandbox(t)
		for range 2 {
			hold(t, s, "0:0", storm)
		}
		w.goesOn(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		proctest.Must(t, s.Destroy(ctx))
	}},
	{"makes the keeper its tracer, and leaves it threads and children to collect", false, func(t *testing.T, w *world) {
		s := w.sandbox(t)
		for range 2 {
			p, _ := hold(t, s, "0:0", `
def traced():
    call(SYS_ptrace, 0, 0, 0, 0)
    call(SYS_exit, 0)
for n in range(4): threading.Thread(target=traced, daemon=True).start()
while sum(open("/proc/self/task/%s/stat" % t).read().rsplit(")",
    1)[1].split()[0] == "Z" for t in os.listdir("/proc/self/task")) < 4: time.sleep(0.001)
print("holds", flush=True)
call(SYS_ptrace, 0, 0, 0, 0)
for n in range(4): # they stop at once, and their tracer is the keeper
    if call(SYS_clone, 0x2000 | 17, 0, 0, 0, 0) == 0: os._exit(0)
os.kill(os.getpid(), signal.SIGSTOP)`)
			if res, err := p.Kill(t.Context()); err != nil || len(res.Survivors) > 0 {
				t.Errorf("its kill: %+v, %v", res, err)
			}
			if exit := proctest.Wait(t, p, process.Until{}).Exit; exit.Signal != int(unix.SIGKILL) {
				t.Errorf("it has ended with %+v", exit)
			}
		}
		hold(t, s, "0:0", `
call(SYS_ptrace, 0, 0, 0, 0)
print("holds", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)`)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		proctest.Must(t, s.Destroy(ctx))
	}},
	{"ends whatever is started in its sandbox, again and again", false, func(t *testing.T, w *world) {
		s := w.sandbox(t)
		p, _ := hold(t, s, "0:0", `
print("holds", flush=True)
while True: tried(lambda: os.kill(-1, signal.SIGKILL))`)
		// Some of them are killed on their way. Each has an end, or an error.
		starts(t, s, 60, process.Spec{Argv: []string{"sleep", "0.01"}})
		w.goesOn(t)
		proctest.Kill(t, p)
	}},
	{"stands in the way of a pause", true, func(t *testing.T, w *world) {
		s := w.sandbox(t)
		for _, text := range []string{undead, storm, `
pid = os.fork()
if pid == 0:
    call(SYS_ptrace, 0, 0, 0, 0)
    os.kill(os.getpid(), signal.SIGSTOP)
os.waitpid(pid, 0)
holds("")`} {
			hold(t, s, "0:0", text)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := s.Pause(ctx)
		w.goesOn(t)
		if err == nil {
			err = s.Resume(ctx)
		}
		proctest.Must(t, err)
		if got := says(t, s, "0:0", `print("on")`); got != "on" {
			t.Errorf("after the pause the sandbox says %q", got)
		}
	}},
	{"changes its files while they are copied", true, func(t *testing.T, w *world) {
		s := w.sandbox(t)
		for range 2 {
			hold(t, s, "0:0", `
top = "/tmp/%d" % os.getpid()
os.makedirs(top + "/a/b/c")
with open(top + "/sparse", "wb") as f:
    for at in range(1, 1000): f.seek(at << 30); f.write(b"x")
print("holds", flush=True)
n = 0
while True:
    n += 1
    for do in (lambda: os.rename(top + "/a", top + "/z"), lambda: os.symlink("/etc", top + "/a"), lambda: os.unlink(top + "/a"),
        lambda: os.rename(top + "/z", top + "/a"),
               lambda: os.mkfifo(top + "/a/b/f"), lambda: os.rename(top + "/a/b/f",
                   top + "/a/b/c/%d" % (n % 50)), lambda: os.truncate(top + "/a/b/c/%d" % (n % 50), 1 << 40),
               lambda: os.link(top + "/a/b/c/%d" % (n % 50), top + "/a/l%d" % (n % 50)), lambda: os.chmod(top + "/a",
                   n % 512), lambda: os.setxattr(top + "/a", "user.overlay.opaque", b"y")): tried(do)`)
		}
		copies, err := s.Fork(t.Context(), 1)
		proctest.Must(t, err)
		for _, c := range copies {
			if got := says(t, c, "0:0", `print("on", os.path.isdir("/etc"))`); got != "on True" {
				t.Errorf("a copy says %q", got)
			}
			proctest.Must(t, c.Destroy(t.Context()))
		}
	}},
	{"takes the names of tend's own processes while the keeper dies", false, func(t *testing.T, w *world) {
		s := w.sandbox(t)
		keeper := "tend-keeper\x00keeper\x00--state-dir\x00" + w.StateDir() + "\x00"
		var held []process.Process
		for _, name := range []string{"tend-zygote", "tend-sandbox", "tend-networked", ") Z 1 1 1 ("} {
			p, _ := hold(t, s, "0:0", `
libc.prctl(15, `+pyBytes(name)+`)
path = ctypes.create_string_buffer(`+pyBytes(keeper)+`)
libc.prctl(35, 8, path, 0, 0) # PR_SET_MM_ARG_START
for _ in range(20): call(SYS_clone, 0x8000, 0, 0, 0, 0) or os._exit(0) # children of the keeper that has died soon
holds("")`)
			held = append(held, p)
		}
		proctest.Must(t, w.Replace(t.Context(), testdaemon.Keeper))
		w.roles = w.Roles()
		for _, p := range held {
			if in := proctest.Info(t, p); in.Exit != nil {
				t.Errorf("%s has ended with %+v", p.ID(), in.Exit)
			}
			proctest.Kill(t, p)
		}
		if errs := starts(t, s, 8, process.Spec{Argv: []string{"true"}}); len(errs) > 0 {
			t.Error(errs)
		}
	}},
	{"leaves orphans with the marks of its neighbour's programs", false, func(t *testing.T, w *world) {
		s := w.sandbox(t)
		hold(t, s, "0:0", `
for i in range(150):
    if os.fork() == 0:
        if os.fork() == 0:
            os.setsid()
            tried(lambda: resource.setrlimit(15, (1 << 62 | i << 27 | 1, resource.RLIM_INFINITY)))
            time.sleep(1000)
        os._exit(0)
holds("")`)
		var p []process.Process
		for range 3 {
			p = append(p, proctest.Start(t, programs(t, w.neighbour), process.Spec{Shell: "(setsid sleep 1000 &); exec sleep 1000"}))
		}
		for _, p := range p {
			if res, err := p.Kill(t.Context()); err != nil || len(res.Survivors) > 0 {
				t.Errorf("%+v, %v", res, err)
			}
		}
	}},
	{"is resized, signalled, killed and removed by its owner at once, in the middle of a storm", false, func(t *testing.T, w *world) {
		s := w.sandbox(t)
		p, _ := hold(t, s, "0:0", storm)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		var mu sync.Mutex
		var errs []error
		for _, do := range []func() error{
			func() error { return p.Signal(ctx, int(unix.SIGCONT), process.ScopeTree) },
			func() error { return p.Signal(ctx, int(unix.SIGSTOP), process.ScopeGroup) },
			func() error { _, err := p.Kill(ctx); return err },
			func() error { return s.Stop(ctx) },
			func() error { return s.Destroy(ctx) },
		} {
			wg.Go(func() {
				err := do()
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			})
		}
		wg.Wait()
		if ctx.Err() != nil || slices.ContainsFunc(errs, func(err error) bool { return errors.Is(err, process.ErrUnavailable) }) {
			t.Errorf("%v: %v", ctx.Err(), errors.Join(errs...))
		}
	}},
}

// entering are attempts on programs that are on their way inside. They share memory with the keeper until they are executed.
var entering = []attempt{
	{"looks into what enters, and takes its descriptors", false, func(t *testing.T, w *world) {
		s := w.sandbox(t)
		spy, _ := hold(t, s, "0:0", `
won, me, stop = set(), os.getpid(), []
threading.Thread(target=lambda: stop.append(sys.stdin.read())).start()
buffer = ctypes.create_string_buffer(4096)
print("holds", flush=True)
while not stop:
    for pid in os.listdir("/proc"):
        if not pid.isdigit() or int(pid) in (1, me): continue
        top = "/proc/" + pid
        exe = tried(lambda: os.readlink(top + "/exe"))
        if exe[0] == "/" and "tend" in exe: won.add("exe " + exe)
        for name in ("cwd", "root"):
            to = tried(lambda: os.readlink(top + "/" + name))
            if to[0] == "/" and to not in ("/", "/root", "/home/user", "/tmp"): won.add(name + " " + to)
        for fd in tried(lambda: os.listdir(top + "/fd")) if isinstance(tried(lambda: os.listdir(top + "/fd")), list) else []:
            to = tried(lambda: os.readlink(top + "/fd/" + fd))
            if "memfd" in to or "eventfd" in to or "eventpoll" in to or "/spool" in to: won.add("fd " + to)
        for line in (lambda maps: maps if isinstance(maps, list) else [])(tried(lambda: open(top + "/maps").readlines())):
            if "tend" in line: won.add("maps " + line)
        pidfd = call(SYS_pidfd_open, int(pid), 0)
        if isinstance(pidfd, int):
            for fd in range(3, 12):
                got = call(SYS_pidfd_getfd, pidfd, fd, 0)
                if isinstance(got, int):
                    to = os.readlink("/proc/self/fd/%d" % got)
                    if "/usr" not in to and "/lib" not in to and "pipe" not in to and "/etc" not in to: won.add("getfd " + to)
                    os.close(got)
            os.close(pidfd)
    for p in stop: break
print(sorted(won))`)
		starts(t, s, 60, process.Spec{Argv: []string{"true"}})
		proctest.Start(t, programs(t, s), process.Spec{Argv: []string{"true"}, PTY: &process.Size{Cols: 80, Rows: 24}})
		if got := end(t, spy); !strings.HasSuffix(got, "[]\n") {
			t.Errorf("it sees %s", got)
		}
	}},
	{"stops, slows down and limits what enters", false, func(t *testing.T, w *world) {
		s := w.sandbox(t)
		spoiler, _ := hold(t, s, "0:0", `
me, stop = os.getpid(), []
threading.Thread(target=lambda: stop.append(sys.stdin.read())).start()
print("holds", flush=True)
none = (ctypes.c_long * 2)(0, 0)
while not stop:
    for pid in os.listdir("/proc"):
        if not pid.isdigit() or int(pid) in (1, me): continue
        pid = int(pid)
        for limit in (1, 2, 3, 7, 9): call(SYS_prlimit64, pid, limit, none, 0)
        tried(lambda: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0)))
        tried(lambda: os.sched_setaffinity(pid, [0]))
        tried(lambda: os.setpgid(pid, me))`)
		starts(t, s, 40, process.Spec{Argv: []string{"true"}})
		w.goesOn(t)
		end(t, spoiler)
		if errs := starts(t, s, 4, process.Spec{Argv: []string{"true"}}); len(errs) > 0 {
			t.Errorf("when it has ended: %v", errs)
		}
	}},
	{"is a program that does not come to be one: endless interpreters, FIFOs, no rights", false, func(t *testing.T, w *world) {
		s := w.sandbox(t)
		says(t, s, "0:0", `
for i in range(8): open("/tmp/loop%d" % i, "w").write("#!/tmp/loop%d\n" % ((i + 1) % 8)); os.chmod("/tmp/loop%d" % i, 0o755)
os.mkfifo("/tmp/fifo"); os.chmod("/tmp/fifo", 0o755)
open("/tmp/long", "w").write("#!" + "/" * 5000); os.chmod("/tmp/long", 0o755)
open("/tmp/elf", "wb").write(b"\x7fELF" + b"\xff" * 4096); os.chmod("/tmp/elf", 0o755)
os.truncate("/tmp/elf", 1 << 40)
os.symlink("/proc/self/exe", "/tmp/self")
os.symlink("/proc/1/exe", "/tmp/first")`)
		for _, path := range []string{"/tmp/loop0", "/tmp/fifo", "/tmp/long", "/tmp/elf", "/tmp/self", "/tmp/first", "/proc/self/fd/3",
			"/proc/self/map_files"} {
			c := programs(t, s)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			p, err := c.Start(ctx, process.Spec{Argv: []string{path}})
			if err == nil { // /proc/self/exe may be something
				_, err = p.Kill(ctx)
			}
			if ctx.Err() != nil {
				t.Errorf("%s: %v", path, err)
			}
			cancel()
		}
	}},
}

// pyBytes is a literal of Python.
func pyBytes(s string) string {
	const hex = "0123456789abcdef"
	b := []byte(`b"`)
	for i := range len(s) {
		b = append(b, '\\', 'x', hex[s[i]>>4], hex[s[i]&15])
	}
	return string(append(b, '"'))
}
