//go:build linux

package dist

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

// root is a root directory with a pid namespace of its own. All of it ends with the test.
type root struct {
	t        *testing.T
	searched string // PATH of what runs in it; empty: without /usr/local
	pid      int    // of its first process, as we see it
}

// overlay makes a root that has the machine's files, and in which all can be changed. The
// mounts are those of a mount namespace that nobody else has.
const overlay = `set -e
mount --make-rprivate /
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
cd "$1/root"
rm -rf var/lib/tend etc/default/tend usr/lib/tend
for d in run tmp var/lib/dpkg; do mount -t tmpfs tmpfs "$d"; done
mkdir var/lib/dpkg/info var/lib/dpkg/updates
touch var/lib/dpkg/status
mount --rbind /dev dev
mount --rbind /sys sys
mount -t proc proc proc
shift
[ $# -gt 0 ] || set -- sleep infinity
exec chroot . "$@"`

// enter runs a script as the first process of a new root. The script ends by becoming
// what holds the root; its output goes to a log.
func enter(t *testing.T, script string, args ...string) *root {
	t.Helper()
	return enterWith(t, nil, script, args...)
}

// enterWith is enter with more flags of unshare.
func enterWith(t *testing.T, flags []string, script string, args ...string) *root {
	t.Helper()
	proctest.Root(t)
	var log bytes.Buffer
	cmd := exec.Command("unshare", slices.Concat(flags, []string{"--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "sh", "-c", script, "sh"}, args)...)
	cmd.Stdout, cmd.Stderr = &log, &log
	proctest.Must(t, cmd.Start())
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	r := &root{t: t}
	t.Cleanup(func() {
		// A daemon that has become its launcher does not end with its parent: the exec came
		// from a thread for which nobody has asked that.
		if r.pid > 0 {
			syscall.Kill(r.pid, syscall.SIGKILL)
		}
		cmd.Process.Kill()
		<-ended
		if t.Failed() {
			t.Logf("the root says: %s", log.String())
		}
	})
	proctest.Eventually(t, "the root is there", func() bool {
		select {
		case <-ended:
			t.Fatalf("no root can be made: %s", log.String())
		default:
		}
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", cmd.Process.Pid))
		r.pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
		held, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", r.pid))
		// What chroot has not come to yet would be the machine's own root.
		return !slices.Contains([]string{"", "unshare\n", "sh\n", "chroot\n"}, string(held))
	})
	return r
}

// try runs a command in the root, and returns its output and error.
func (r *root) try(args ...string) (string, error) {
	cmd := exec.Command("nsenter", append([]string{"-t", strconv.Itoa(r.pid), "--mount", "--pid", "--uts", "--ipc", "--net", "--cgroup", "--root", "--wdns=/", "--"}, args...)...)
	// As on a machine that nobody has set anything for; and what it starts is not to inherit
	// a pipe that is waited for.
	cmd.Env = []string{"PATH=" + cmp.Or(r.searched, "/usr/sbin:/usr/bin:/sbin:/bin"), "HOME=/root", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C"}
	out := proctest.Value(os.CreateTemp(r.t.TempDir(), "out"))(r.t)
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	err := cmd.Run()
	return string(proctest.Value(os.ReadFile(out.Name()))(r.t)), err
}

// run is try for what must succeed.
func (r *root) run(args ...string) string {
	r.t.Helper()
	out, err := r.try(args...)
	if err != nil {
		r.t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// proc0 is a file of /proc about the first process of the root.
func (r *root) proc0(name string) string { return fmt.Sprintf("/proc/%d/%s", r.pid, name) }

// path is that of a file of the root, for us.
func (r *root) path(name string) string {
	return filepath.Join(fmt.Sprintf("/proc/%d/root", r.pid), name)
}

// has reports whether a path is there.
func (r *root) has(name string) bool {
	_, err := os.Lstat(r.path(name))
	return err == nil
}

// put copies a file into the root.
func (r *root) put(from, to string) {
	r.t.Helper()
	proctest.Must(r.t, os.WriteFile(r.path(to), proctest.Value(os.ReadFile(from))(r.t), 0o644))
}
