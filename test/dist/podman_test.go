//go:build linux && tend_dist

package dist

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

// pure holds a mount namespace in which cgroup v2 is all there is: crun refuses a machine
// that has both.
const pure = `set -e
mkdir -p "$1"
echo $$ >"$1/cgroup.procs"
exec unshare --cgroup sh -c '
mount --make-rprivate /
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t proc proc /proc
exec sleep infinity'`

// TestPodmanRunsTheImage: nothing is pulled, as the image is from scratch.
func TestPodmanRunsTheImage(t *testing.T) {
	image := build(t, "v0.1.0", "image")
	dir := t.TempDir()
	r := enter(t, pure, cgroup(t))
	podman := func(args ...string) string {
		t.Helper()
		return strings.TrimSpace(r.run(append([]string{"podman", "--root", filepath.Join(dir, "root"), "--runroot", filepath.Join(dir, "run"), "--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--events-backend", "file"}, args...)...))
	}
	run := func(args ...string) string {
		t.Helper()
		return podman(append([]string{"run", "--network", "none", "--cgroups", "disabled", "--ulimit", "nofile=1024:4096", "--ulimit", "nproc=1024:4096"}, args...)...)
	}
	t.Cleanup(func() { podman("rm", "-af") })
	podman("load", "-q", "-i", image.file(".oci.tar"))
	const name = "localhost/tend:v0.1.0"
	if out := run("--rm", name, "version"); !strings.HasPrefix(out, "tend v0.1.0") {
		t.Errorf("tend version in a container says %s", out)
	}
	id := run("-d", name)
	proctest.Eventually(t, "the daemon serves", func() bool {
		_, err := r.try("podman", "--root", filepath.Join(dir, "root"), "--runroot", filepath.Join(dir, "run"), "--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--events-backend", "file", "exec", id, "tend", "status")
		return err == nil
	})
	if out := podman("exec", id, "tend", "run", "--", "/usr/bin/tend", "version"); !strings.HasPrefix(out, "tend v0.1.0") {
		t.Errorf("tend run in a container says %s", out)
	}
	podman("stop", "-t", "60", id)
	if out := podman("inspect", id, "--format", "{{.State.ExitCode}}"); out != "0" {
		t.Errorf("a container that is stopped ends with %s", out)
	}
}
