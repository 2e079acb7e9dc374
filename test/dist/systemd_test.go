//go:build linux && tend_dist

package dist

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/tend-run/tend/internal/support/debian"
	"github.com/tend-run/tend/internal/support/proctest"
)

// boot has systemd as the first process of a root, in a cgroup and a network of its own.
const boot = `set -e
mkdir -p "$2"
echo $$ >"$2/cgroup.procs"
exec unshare --cgroup --net sh -c '
set -e
mount --make-rprivate /
cd "$1"
mount --bind . .
cd "$1"
mount -t proc proc proc
mount -t tmpfs -o mode=755 tmpfs sys
mkdir -p sys/fs/cgroup
mount -t cgroup2 cgroup2 sys/fs/cgroup
for d in run tmp; do mount -t tmpfs tmpfs "$d"; done
mount -t tmpfs -o mode=755 tmpfs dev
for n in null zero full random urandom tty; do touch "dev/$n"; mount --bind "/dev/$n" "dev/$n"; done
mkdir dev/pts dev/shm .old
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
mount -t tmpfs tmpfs dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
pivot_root . .old
umount -l /.old
rmdir /.old
exec env -i container=tend PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --log-target=console --log-level=warning </dev/null' sh "$1"`

// cgroup is the path of one that is the test's own; it is made by who uses it, and removed.
func cgroup(t *testing.T) string {
	t.Helper()
	group := ""
	for line := range strings.Lines(string(proctest.Value(os.ReadFile("/proc/self/mounts"))(t))) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "cgroup2" {
			group = filepath.Join(f[1], fmt.Sprintf("tend-dist-%d-%d", os.Getpid(), groups.Add(1)))
			break
		}
	}
	if group == "" {
		t.Fatal("this machine has no cgroup2 mount")
	}
	t.Cleanup(func() {
		proctest.Eventually(t, "the group is empty", func() bool {
			exec.Command("find", group, "-depth", "-type", "d", "-exec", "rmdir", "{}", ";").Run()
			_, err := os.Stat(group)
			return err != nil
		})
	})
	return group
}

// groups counts those of this run.
var groups atomic.Int32

// machine boots a root, and waits until it has.
func machine(t *testing.T, dir string) *root {
	t.Helper()
	r := enter(t, boot, dir, cgroup(t))
	proctest.Eventually(t, "systemd has come up", func() bool {
		out, _ := r.try("systemctl", "is-system-running")
		return out == "running\n" || out == "degraded\n"
	})
	return r
}

