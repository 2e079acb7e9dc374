//go:build linux

package dist

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

// proc is what tend inspect says of a process.
type proc struct {
	ID, State, Name string
	PID             int
}

func (r *root) proc(name string) proc {
	r.t.Helper()
	text := r.run("tend", "inspect", name)
	var p proc
	proctest.Must(r.t, json.Unmarshal([]byte(strings.Trim(strings.TrimSpace(text), "[]")), &p))
	return p
}

// packageLife is the life of a package in a root without systemd: installed, used,
// upgraded while a process runs, removed while it runs, installed over the state that is
// there then, and purged. dpkg is its command line.
func packageLife(t *testing.T, r *root, old, next string, dpkg ...string) {
	install := func(file string) string {
		t.Helper()
		r.put(file, "/tmp/tend.deb")
		return r.run(append(dpkg, "-i", "/tmp/tend.deb")...)
	}
	install(old)
	if out := r.run("tend", "version"); !strings.Contains(out, former) {
		t.Errorf("tend version says %s", out)
	}
	for _, path := range []string{"/usr/share/man/man1/tend-run.1.gz", "/usr/share/bash-completion/completions/tend", "/usr/lib/systemd/system/tend.service", "/usr/lib/tend/apparmor", "/etc/default/tend"} {
		if !r.has(path) {
			t.Errorf("%s is not there", path)
		}
	}

	r.run("tend", "run", "-d", "-i", "--name", "counts", "--", "sh", "-c", `while read -r line; do echo "got $line"; done`)
	r.run("tend", "input", "counts", "one")
	r.run("tend", "wait", "counts", "--until", "match=got one")
	before := r.proc("counts")
	const mine = "TEND_FLAGS=--debug\n"
	proctest.Must(t, os.WriteFile(r.path("/etc/default/tend"), []byte(mine), 0o644))

	install(next)
	if out := r.run("tend", "status"); !strings.Contains(out, latest) {
		t.Errorf("the daemon is not the one that was installed:\n%s", out)
	}
	r.run("tend", "input", "counts", "two")
	r.run("tend", "wait", "counts", "--until", "match=got two")
	if after := r.proc("counts"); after != before {
		t.Errorf("before the upgrade the process is %+v, and then %+v", before, after)
	}
	if text := proctest.Value(os.ReadFile(r.path("/etc/default/tend")))(t); string(text) != mine {
		t.Errorf("the settings of the administrator are %q after an upgrade", text)
	}

	if out := r.run(append(dpkg, "-r", "tend")...); !strings.Contains(out, "counts") || !strings.Contains(out, "the daemon ends") {
		t.Errorf("a removal does not say what runs: %s", out)
	}
	if r.has("/usr/bin/tend") || !r.has("/etc/default/tend") || !r.has("/var/lib/tend") {
		t.Error("a removal takes the program, and leaves settings and state")
	}
	if out, err := r.try("sh", "-c", "grep -lzsx 'TEND_TEST=.*' /proc/[0-9]*/environ; ps -e -o args | grep '[t]end-keeper'"); err == nil {
		t.Errorf("a removal leaves behind: %s", out)
	}

	// What was before is known after another installation, over state that is older.
	install(old)
	r.run("tend", "run", "--", "true")
	if p := r.proc("counts"); p.ID != before.ID || p.State == "running" {
		t.Errorf("the process that ended with the removal is %+v", p)
	}
	if out := r.run("tend", "logs", "counts"); out != "got one\ngot two\n" {
		t.Errorf("its output is %q", out)
	}

	// State of somebody else is refused in words, and no installation fails for it.
	r.run("tend", "shutdown")
	r.run("chmod", "0777", "/var/lib/tend")
	install(next)
	if out, err := r.try("tend", "run", "--", "true"); err == nil || !strings.Contains(out, "/var/lib/tend") {
		t.Errorf("state that others may write to: %v, %s", err, out)
	}

	r.run(append(dpkg, "-P", "tend")...)
	for _, path := range []string{"/var/lib/tend", "/etc/default/tend", "/usr/lib/tend", "/usr/bin/tend", "/run/tend", "/etc/systemd/system/tend.service"} {
		if r.has(path) {
			t.Errorf("a purge leaves %s", path)
		}
	}
}
