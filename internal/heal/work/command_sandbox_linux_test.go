package work

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// around is all that is in a few directories of the sandbox beside the project.
func (g *ground) around() map[string]string {
	g.Helper()
	all := map[string]string{}
	for _, dir := range []string{"/srv", "/tmp", "/var/tmp", "/home", "/root", "/run", "/usr/local/bin", "/etc"} {
		proctest.Must(g, filepath.WalkDir(g.at(dir), func(path string, d fs.DirEntry, err error) error {
			// A test of internal/core/contain puts a directory into the machine's /etc, which is seen inside.
			if err != nil || path == g.at(g.root) || d.Name() == ".tend" || strings.HasPrefix(path, g.at("/etc/tend-test-")) {
				return fs.SkipDir
			}
			if info, err := d.Info(); err == nil {
				all[path] = info.Mode().String() + fmt.Sprint(info.ModTime())
			}
			return nil
		}))
	}
	return all
}

// living are the processes in the sandbox, and those of commands on the machine.
func (g *ground) living() (all []string) {
	g.Helper()
	look := proctest.Value(g.sandbox.Look(g.Context()))(g.T)
	for _, c := range []*tend.Client{look, g.w.client} {
		for _, in := range proctest.Value(c.List(g.Context(), process.Filter{Live: true}))(g.T) {
			all = append(all, string(in.ID))
		}
	}
	slices.Sort(all)
	return all
}

var boxed = map[string]user{"root": {boxed: true}, "another user": {uid: 65534, served: true, boxed: true}}

// TestACommandInASandboxChangesNothing: whatever it does, neither the sandbox, nor its
// programs, nor the machine is another one afterwards, and nothing of it runs on.
func TestACommandInASandboxChangesNothing(t *testing.T) {
	for name, who := range boxed {
		t.Run(name, func(t *testing.T) {
			g := newGroundOf(t, who)
			before, around, living := g.tree(), g.around(), g.living()
			for _, line := range []string{
				"kill -9 1 $PPID; kill -9 -1",
				"(setsid sleep 1001 &) ; setsid sh -c 'while :; do echo x > late.js; sleep 0.1; done' > /dev/null 2>&1 &",
				"echo x > /srv/x; echo x > /srv/home/x; echo x >> /etc/hosts; echo x > /usr/local/bin/x; echo x > /run/x; echo x > /var/tmp/x; rm -rf /srv/home/diary /srv/* /home /tmp/*",
				"cd ..; mv app away; rm -rf app; ln -s /etc app; mkdir app",
				"rm -rf ../app; chmod 000 .; chown 1:1 .",
				"mount -t tmpfs none .; mount --bind /etc .; umount -l .; umount /srv/home/app; unshare -m true; unshare -Urm mount -t tmpfs none .",
				"nsenter -t 1 -a true; chroot /proc/1/root true; echo x > /proc/1/root/etc/x; echo x > /proc/1/cwd/x",
				"mknod b b 8 0; mknod c c 1 1; cat b c; rm -f b c; echo x > /proc/sys/kernel/hostname; hostname x",
				"echo KEY=stolen > .env; echo x > .git/HEAD; echo x > .git/hooks/post-checkout; rm -rf .git .env .tend",
				"ln -s /srv/home/diary link; mkfifo pipe",
				"head -c 50000000 /dev/zero > huge",
				"i=0; while [ $i -lt 2100 ]; do : > f$i; i=$((i+1)); done",
			} {
				out := g.exec(line)
				// What git has may be removed, and is brought back.
				if done := proctest.Value(g.w.project.Rollback(t.Context(), 1, false))(t); len(done.Left) > 0 {
					t.Errorf("%s: not taken back is %v", line, done.Left)
				}
				if got := g.tree(); !maps.Equal(got, before) {
					for path, text := range got {
						if before[path] != text {
							t.Errorf("%s\n%s\n%s is %.80q, and was %.80q", line, out, path, text, before[path])
						}
					}
					t.Fatalf("%s: there are %d entries, and were %d", line, len(got), len(before))
				}
				if got := g.around(); !maps.Equal(got, around) {
					t.Fatalf("%s\n%s\nbeside the project is\n%v\nand was\n%v", line, out, got, around)
				}
				if got := g.living(); !slices.Equal(got, living) {
					t.Fatalf("%s: there run %q, and ran %q", line, got, living)
				}
			}
			for _, pid := range proctest.Value(procfs.PIDs())(t) {
				if line, err := procfs.Read(pid, "cmdline"); err == nil && string(line) == "sleep\x001001\x00" {
					t.Errorf("pid %d of a command is left", pid)
				}
			}
			if all := proctest.Value(g.w.client.Sandboxes(t.Context(), tend.SandboxFilter{}))(t); len(all) != 1 {
				t.Errorf("what a command ran in is left: %+v", all)
			}
		})
	}
}

