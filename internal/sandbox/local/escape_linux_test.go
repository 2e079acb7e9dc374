package local

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/drivertest"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// inShell runs a line in a sandbox and returns all it wrote, and its shell status.
func inShell(t *testing.T, s driver.Sandbox, user, line string) (string, int) {
	t.Helper()
	p := proctest.Start(t, s.Processes(), process.Spec{User: user, Shell: "exec 2>&1; " + line})
	res := proctest.Wait(t, p, process.Until{EOF: true})
	return strings.TrimSpace(proctest.Output(t, p, process.Stdout)), res.Exit.ShellStatus()
}

// call is a program that makes one system call and says how it ended.
func call(number int, args ...int) string {
	text := fmt.Sprint(number)
	for _, a := range args {
		text += fmt.Sprintf(", %d", a)
	}
	return `perl -e '$r = syscall(` + text + `); print $r < 0 ? $!+0 : "done"'`
}

// TestAProgramInsideCannotGetOut: root inside tries what a program does that wants
// out. Each line of docs/isolation.md that says "from" is here or in drivertest.
func TestAProgramInsideCannotGetOut(t *testing.T) {
	t.Parallel()
	cfg := real(t)
	d := openReal(t, cfg)
	s, _ := create(t, d, driver.Spec{Name: "attacker"})
	secret := filepath.Join(t.TempDir(), "secret")
	proctest.Must(t, os.WriteFile(secret, []byte("of the host"), 0o644))
	eperm, enosys := fmt.Sprint(int(unix.EPERM)), fmt.Sprint(int(unix.ENOSYS))
	l, err := net.Listen("unix", "@tend-escape-"+filepath.Base(t.TempDir())+fmt.Sprint(os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, c := range []struct{ what, layer, line, want string }{
		{"leaves its root by chroot", "mount", `perl -e 'mkdir "/x"; chroot "/x"; chdir "../" x 50; chroot "."; print -e "` + secret + `" ? "out" : "in"'`, "in"},
		{"leaves its root by pid 1", "mount", `ls /proc/1/root` + secret + ` >/dev/null 2>&1 && echo out || echo in`, "in"},
		{"leaves its root by the working directory of pid 1", "mount", `ls /proc/1/cwd` + secret + ` >/dev/null 2>&1 && echo out || echo in`, "in"},
		{"opens the descriptors of pid 1", "pid", `ls /proc/1/fd 2>/dev/null | wc -l; cat /proc/1/environ 2>/dev/null | wc -c`, "0\n0"},
		{"signals the machine", "pid", `kill -0 ` + fmt.Sprint(os.Getpid()) + ` 2>/dev/null && echo out || echo in; kill -0 ` + fmt.Sprint(os.Getppid()) + ` 2>/dev/null && echo out || echo in`, "in\nin"},
		{"traces the machine", "pid", call(unix.SYS_PTRACE, unix.PTRACE_SEIZE, os.Getpid(), 0, 0), fmt.Sprint(int(unix.ESRCH))},
		{"writes to cgroups of v1", "mount", `mkdir -p /cg1 && mount -t cgroup -o pids none /cg1 >/dev/null 2>&1 && echo done || echo no; ls -A /cg1 | wc -l`, "no\n0"},
		{"lifts its limits", "mount", `(echo max > /sys/fs/cgroup/pids.max) 2>/dev/null && echo done || echo no; ls -A /sys | wc -l`, "no\n0"},
		{"takes away the root that lies over the stage", "mount", `perl -e '$p = "/"; $r = syscall(` + fmt.Sprint(unix.SYS_UMOUNT2) + `, $p, 2); print $r < 0 ? $!+0 : "done"'; perl -e 'chroot "/"; chdir "/"; chdir "../" x 9; opendir D, "."; print grep({ $_ eq "usr" } readdir D) ? " in" : " out"'`, eperm + " in"},
		{"asks for keys", "seccomp", call(unix.SYS_ADD_KEY, 0, 0, 0, 0, 0) + `; ` + call(unix.SYS_REQUEST_KEY, 0, 0, 0, 0), eperm + eperm},
		{"sees the keys of others", "mount", `cat /proc/keys /proc/key-users 2>/dev/null | wc -c`, "0"},
		{"sees the daemon's own files", "mount", `ls -A ` + cfg.Dir + ` 2>/dev/null | wc -l`, "0"},
		{"mounts", "mount", `mount -t tmpfs none /mnt >/dev/null 2>&1 && echo done || echo no`, "no"},
		{"mounts the cgroups", "mount", `mkdir -p /cg && mount -t cgroup2 none /cg >/dev/null 2>&1 && echo done || echo no; ls /sys/fs/cgroup 2>/dev/null | wc -l`, "no\n0"},
		{"takes away what hides", "mount", `umount -l /proc >/dev/null 2>&1 || umount -l / >/dev/null 2>&1 && echo done || echo no`, "no"},
		{"writes to the machine's settings", "mount", `for f in /proc/sys/kernel/core_pattern /proc/sys/vm/drop_caches /proc/sysrq-trigger; do (echo 1 > $f) 2>/dev/null && echo $f; done; echo end`, "end"},
		{"makes a device", "mount", `mknod /tmp/disk b 8 0 2>/dev/null && echo made || echo no; mknod /tmp/mem c 1 1 2>/dev/null && echo made || echo no`, "no\nno"},
		{"finds a device", "mount", `for f in mem kmem port sda vda loop0 kvm fuse net/tun kmsg; do test -e /dev/$f && echo $f; done; echo end`, "end"},
		{"kills its pid 1", "pid", `kill -9 1; kill -TERM 1; test -d /proc/1 && echo lives`, "lives"},
		{"traces its pid 1", "pid", call(unix.SYS_PTRACE, unix.PTRACE_SEIZE, 1, 0, 0), eperm},
		{"reads the memory of its pid 1", "pid", `(dd if=/proc/1/mem of=/dev/null bs=1 count=1 2>&1) | grep -ci -e denied -e permitted`, "1"},
		{"changes its groups of users", "pid", `(echo "0 0 1" > /proc/self/uid_map) 2>/dev/null && echo done || echo no`, "no"},
		{"inherits descriptors", "pid", `ls -l /proc/self/fd | grep -c -e socket -e memfd -e anon_inode -e board`, "0"},
		{"has more capabilities than said", "pid", `grep CapBnd /proc/self/status | cut -f2`, fmt.Sprintf("%016x", uint64(keptCapabilities))},
		{"gets rights by a program", "", `grep NoNewPrivs /proc/self/status | cut -f2`, "1"},
		{"makes namespaces", "seccomp", `unshare -Ur true >/dev/null 2>&1 && echo done || echo no; ` + call(unix.SYS_UNSHARE, unix.CLONE_NEWUSER), "no\n" + eperm},
		{"enters namespaces", "seccomp", call(unix.SYS_SETNS, 0, 0), eperm},
		{"uses keyrings", "seccomp", call(unix.SYS_KEYCTL, 0, -3, 0), eperm},
		{"uses io_uring", "seccomp", call(unix.SYS_IO_URING_SETUP, 1, 0), eperm},
		{"uses bpf", "seccomp", call(unix.SYS_BPF, 0, 0, 0), eperm},
		{"uses perf", "seccomp", call(unix.SYS_PERF_EVENT_OPEN, 0, 0, -1, -1, 0), eperm},
		{"uses userfaultfd", "seccomp", call(unix.SYS_USERFAULTFD, 0), eperm},
		{"holds messages in netlink", "seccomp", call(unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_USERSOCK), fmt.Sprint(int(unix.EPROTONOSUPPORT))},
		{"asks the kernel for its routes", "", call(unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE) + `|grep -c .`, "1"},
		{"takes the machine's AIO", "seccomp", call(unix.SYS_IO_SETUP, 1, 0), enosys},
		{"has the machine's handler of core dumps run for a crash", "", `grep "core file" /proc/self/status /proc/self/limits | tr -s ' ' | cut -d' ' -f5,6`, "1 1"},
		{"has it run by a lower limit", "seccomp", `ulimit -c 0; ulimit -S -c 0; prlimit --core=0 --pid $$ 2>/dev/null; grep "core file" /proc/self/limits | tr -s ' ' | cut -d' ' -f5,6`, "1 1"},
		{"opens by handle", "seccomp", call(unix.SYS_OPEN_BY_HANDLE_AT, 0, 0, 0), eperm},
		{"loads modules", "seccomp", call(unix.SYS_DELETE_MODULE, 0, 0), eperm},
		{"reboots", "seccomp", call(unix.SYS_REBOOT, 0, 0, 0), eperm},
		{"makes children in other namespaces", "seccomp", call(unix.SYS_CLONE3, 0, 0), enosys},
		{"finds a socket by its abstract name", "network", `perl -MSocket -e 'socket(S, PF_UNIX, SOCK_STREAM, 0); connect(S, pack("S a*", AF_UNIX, "\0` + l.Addr().String()[1:] + `")) and print "out" or print "in"'`, "in"},
		{"finds the machine's network", "network", `grep -c . /proc/net/dev`, "3"}, // two of headings
	} {
		if c.layer != "" && drivertest.Lacks(t, d, c.layer) {
			continue
		}
		if out, _ := inShell(t, s, "", c.line); out != c.want {
			t.Errorf("a program that %s gets %q, want %q", c.what, out, c.want)
		}
	}
	// A program with root's bit is none.
	if out, _ := inShell(t, s, "", `cp /usr/bin/id /tmp/id && chmod 4755 /tmp/id && echo ok`); out != "ok" {
		t.Errorf("a copy: %q", out)
	}
	as := "1000"
	if testkeeper.IsRootless() {
		as = "0" // the only one
	}
	if out, _ := inShell(t, s, "1000:1000", `/tmp/id -u; grep CapEff /proc/self/status | cut -f2`); out != as+"\n0000000000000000" {
		t.Errorf("another user is %q", out)
	}
	// What a program sends to all that it can reach reaches those inside.
	other, _ := create(t, d, driver.Spec{})
	p := proctest.Start(t, other.Processes(), process.Spec{Shell: "sleep 600"})
	beside := proctest.Start(t, s.Processes(), process.Spec{Shell: "sleep 600"})
	inShell(t, s, "", `kill -9 -1`)
	if res := proctest.Wait(t, beside, process.Until{}); res.Exit == nil || res.Exit.Signal != int(unix.SIGKILL) {
		t.Errorf("the program beside it: %+v", res.Exit)
	}
	if in := proctest.Info(t, p); in.Exit != nil {
		t.Errorf("a program of another sandbox has ended: %+v", in.Exit)
	}
	if out, _ := inShell(t, s, "", `echo on`); out != "on" {
		t.Errorf("after it the sandbox says %q", out)
	}
}

// TestManySandboxesLeaveNothing: what each of them had is gone with it.
func TestManySandboxesLeaveNothing(t *testing.T) {
	t.Parallel()
	cfg := real(t)
	d := openReal(t, cfg)
	for i := range 50 {
		s, _ := create(t, d, driver.Spec{})
		if i%10 == 0 {
			proctest.Start(t, s.Processes(), process.Spec{Shell: "for i in 1 2 3 4 5 6 7 8; do setsid sleep 600 & done; sleep 600"})
		}
		proctest.Must(t, s.Destroy(t.Context()))
	}
	if left, err := cfg.Engine.List(t.Context()); err != nil || len(left) != 0 {
		t.Errorf("containers: %+v, %v", left, err)
	}
	d.sweep(t.Context(), time.Now())
	proctest.Must(t, d.empty(t.Context()))
	if left, err := os.ReadDir(d.trash()); err != nil || len(left) != 0 {
		t.Errorf("the trash holds %v, %v", left, err)
	}
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(mounts), cfg.Dir) {
		t.Errorf("mounts are left, %v", err)
	}
}
