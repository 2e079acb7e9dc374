//go:build linux && tend_dist

package dist

import (
	"strings"
	"testing"
)

// TestTheRPMLosesNothing installs it in a root of this machine's files, by rpm with a
// database of its own, upgrades it while a process runs, and erases it.
func TestTheRPMLosesNothing(t *testing.T) {
	old, next := build(t, "v0.1.0", "rpm"), build(t, "v0.2.0-rc1", "rpm")
	r := enter(t, overlay, t.TempDir())
	r.put(old.file(".rpm"), "/tmp/old.rpm")
	r.put(next.file(".rpm"), "/tmp/next.rpm")
	r.run("rpm", "-K", "--nosignature", "/tmp/old.rpm")
	if out := r.run("rpm", "-qpc", "/tmp/old.rpm"); out != "/etc/default/tend\n" {
		t.Errorf("its settings are %s", out)
	}
	list := r.run("rpm", "-qpl", "/tmp/old.rpm")
	for _, path := range []string{"/usr/bin/tend", "/usr/share/man/man1/tend-run.1.gz", "/usr/share/zsh/site-functions/_tend", "/usr/lib/systemd/system/tend.socket", "/usr/lib/systemd/user/tend.service", "/usr/lib/tend/apparmor"} {
		if !strings.Contains(list, path+"\n") {
			t.Errorf("%s is not in it", path)
		}
	}
	r.run("sh", "-c", "mkdir /tmp/x && cd /tmp/x && rpm2cpio /tmp/old.rpm | cpio -idm --quiet --no-absolute-filenames && ./usr/bin/tend version")
	rpm := func(args ...string) string {
		t.Helper()
		return r.run(append([]string{"rpm", "--dbpath", "/tmp/db", "--nodeps"}, args...)...)
	}
	rpm("-i", "/tmp/old.rpm")
	r.run("tend", "run", "-d", "-i", "--name", "counts", "--", "cat")
	before := r.proc("counts")
	rpm("-U", "/tmp/next.rpm")
	if out := r.run("tend", "status"); !strings.Contains(out, next.version) {
		t.Errorf("the daemon is not the one that was installed:\n%s", out)
	}
	r.run("tend", "input", "counts", "still")
	r.run("tend", "wait", "counts", "--until", "match=still")
	if now := r.proc("counts"); now != before {
		t.Errorf("the process was %+v, and is %+v", before, now)
	}
	if out := rpm("-e", "tend"); !strings.Contains(out, "counts") {
		t.Errorf("a removal does not say what runs: %s", out)
	}
	// The first process of this root collects nobody: zombies, which have no command line, stay.
	if out, err := r.try("sh", "-c", "ps -e -o args | grep -e '[t]end-keeper' -e '^[c]at$'"); err == nil {
		t.Errorf("a removal leaves %s", out)
	}
	if r.has("/usr/bin/tend") || !r.has("/var/lib/tend") {
		t.Error("a removal takes the program, and leaves the state")
	}
}