// TestACommandInASandboxHasItsRights: those of its user there and no others, and it reaches
// nobody.
func TestACommandInASandboxHasItsRights(t *testing.T) {
	for name, who := range boxed {
		t.Run(name, func(t *testing.T) {
			g := newGroundOf(t, who)
			status := proctest.Value(g.sandbox.Processes().Run(t.Context(), tend.Command("grep", "-E", "^(Seccomp|CapBnd):", "/proc/self/status")))(t)
			of := func(text, field string) string {
				_, rest, _ := strings.Cut(text, field+":")
				value, _, _ := strings.Cut(rest, "\n")
				return strings.TrimSpace(value)
			}
			mask := func(text string) (bits uint64) {
				_, err := fmt.Sscanf(of(text, "CapBnd"), "%x", &bits)
				proctest.Must(t, err)
				return bits
			}
			out := g.exec("grep -E '^(Uid|Gid|Seccomp|CapBnd|CapEff|NoNewPrivs):' /proc/self/status; echo shell: $PPID")
			uid := fmt.Sprint(who.uid)
			if got := of(out, "Uid"); got != strings.Join([]string{uid, uid, uid, uid}, "\t") || of(out, "Gid") != got {
				t.Errorf("it runs as\n%s", out)
			}
			if of(out, "Seccomp") != of(status.Stdout, "Seccomp") || of(out, "Seccomp") != "2" || of(out, "NoNewPrivs") != "1" || mask(out)&^mask(status.Stdout) != 0 {
				t.Errorf("it has\n%s\nand a program of the sandbox\n%s", out, status.Stdout)
			}
			if who.uid != 0 && strings.Trim(of(out, "CapEff"), "0") != "" {
				t.Errorf("it has capabilities:\n%s", out)
			}
			// The processes of the sandbox are not there, nor a port, nor an abstract socket of it.
			l := proctest.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
			defer l.Close()
			port := l.Addr().(*net.TCPAddr).Port
			out = g.exec(fmt.Sprintf("ls -d /proc/[0-9]* 2> /dev/null | wc -l; cat /proc/net/dev | tail -n +3 | cut -d: -f1; python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", %d), 2)' 2>&1 | tail -1; cat /proc/keys /proc/kallsyms | head -c 300", port))
			f := strings.Fields(out)
			if len(f) < 3 || len(f[0]) > 1 || !strings.Contains(out, "refused") {
				t.Errorf("it sees %s", out)
			}
		})
	}
}

// TestACommandInASandboxIsItsUsers: with the groups of that user there, for the whole of a repair.
func TestACommandInASandboxIsItsUsers(t *testing.T) {
	g := newGroundOf(t, user{boxed: true})
	res := proctest.Value(g.sandbox.Processes().Run(t.Context(), tend.Command("sh", "-c", "echo me:x:1234:1235::/:/bin/sh >> /etc/passwd; echo ours:x:1236:me >> /etc/group; chown -R me /srv/home; umask 077; echo roots > "+g.root+"/roots")))(t)
	if res.Exit.Code != 0 {
		t.Fatalf("%v: %s", res.Exit, res.Stderr)
	}
	proctest.Value(g.sandbox.Update(t.Context(), tend.SandboxChange{User: "me"}))(t)
	if out := g.exec("id -u"); out != "0\n" {
		t.Errorf("in a repair that root began it runs as %s", out)
	}
	proctest.Must(t, errors.Join(g.w.project.Close(), g.w.view.Close(t.Context())))
	g.w.view = nil
	p, _, err := g.w.openProject(t.Context())
	proctest.Must(t, err)
	t.Cleanup(func() { p.Close() })
	g.w.project = p
	proctest.Must(t, g.w.takePoint(t.Context(), 2))
	if out := g.exec("id -u; id -g; id -G"); out != "1234\n1235\n1235 1236\n" {
		t.Errorf("it runs as %s", out)
	}
	// What is collected is given to that user, so it is nothing of another's, and all of its own.
	out := g.exec("umask 077; echo x > own; echo y >> clean.js; chmod 600 clean.js")
	if res := proctest.Value(g.sandbox.Processes().Run(t.Context(), tend.Command("sh", "-c", "cd "+g.root+"; stat -c '%U %a' own; tail -n 1 clean.js")))(t); string(res.Stdout) != "me 600\ny\n" {
		t.Errorf("what it has made for itself alone is %q, %s\n%s", res.Stdout, res.Stderr, out)
	}
	for _, move := range []string{"mv roots mine", "mkdir -p d && mv roots d/mine"} {
		out := g.exec(move + " && echo moved; echo x > new-by-me")
		res := proctest.Value(g.sandbox.Processes().Run(t.Context(), tend.Command("sh", "-c", "cd "+g.root+"; ls roots; find . -name mine -o -name new-by-me")))(t)
		if string(res.Stdout) != "roots\n./new-by-me\n" || !strings.Contains(out, "moved") || !strings.Contains(out, "is another user's") {
			t.Errorf("after %s there is %q\n%s", move, res.Stdout, out)
		}
	}
}

