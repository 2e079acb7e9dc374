//go:build linux && (amd64 || arm64)

package contain

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/lib/place"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
)

// TestTheBaseShowsNoFileOutsideTheList walks all that a container sees, but for what is the kernel's: whatever is there is on the
// list, or of the container's own.
func TestTheBaseShowsNoFileOutsideTheList(t *testing.T) {
	proctest.Root(t)
	w := newWorld(t)
	extra := proctest.Value(os.MkdirTemp("/opt", "tend-base-"))(t)
	defer os.RemoveAll(extra)
	proctest.Must(t, os.Chmod(extra, 0o755))
	proctest.Must(t, os.WriteFile(extra+"/open", []byte("x"), 0o644))
	for _, dir := range []string{"/srv", "/opt", "/", "/var", "/var/lib", "/etc", "/home"} {
		f := proctest.Value(os.CreateTemp(dir, "tend-elsewhere-"))(t)
		defer os.Remove(f.Name())
		proctest.Must(t, f.Chmod(0o644))
		f.Close()
	}
	s := w.spec(t)
	s.Show = []string{extra}
	c := w.container(t, s)
	listed := slices.Concat(container.Programs, container.Packages, s.Show, []string{"/var/cache/debconf"})
	own := map[string]bool{"/etc/passwd": true, "/etc/group": true, "/etc/shadow": true, "/etc/gshadow": true, "/etc/hosts": true, "/etc/hostname": true,
		"/etc/machine-id": true, "/etc/nsswitch.conf": true, "/etc/sudoers": true, "/etc/mtab": true, "/var/run": true, "/var/lock": true, "/var/spool/mail": true}
	allowed := func(p string) bool {
		for _, dir := range listed {
			if _, ok := place.Below(p, dir); ok {
				return true
			}
		}
		rest, inEtc := strings.CutPrefix(p, "/etc/")
		return own[p] || inEtc && slices.ContainsFunc(container.Settings, func(pattern string) bool {
			n := strings.Count(pattern, "/") + 1
			parts := strings.Split(rest, "/")
			ok, _ := filepath.Match(pattern, strings.Join(parts[:min(n, len(parts))], "/"))
			return ok
		})
	}
	cmd := exec.Command("nsenter", "-t", fmt.Sprint(c.PID), "-a", "-S", "0", "-G", "0", "/usr/bin/find", "/", "(", "-path", "/proc", "-o", "-path", "/dev", "-o", "-path", "/run", ")",
		"-prune", "-o", "!", "-type", "d", "-print0")
	out := proctest.Value(cmd.StdoutPipe())(t)
	proctest.Must(t, cmd.Start())
	n := 0
	for lines := bufio.NewReader(out); ; n++ {
		p, err := lines.ReadString(0)
		if err == io.EOF {
			break
		}
		proctest.Must(t, err)
		if p = strings.TrimSuffix(p, "\x00"); !allowed(p) {
			t.Errorf("a container sees %s", p)
		}
	}
	if err := cmd.Wait(); err != nil || n < 1000 {
		t.Errorf("of %d files, %v", n, err)
	}
	if got := inside(t, c, "cat "+extra+"/open; echo y > "+extra+"/new && cat "+extra+"/new"); got != "xy" {
		t.Errorf("what is shown beside is %q", got)
	}
	if _, err := os.Stat(extra + "/new"); err == nil {
		t.Error("a container has written to the machine")
	}
	if got := inside(t, c, "grep -c : /etc/passwd; awk -F: '$3 >= 1000 && $3 != 65534' /etc/passwd; getent hosts $(hostname); if command -v python3 >/dev/null; then python -c 'print(1)'; else echo 1; fi; id user"); !strings.Contains(got, "sandbox\n1\nuid=10") {
		t.Errorf("%q", got)
	}
}

// TestTheHostNameOfAContainerResolves: whatever its name is, and what a program inside has written stays.
func TestTheHostNameOfAContainerResolves(t *testing.T) {
	w := newWorld(t)
	s := w.spec(t)
	s.Hostname = "other.name"
	c := w.container(t, s)
	if got := inside(t, c, "getent hosts $(hostname) | tr -s ' '; echo 127.0.0.9 mine > /etc/hosts"); got != "127.0.1.1 other.name" {
		t.Errorf("%q", got)
	}
	w.end(t, c)
	if got := inside(t, w.container(t, s), "cat /etc/hosts"); got != "127.0.0.9 mine" {
		t.Errorf("of what was written there is %q", got)
	}
	layered := w.spec(t)
	layered.Layers, layered.Hostname = []string{s.Dir + "/up"}, "third"
	if got := inside(t, w.container(t, layered), "cat /etc/hosts"); got != "127.0.0.9 mine\n127.0.1.1\tthird" {
		t.Errorf("over a layer: %q", got)
	}
}