// TestTheServiceLosesNothing is the life of the package in a fresh Debian with systemd.
func TestTheServiceLosesNothing(t *testing.T) {
	old, next := build(t, "v0.1.0", "deb"), build(t, "v0.2.0", "deb")
	dir := debian.Root(t, "", "systemd")
	r := machine(t, dir)
	r.put(old.file(".deb"), "/root/old.deb")
	r.put(next.file(".deb"), "/root/next.deb")
	r.run("apt-get", "install", "-qq", "-y", "/root/old.deb")
	for _, unit := range []string{"tend.service", "tend.socket"} {
		if out, _ := r.try("systemctl", "is-active", unit); out != "active\n" {
			t.Fatalf("after apt install, %s is %s", unit, out)
		}
		out, err := r.try("systemd-analyze", "verify", "--man=no", "/usr/lib/systemd/system/"+unit)
		// One that is older than 254 has no groups for the roles, and says so.
		if out = dropLines(out, "DelegateSubgroup"); err != nil || out != "" {
			t.Errorf("systemd-analyze verify %s: %v, %s", unit, err, out)
		}
	}
	r.run("tend", "run", "-d", "-i", "--name", "counts", "--", "sh", "-c", `trap 'echo bye; exit 3' TERM; while read -r line; do echo "got $line"; done`)
	before, lines := r.proc("counts"), ""
	// still has the process go on: the same one, with all that it has written.
	still := func(what string) {
		t.Helper()
		r.run("tend", "input", "counts", what)
		r.run("tend", "wait", "counts", "--until", "match=got "+what)
		lines += "got " + what + "\n"
		if out := r.run("tend", "logs", "counts"); out != lines {
			t.Errorf("%s: the output is %q; want %q", what, out, lines)
		}
		if now := r.proc("counts"); now != before {
			t.Errorf("%s: the process was %+v, and is %+v", what, before, now)
		}
	}
	pid := func() string { return r.run("systemctl", "show", "-P", "MainPID", "tend.service") }
	still("installed")
	launcher := pid()
	r.run("systemctl", "restart", "tend.service")
	if pid() == launcher {
		t.Error("a restart has left the launcher as it was")
	}
	still("restarted")
	launcher = pid()
	r.run("systemctl", "kill", "--signal=KILL", "--kill-who=main", "tend.service")
	proctest.Eventually(t, "systemd starts a launcher again", func() bool {
		out, _ := r.try("systemctl", "is-active", "tend.service")
		return out == "active\n" && pid() != launcher
	})
	still("launcher-killed")
	r.run("systemctl", "restart", "tend.socket", "tend.service")
	still("sockets-anew")
	r.run("apt-get", "install", "-qq", "-y", "/root/next.deb")
	if out := r.run("tend", "status"); !strings.Contains(out, next.version) {
		t.Errorf("the service is not the one that was installed:\n%s", out)
	}
	still("upgraded")

	// What nobody may do is done by no process: the bounding set of the unit holds.
	if out := r.run("tend", "run", "--", "sh", "-c", "grep CapBnd /proc/self/status"); strings.Contains(out, "1ffffffffff") {
		t.Errorf("processes have all capabilities: %s", out)
	}

	r.run("systemctl", "stop", "tend.service")
	proctest.Eventually(t, "after a stop, service and socket are inactive", func() bool {
		out, _ := r.try("systemctl", "is-active", "tend.service", "tend.socket")
		return out == "inactive\ninactive\n"
	})
	if out, _ := r.try("sh", "-c", "cat /proc/[0-9]*/comm | grep '^tend'"); out != "" {
		t.Errorf("a stop leaves %s", out)
	}
	// It stays stopped until somebody starts it.
	if out, err := r.try("tend", "ps"); err == nil {
		t.Errorf("a caller has started it: %s", out)
	}
	r.run("systemctl", "start", "tend.service")
	lines += "bye\n"
	if out := r.run("tend", "logs", "counts"); out != lines {
		t.Errorf("after a stop the output is %q; want %q", out, lines)
	}
	if _, err := r.try("tend", "wait", "counts"); status(err) != 3 {
		t.Errorf("after a stop the process ended with %v; want 3", err)
	}

	// A machine that goes down ends processes in good order, too.
	r.run("tend", "run", "-d", "--name", "shut", "--", "sh", "-c", `trap 'echo down; exit 4' TERM; while :; do sleep 0.1; done`)
	r.try("systemctl", "--no-block", "poweroff")
	proctest.Eventually(t, "the machine goes down", func() bool { return syscall.Kill(r.pid, 0) != nil || !r.has("/") })
	r = machine(t, dir)
	if _, err := r.try("tend", "wait", "shut"); status(err) != 4 {
		t.Errorf("with the machine, the process ended with %v; want 4", err)
	}
	if out := r.run("tend", "logs", "shut"); !strings.HasSuffix(out, "down\n") {
		t.Errorf("with the machine, its last output is %q", out)
	}

	r.run("tend", "run", "-d", "--name", "left", "--", "sleep", "1000")
	if out := r.run("apt-get", "remove", "-qq", "-y", "tend"); !strings.Contains(out, "left") {
		t.Errorf("a removal does not say what runs: %s", out)
	}
	if out, _ := r.try("sh", "-c", "cat /proc/[0-9]*/comm | grep -e '^tend-' -e '^sleep'; systemctl is-active tend.socket"); out != "inactive\n" {
		t.Errorf("a removal leaves %s", out)
	}
	r.put(next.file(".deb"), "/root/next.deb")
	r.run("apt-get", "install", "-qq", "-y", "/root/next.deb")
	if out := r.run("tend", "ps", "-a"); !strings.Contains(out, "left") || !strings.Contains(out, "counts") {
		t.Errorf("after another installation, what was before is not known:\n%s", out)
	}
	r.run("apt-get", "purge", "-qq", "-y", "tend")
	for _, path := range []string{"/var/lib/tend", "/etc/default/tend", "/run/tend", "/etc/systemd/system/sockets.target.wants/tend.socket", "/etc/systemd/system/multi-user.target.wants/tend.service", "/etc/systemd/system/tend.service"} {
		if r.has(path) {
			t.Errorf("a purge leaves %s", path)
		}
	}

	// tend startup is for a program that no package has installed.
	r.put(proctest.Value(filepath.Abs("../../bin/tend"))(t), "/usr/local/bin/tend")
	r.run("chmod", "755", "/usr/local/bin/tend")
	r.run("groupadd", "--system", "ops")
	r.run("/usr/local/bin/tend", "startup", "--group", "ops")
	r.run("sh", "-c", "mkdir -p /srv/app; printf 'services:\n  web: {command: sleep 1000}\n' > /srv/app/tend.yaml; cd /srv/app; /usr/local/bin/tend up -d")
	nobody := []string{"setpriv", "--reuid", "65534", "--regid", "65534"}
	as := func(groups ...string) (string, error) {
		args := append(append(nobody[:len(nobody):len(nobody)], groups...), "/usr/local/bin/tend", "--url", "unix:///run/tend/tend.sock", "services")
		return r.try(args...)
	}
	if out, err := as("--groups", "ops"); err != nil || !strings.Contains(out, "web") {
		t.Errorf("a member of the group is told %q: %v", out, err)
	}
	if out, err := as("--clear-groups"); err == nil {
		t.Errorf("who is no member is told %q", out)
	}
	r.try("systemctl", "--no-block", "poweroff")
	proctest.Eventually(t, "the machine goes down again", func() bool { return syscall.Kill(r.pid, 0) != nil || !r.has("/") })
	r = machine(t, dir)
	proctest.Eventually(t, "the service comes back with the machine", func() bool {
		out, _ := r.try("/usr/local/bin/tend", "services")
		return strings.Contains(out, "web") && strings.Contains(out, "ready")
	})
	r.run("/usr/local/bin/tend", "startup", "--remove")
	if out, _ := r.try("sh", "-c", "ls -d /etc/systemd/system/tend* /etc/systemd/system/*.wants/tend* 2>/dev/null; cat /proc/[0-9]*/comm | grep -e '^tend-'"); out != "" {
		t.Errorf("tend startup --remove leaves %s", out)
	}
}

// status is that of a command which ended with one, else -1.
func status(err error) int {
	if e, ok := err.(*exec.ExitError); ok {
		return e.ExitCode()
	}
	return -1
}

func dropLines(text, with string) (kept string) {
	for line := range strings.Lines(text) {
		if !strings.Contains(line, with) {
			kept += line
		}
	}
	return kept
}