// TestACommandOfASharedProject: one that the sandbox shares with the machine is written by no
// command either, and what it has changed is taken over.
func TestACommandOfASharedProject(t *testing.T) {
	g := newGroundOf(t, user{boxed: true, shared: true})
	before := g.tree()
	g.exec("rm -rf lib.js new.js; echo x > .env; kill -9 $$")
	if got := g.tree(); !maps.Equal(got, before) {
		t.Fatalf("it is %q, and was %q", got, before)
	}
	proctest.Value(g.w.project.Rollback(t.Context(), 1, false))(t)
	out := g.exec("echo made > made.js; sed -i s/clean/mended/ clean.js; rm new.js; echo x > engine/core.js")
	if got := g.read("made.js") + g.read("clean.js") + g.read("new.js") + g.read("engine/core.js"); got != "made\nmended\nuntracked\ncore\n" {
		t.Errorf("it is %q\n%s", got, out)
	}
}

// TestTheLimitsOfASandboxHoldForACommand: it runs beside the sandbox, and has no more of the
// machine than programs there have.
func TestTheLimitsOfASandboxHoldForACommand(t *testing.T) {
	g := newGroundOf(t, user{boxed: true, size: tend.SandboxSize{Memory: 128 << 20, Tasks: 32}})
	if out := g.exec("head -c 20M /dev/zero | tail | wc -c; echo made > made.js"); !strings.HasPrefix(out, "20971520\n") || g.read("made.js") != "made\n" {
		t.Errorf("a small one does not run: %s", out)
	}
	if out := g.exec("head -c 500M /dev/zero | tail | wc -c"); strings.Contains(out, "524288000") {
		t.Errorf("one has 500 MiB of memory: %s", out)
	}
	if out := g.exec("i=0; while [ $i -lt 120 ]; do sleep 1003 & i=$((i+1)); done; echo all 120"); strings.Contains(out, "all 120") {
		t.Errorf("one has 120 tasks: %s", out)
	}
}

// TestTheProcessorsOfASandboxHoldForACommand: all that is started for it has the limit, and
// the kernel holds it up there.
func TestTheProcessorsOfASandboxHoldForACommand(t *testing.T) {
	g := newGroundOf(t, user{boxed: true, size: tend.SandboxSize{CPUs: 0.25}})
	done := make(chan string, 1)
	go func() {
		done <- g.exec("while [ ! -e stop ]; do i=$((i+1)); [ $((i%50000)) = 0 ] && [ $i -gt 400000 ] && break; done; echo over")
	}()
	var limits []float64
	proctest.Eventually(t, "it runs", func() bool {
		for _, in := range proctest.Value(g.w.client.Sandboxes(t.Context(),
			tend.SandboxFilter{Metadata: map[string]string{"tend.heal": g.w.order.ID}}))(t) {
			limits = append(limits, in.Size.CPUs)
		}
		return len(limits) > 0
	})
	if limits[0] != 0.25 {
		t.Errorf("its limit of processors is %v", limits[0])
	}
	if out := <-done; out != "over\n" {
		t.Errorf("it says %s", out)
	}
}

// TestWhatTheDaemonRunsInASandboxIsNoOrphan: nor what that has started there, whatever pid it
// has on the machine. What an earlier run of the service has left is one.
func TestWhatTheDaemonRunsInASandboxIsNoOrphan(t *testing.T) {
	g := newGroundOf(t, user{boxed: true})
	look := proctest.Value(g.sandbox.Look(t.Context()))(t)
	start := func(line string) process.Process {
		t.Helper()
		spec := process.Spec{Argv: []string{"sh", "-c", line}, Dir: g.root}
		spec.Labels = map[string]string{process.LabelService: g.w.order.Service}
		return proctest.Value(look.Start(t.Context(), spec))(t)
	}
	runs := start("sleep 1003 & wait")
	left := start("setsid sleep 1003 < /dev/null > /dev/null 2>&1 & sleep 1000")
	sleeping := func() (n int) {
		for _, pid := range proctest.Value(procfs.PIDs())(t) {
			line, err := procfs.Read(pid, "cmdline")
			if cwd, _ := os.Readlink(procfs.Path(pid, "cwd")); err == nil && string(line) == "sleep\x001003\x00" && cwd == g.root {
				n++
			}
		}
		return n
	}
	proctest.Eventually(t, "both sleep", func() bool { return sleeping() == 2 })
	proctest.Must(t, left.Signal(t.Context(), int(syscall.SIGKILL), process.ScopeGroup))
	proctest.Value(left.Wait(t.Context(), process.Until{}))(t)
	said := proctest.Value(g.w.endLeft(t.Context()))(t)
	if n := sleeping(); n != 1 || !strings.HasPrefix(said, "ended what was left") || strings.Contains(said, ",") {
		t.Errorf("%d sleep, and it says %q", n, said)
	}
	if in := proctest.Value(runs.Info(t.Context()))(t); in.Exit != nil {
		t.Errorf("what runs has ended: %v", in.Exit)
	}
}
