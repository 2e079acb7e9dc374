//go:build linux

package inside

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/support/proctest"
)

// kernel are attempts that one program makes and reports.
func kernel() (all []attempt) {
	for _, a := range []struct {
		name, user, text, want string
		root                   bool
	}{
		{"opens each of the machine's files below /proc for writing", "0:0", `
won = []
for dir, below, names in os.walk("/proc"):
    if dir == "/proc": below[:] = [b for b in below if not b.isdigit() and b not in ("self", "thread-self")]
    for name in names:
        path = dir + "/" + name
        if os.path.islink(path): continue
        fd = tried(lambda: os.open(path, os.O_WRONLY | os.O_NONBLOCK))
        if isinstance(fd, int):
            if os.fstat(fd).st_rdev != os.makedev(1, 3): won.append(path) # not /dev/null
            os.close(fd)
print(won)`, "[]", false},
		{"gives itself a higher priority, or one of real time", "0:0", `
print([tried(lambda: os.nice(-5)), tried(lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))),
    tried(lambda: os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))),
    call(SYS_ioprio_set, 1, 0, 1 << 13)])`, "['EPERM', 'EPERM', 'EPERM', 'EPERM']", false},
		{"raises the limits that the machine has set it", "0:0", `
won = []
for r in range(16):
    soft, hard = resource.getrlimit(r)
    if r == resource.RLIMIT_CORE or hard == resource.RLIM_INFINITY: continue
    try:
        resource.setrlimit(r, (soft, hard + 1))
        won.append(r)
    except (OSError, ValueError): pass
print(won)`, "[]", false},
		{"keeps the kernel from ending it when memory is short", "0:0", `
def never():
    with open("/proc/self/oom_score_adj", "w") as f: f.write("-1000")
print(tried(never))`, "EACCES", false},
		{"makes or enters namespaces by each call and flag", "0:0", `
flags = [0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000]
got = {call(SYS_unshare, f) for f in flags + [0x80]} | {call(SYS_clone, f | 17, 0, 0, 0, 0) for f in flags} | {call(SYS_clone,
    f | 17 | 1 << 40, 0, 0, 0, 0) for f in flags}
got |= {call(SYS_setns, call(SYS_pidfd_open, os.getpid(), 0), f) for f in flags + [0x80]}
print(got)`, "{'EPERM'}", false},
		{"sets the machine's clock", "0:0", `
z, set = (ctypes.c_long * 40)(), (ctypes.c_long * 40)(1)
print({call(SYS_clock_settime, 0, z), call(SYS_settimeofday, z, 0), call(SYS_adjtimex, set), call(SYS_clock_adjtime, 0, set)},
    [d for d in os.listdir("/dev") if "rtc" in d])`, "{'EPERM'} []", false},
		{"has the machine's handler of core dumps run, by a limit in the upper half of a register", "0:0", `
z = (ctypes.c_long * 2)(0, 0)
for number, args in ((SYS_setrlimit, (4 | 1 << 32, z)), (SYS_prlimit64, (0, 4 | 1 << 32, z, 0)), (SYS_prlimit64, (os.getpid(),
    4 | 7 << 40, z, 0))): call(number, *args)
print(resource.getrlimit(resource.RLIMIT_CORE))`, "(1, 1)", false},
		{"opens sockets of families for which the kernel loads modules", "0:0", `
got = set()
for family in set(range(1, 60)) - {1, 2, 10, 16}:
    for kind in range(1, 6): got.add(call(SYS_socket, family, kind, 0))
    got.add(call(SYS_socketpair, family, 1, 0, (ctypes.c_int * 2)()))
print(got)`, "{'EAFNOSUPPORT'}", false},
		{"opens sockets of protocols for which the kernel loads modules", "0:0", `
print({call(SYS_socket, family, kind, p) for family in (2, 10) for kind, p in ((1, 132), (5, 132), (5, 33), (6, 33), (2, 136), (2,
    115), (1, 256))})`, "{'EPROTONOSUPPORT'}", false},
		{"opens sockets of kinds and of netlink's protocols for which the kernel loads modules", "0:0", `
print({call(SYS_socket, family, kind | flags, 0) for family in (2, 10) for kind in range(4, 16) for flags in (0, 0x80800)},
    [p for p in range(-1, 64) if call(SYS_socket, 16, 3, p) != "EPROTONOSUPPORT"])`, "{'ESOCKTNOSUPPORT'} [0, 4, 9, 15]", false},
		{"has the kernel load modules by questions about bridges, VLANs and terminals", "0:0", `
import pty
s, terminal, text = socket.socket(), pty.openpty()[1], ctypes.create_string_buffer(256)
def ioctl(fd, request): return errno.errorcode[ctypes.get_errno()] if libc.ioctl(fd, ctypes.c_ulong(request), text) < 0 else "done"
print({ioctl(s.fileno(), request | high) for request in (0x8940, 0x8941, 0x89a0, 0x89a1, 0x8982, 0x8983) for high in (0, 1 << 32)},
    {ioctl(terminal, 0x5423 | high) for high in (0, 1 << 40)})`, "{'ENOPKG'} {'EINVAL'}", false},
		{"puts bytes into a terminal's input by an argument whose upper half is set", "0:0", `
import pty
master, slave = pty.openpty()
os.setsid()
fcntl.ioctl(slave, 0x540e, 0) # TIOCSCTTY
libc.ioctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_char_p]
print([errno.errorcode[ctypes.get_errno()] if libc.ioctl(slave, request, b"x") < 0 else "done" for request in (0x5412,
    0x5412 | 1 << 32, 0x541c | 1 << 63)])`, "['EPERM', 'EPERM', 'EPERM']", false},
		{"inherits more than its streams, by way of a zygote too", "0:0", `
print([(fd,
    os.readlink("/proc/self/fd/" + fd).split(":")[0])
    for fd in sorted(os.listdir("/proc/self/fd")) if int(fd) < 3 or os.path.exists("/proc/self/fd/" + fd)])`,
			"[('0', '/dev/null'), ('1', 'pipe'), ('2', 'pipe')]", false},
		{"has capabilities, or may get some by an exec", "1000:1000", `
print([l.split()[1] for l in open("/proc/self/status") if l.startswith(("CapEff", "CapPrm", "CapInh", "CapAmb"))],
    [l.split()[1] for l in open("/proc/self/status") if l.startswith(("NoNewPrivs", "Seccomp:"))])`,
			"['0000000000000000', '0000000000000000', '0000000000000000', '0000000000000000'] ['1', '2']", false},
	} {
		all = append(all, attempt{a.name, a.root, func(t *testing.T, w *world) {
			s := w.sandbox(t)
			for range 2 { // the second one is a zygote's child
				if got := says(t, s, a.user, a.text); got != a.want {
					t.Errorf("it gets %s; want %s", got, a.want)
				}
			}
		}})
	}
	return append(all,
		attempt{"finds paths of the machine in what /proc says of its mounts", false, func(t *testing.T, w *world) {
			got := says(t, w.sandbox(t), "0:0", `
for name in ("mountinfo", "mounts", "mountstats", "maps", "cgroup", "environ", "cmdline"):
    for pid in ("1", "self"): print(tried(lambda: open("/proc/%s/%s" % (pid, name)).read()))`)
			if strings.Contains(got, w.StateDir()) || strings.Contains(got, w.Dir()) {
				t.Errorf("it finds %s", got)
			}
		}},
		attempt{"sees locks, sockets and shared memory of its neighbour", false, func(t *testing.T, w *world) {
			p, _ := hold(t, w.neighbour, "0:0", `
f = open("/tmp/locked", "w")
fcntl.flock(f, fcntl.LOCK_EX)
import struct
fcntl.fcntl(f, 37, struct.pack("hh4xqqi4x", 1, 0, 0, 0, 0)) # F_OFD_SETLK
s = socket.socket(socket.AF_UNIX)
s.bind("\0of-the-neighbour")
libc.shmget(0x7e4d, 4096, 0o1666)
holds("")`)
			got := says(t, w.sandbox(t), "0:0", `
print([l.split()[1] for l in open("/proc/locks")], [l.split()[-1] for l in open("/proc/net/unix") if "neighbour" in l],
    len(open("/proc/sysvipc/shm").readlines()), libc.shmget(0x7e4d, 4096, 0))`)
			if want := "[] [] 1 -1"; got != want {
				t.Errorf("it sees %s; want %s", got, want)
			}
			proctest.Kill(t, p)
		}},
		attempt{"slows down all that have its id outside", false, func(t *testing.T, w *world) {
			says(t, w.sandbox(t), "0:0", `
tried(lambda: os.setpriority(os.PRIO_USER, 0, 19))
call(SYS_ioprio_set, 3, 0, 3 << 13)
tried(lambda: os.setpriority(os.PRIO_PGRP, 0, 19))`)
			// Its neighbour knows the pid of its own program.
			got := says(t, w.neighbour, "0:0", fmt.Sprintf(`print(os.getpriority(os.PRIO_PROCESS, %d), libc.syscall(%d, 1, %[1]d) >> 13)`,
				proctest.Info(t, w.standing).PID, unix.SYS_IOPRIO_GET))
			if got != "0 0" {
				t.Errorf("the neighbour's program has the priorities %s; want 0 0", got)
			}
		}},
	)
}