// TestALoginShellBeginsWithoutAProgram: of bash; another shell runs id, if the machine's profile does.
func TestALoginShellBeginsWithoutAProgram(t *testing.T) {
	proctest.Root(t)
	w := newWorld(t)
	c := w.container(t, w.spec(t))
	const line = `mkdir /tmp/b; printf '#!/bin/sh\necho >> /tmp/ran; exec /usr/bin/id "$@"\n' > /tmp/b/id; chmod 755 /tmp/b/id
for sh in bash sh; do env -i PATH=/tmp/b:/usr/bin:/bin $sh -lc 'echo $PATH' 2>&1; done; cat /tmp/ran 2>&1 | wc -l
grep -c '"$(id -u)"' /etc/profile || true`
	got := strings.Split(inside(t, c, line), "\n")
	machine, _ := os.ReadFile("/etc/profile")
	runs := bytes.Count(machine, []byte("\nif [ \"$(id -u)\" ")) // by sh alone
	if len(got) != 4 || got[0] != got[1] || got[2] != fmt.Sprint(runs) || got[3] != "0" {
		t.Errorf("%q", got)
	}
}

// TestTheStateDirectoryIsInNothingThatIsShown: by its path, a bind mount or a link the container is refused.
func TestTheStateDirectoryIsInNothingThatIsShown(t *testing.T) {
	proctest.Root(t)
	w := newWorld(t)
	for name, make := range map[string]func(at string) error{
		"the directory itself": func(at string) error { return unix.Mount(w.state, at, "", unix.MS_BIND, "") },
		"one in it":            func(at string) error { return unix.Mount(w.dir, at, "", unix.MS_BIND, "") },
		"one above":            func(at string) error { return unix.Mount(filepath.Dir(w.state), at, "", unix.MS_BIND, "") },
		"a link": func(at string) error {
			if err := os.Remove(at); err != nil {
				return err
			}
			return os.Symlink(w.state, at)
		},
	} {
		at := proctest.Value(os.MkdirTemp("/opt", "tend-state-"))(t)
		proctest.Must(t, make(at))
		s := w.spec(t)
		s.Show = []string{at}
		c, err := w.Make(&s)
		if err == nil {
			w.end(t, c)
		}
		if err == nil || !strings.Contains(err.Error(), "--state-dir") && name != "a link" {
			t.Errorf("%s: %v", name, err)
		}
		unix.Unmount(at, unix.MNT_DETACH)
		os.Remove(at)
	}
	// Below what is shown a mount of it shows nothing.
	at := proctest.Value(os.MkdirTemp("/usr/local", "tend-state-"))(t)
	defer os.Remove(at)
	proctest.Must(t, os.Chmod(at, 0o755))
	proctest.Must(t, unix.Mount(w.state, at, "", unix.MS_BIND, ""))
	defer unix.Unmount(at, unix.MNT_DETACH)
	if got := inside(t, w.container(t, w.spec(t)), "ls -A "+at+" 2>/dev/null"); got != "" {
		t.Errorf("below /usr a container sees %q", got)
	}
}

// TestAnOrdinaryUsersBaseShowsTheList, with a file and a directory mounted in it.
func TestAnOrdinaryUsersBaseShowsTheList(t *testing.T) {
	if !testkeeper.IsRootless() {
		testkeeper.Rootless(t, "^TestAnOrdinaryUsersBaseShowsTheList$")
		return
	}
	w := newWorld(t)
	s := w.spec(t)
	s.UIDBase, s.Hostname = 0, "rootless"
	c := w.container(t, s)
	root := fmt.Sprintf("/proc/%d/root", c.PID)
	for _, p := range []string{"/usr/bin/env", "/etc/passwd", "/home/user", "/var/lib"} {
		if _, err := os.Stat(root + p); err != nil {
			t.Error(err)
		}
	}
	for _, dir := range []string{"/opt", "/srv", "/home/user", "/root", "/boot"} {
		if entries, err := os.ReadDir(root + dir); err != nil || len(entries) > 0 {
			t.Errorf("%s has %v, %v", dir, entries, err)
		}
	}
	if b, err := os.ReadFile(root + "/etc/hosts"); err != nil || !strings.Contains(string(b), "rootless") {
		t.Errorf("/etc/hosts: %q, %v", b, err)
	}
	if err := filepath.WalkDir(root+"/etc", func(_ string, _ fs.DirEntry, err error) error { return err }); err != nil {
		t.Errorf("its /etc: %v", err)
	}
}
