package work

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tend-run/tend/internal/heal/playbook"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/internal/support/proctest"
)

// script runs a script of this repository, which brings what a test needs.
func script(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), filepath.Join("../../../scripts", name), args...).Output()
	if err != nil {
		t.Fatalf("scripts/%s: %v", name, err)
	}
	return strings.TrimSpace(string(out))
}

func withNode(t *testing.T) { t.Setenv("PATH", script(t, "node")+":"+os.Getenv("PATH")) }

// archiveOf is a package with a script that runs when it is installed.
func archiveOf(t *testing.T, name, script string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for file, text := range map[string]string{
		"package.json": fmt.Sprintf(`{"name": %q, "version": "1.0.0", "scripts": {"install": "sh install.sh"}}`, name),
		"index.js":     "module.exports = 1\n", "install.sh": script,
	} {
		proctest.Must(t, w.WriteHeader(&tar.Header{Name: "package/" + file, Mode: 0o644, Size: int64(len(text))}))
		proctest.Value(w.Write([]byte(text)))(t)
	}
	proctest.Must(t, w.Close())
	proctest.Must(t, z.Close())
	return b.Bytes()
}

// declare writes what wants a package, from where it is fetched.
func (g *ground) declare(name, from string) {
	g.Helper()
	g.write("package.json", fmt.Sprintf(`{"name": "app", "version": "1.0.0", "dependencies": {%q: %q}}`, name, from))
	g.write("package-lock.json", fmt.Sprintf(`{"name": "app", "version": "1.0.0", "lockfileVersion": 3, "packages": {
 "": {"name": "app", "version": "1.0.0", "dependencies": {%[1]q: %[2]q}},
 "node_modules/%[1]s": {"version": "1.0.0", "resolved": %[2]q, "hasInstallScript": true}}}`, name, from))
}

// planFor is the plan by which a package is installed that is missing.
func (g *ground) planFor(name string) playbook.Plan {
	g.Helper()
	g.write("server.js", "require("+name+")\n")
	plans := proctest.Value(g.w.project.Match(g.Context(), playbook.Evidence{Dir: g.root, Service: "web",
		Argv: []string{"node", "server.js"}, Signal: "exit",
		Log: "Error: Cannot find module '" + name + "'\nRequire stack:\n- " + g.root + "/server.js\n"}))(g.T)
	if len(plans) == 0 || plans[0].Actions[0].Makes != "node_modules" {
		g.Fatalf("no install: %+v", plans)
	}
	return plans[0]
}

// outside is the tree without what is installed.
func (g *ground) outside() map[string]string {
	all := g.tree()
	for name := range all {
		if name == ".tend" || strings.HasPrefix(name, ".tend/") || strings.HasPrefix(name, "node_modules") ||
			strings.HasPrefix(name, "apps/web/node_modules") {
			delete(all, name)
		}
	}
	return all
}

// TestProgramsOfPackagesRunInAView: a program that a package brings for its install changes nothing but
// what is installed, learns no secret, reaches neither the machine nor its network, and leaves nothing that
// runs. What was installed before comes back as it was.
func TestProgramsOfPackagesRunInAView(t *testing.T) {
	for _, name := range []string{"root", "another user, by a daemon of root"} {
		t.Run(name, func(t *testing.T) {
			withNode(t)
			g := newGroundOf(t, users[name])
			l := proctest.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
			defer l.Close()
			mark := "pwned-" + filepath.Base(filepath.Dir(filepath.Dir(g.root)))
			g.write("vendor/evil.tgz", string(archiveOf(t, "evil", fmt.Sprintf(`
cd %[1]q
for f in lib.js new.js cache.json .env data/orders.json ../diary; do echo gone > $f; done
rm -rf data keys engine; echo x > .git/hooks/post-checkout; git config core.fsmonitor 'touch pwned'; echo x > made
mkdir -p ~/.ssh; echo x > ~/.ssh/%[2]s; echo x > /etc/%[2]s; echo x > /tmp/%[2]s; echo x > /usr/%[2]s
mkdir -p node_modules/evil; cd node_modules/evil
{ env; cat ../../.env ../../apps/web/.env.local ../../keys/server.pem ../../../diary; cat /proc/*/environ; } > loot 2> /dev/null
python3 -c "import socket; socket.create_connection(('127.0.0.1', %[3]d), 2)" && echo connected >> loot
echo installed >> loot
cp /bin/true suid; chmod 4755 suid; ln -s ../../../lib.js ../.tend-new
mkdir -p ../../apps/web/node_modules/w; echo x > ../../apps/web/node_modules/w/index.js
(setsid sh -c 'sleep 1007; : %[2]s' &) > /dev/null 2>&1
true`, g.root, mark, l.Addr().(*net.TCPAddr).Port))))
			g.declare("evil", "file:vendor/evil.tgz")
			plan := g.planFor("evil")
			proctest.Must(t, g.w.project.Absorb(t.Context()))
			before := g.outside()
			said, err := g.w.carryOut(t.Context(), 1, plan)
			if err != nil || !strings.HasPrefix(said, "npm ci") {
				t.Fatalf("%q, %v", said, err)
			}
			if diff := cmp.Diff(before, g.outside()); diff != "" {
				t.Error("beside what was installed there is another tree:\n" + diff)
			}
			loot := g.read("node_modules/evil/loot")
			if !strings.HasSuffix(loot, "installed\n") || strings.Contains(loot, secret) || strings.Contains(loot, "connected") {
				t.Errorf("it has found %q", loot)
			}
			if st := proctest.Value(os.Lstat(filepath.Join(g.root, "node_modules/evil/suid")))(t); st.Mode()&os.ModeSetuid != 0 {
				t.Error("a program has rights of its own")
			}
			if _, err := os.Lstat(filepath.Join(g.root, "node_modules", ".tend-new")); err == nil {
				t.Error("the mark is left")
			}
			home := proctest.Value(os.UserHomeDir())(t)
			for _, file := range []string{home + "/.ssh", "/etc", "/tmp", "/usr"} {
				if _, err := os.Lstat(filepath.Join(file, mark)); err == nil {
					t.Errorf("it has written to %s", file)
				}
			}
			for _, pid := range proctest.Value(procfs.PIDs())(t) {
				if line, err := procfs.Read(pid, "cmdline"); err == nil && strings.Contains(string(line), "sleep 1007; : "+mark) {
					t.Errorf("%q runs on", line)
				}
			}
			if !strings.HasSuffix(said, "made apps/web/node_modules as a whole, in a view of the project") ||
				g.read("apps/web/node_modules/w/index.js") != "x\n" {
				t.Errorf("of a package of a workspace: %q", said)
			}
			done := proctest.Value(g.w.project.Rollback(t.Context(), 1, true))(t)
			if len(done.Left) > 0 || g.read("node_modules/p/index.js") != "installed\n" || g.read("node_modules/evil/loot") != "none" ||
				g.read("apps/web/node_modules/w/index.js") != "none" {
				t.Errorf("after a rollback there is %q, and left is %v", g.read("node_modules/p/index.js"), done.Left)
			}
			if diff := cmp.Diff(before, g.outside()); diff != "" {
				t.Error("a rollback has changed more:\n" + diff)
			}
			proctest.Must(t, g.w.project.Drop(t.Context(), 1))
			if _, err := os.Lstat(filepath.Join(g.root, ".tend", "aside")); err == nil {
				t.Error("something is aside")
			}
		})
	}
}

// TestAnInstallIsTheProjectsAsAWholeOrNotAtAll: one that fails, or makes what is no file, changes nothing.
func TestAnInstallIsTheProjectsAsAWholeOrNotAtAll(t *testing.T) {
	withNode(t)
	g := newGround(t, 0)
	g.write("fixtures/node_modules/a.js", "tracked\n")
	g.git("add", "-f", "fixtures")
	for what, c := range map[string]struct{ script, says string }{
		"it changes what is tracked": {"echo x > ../../fixtures/node_modules/a.js", "git tracks files in fixtures/node_modules"},
		"it fails":                   {"echo half > half; exit 3", "exit status 3"},
		"it makes no file":           {"mkfifo pipe", "neither a file"},
		"it makes no module":         {"(sleep 1; cd ../..; rm -rf node_modules) & wait", "it has not made node_modules"},
	} {
		g.write("vendor/bad.tgz", string(archiveOf(t, "bad", c.script)))
		g.declare("bad", "file:vendor/bad.tgz")
		plan := g.planFor("bad")
		before := g.outside()
		if _, err := g.w.carryOut(t.Context(), 1, plan); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", what, err)
		}
		if g.read("node_modules/p/index.js") != "installed\n" || g.read("node_modules/bad/index.js") != "none" {
			t.Errorf("%s, and what is installed is another", what)
		}
		if diff := cmp.Diff(before, g.outside()); diff != "" {
			t.Errorf("%s:\n%s", what, diff)
		}
	}
}

// TestAnInstallReachesItsRegistry, which the lock file names, and nothing else.
func TestAnInstallReachesItsRegistry(t *testing.T) {
	withNode(t)
	var asked sync.Map
	listen := func() net.Listener {
		l := proctest.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
		t.Cleanup(func() { l.Close() })
		return l
	}
	port := func(l net.Listener) int { return l.Addr().(*net.TCPAddr).Port }
	registry, other := listen(), listen()
	for name, l := range map[string]net.Listener{"registry": registry, "another": other} {
		go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked.Store(name+r.URL.Path, true)
			w.Write(archiveOf(t, "far", fmt.Sprintf(`for p in %d %d; do
node -e "fetch('http://192.0.0.1:' + process.argv[1] + '/again').catch(() => {})" $p
done`, port(other), port(registry))))
		}))
	}
	reach := func(l net.Listener) []string { return []string{"--sandbox-reach", l.Addr().String()} }
	g := newGroundOf(t, user{flags: append(reach(registry), reach(other)...)})
	g.declare("far", fmt.Sprintf("http://192.0.0.1:%d/far.tgz", port(registry)))
	said, err := g.w.carryOut(t.Context(), 1, g.planFor("far"))
	if err != nil || g.read("node_modules/far/index.js") == "none" {
		t.Errorf("%q, %v", said, err)
	}
	for what, want := range map[string]bool{"registry/far.tgz": true, "registry/again": true, "another/again": false} {
		if _, is := asked.Load(what); is != want {
			t.Errorf("that %s was asked for is %v", what, is)
		}
	}
}

// TestAVirtualEnvironmentIsMadeInAView: whole, with what the list of requirements wants, by both programs
// that it takes; and it is gone after a rollback, as it was before.
func TestAVirtualEnvironmentIsMadeInAView(t *testing.T) {
	if exec.CommandContext(t.Context(), "python3", "-c", "import venv, ensurepip").Run() != nil {
		script(t, "install", "no-such-command=python3-venv")
	}
	g := newGround(t, 0)
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, text := range map[string]string{
		"tiny.py": "print('it is whole')\n", "tiny-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
		"tiny-1.0.dist-info/WHEEL":  "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		"tiny-1.0.dist-info/RECORD": "tiny.py,,\ntiny-1.0.dist-info/METADATA,,\ntiny-1.0.dist-info/WHEEL,,\ntiny-1.0.dist-info/RECORD,,\n",
	} {
		proctest.Value(proctest.Value(z.Create(name))(t).Write([]byte(text)))(t)
	}
	proctest.Must(t, z.Close())
	g.write("vendor/tiny-1.0-py3-none-any.whl", b.String())
	g.write("requirements.txt", "./vendor/tiny-1.0-py3-none-any.whl\n")
	plans := proctest.Value(g.w.project.Match(t.Context(), playbook.Evidence{Dir: g.root, Service: "web",
		Argv: []string{".venv/bin/python", "-m", "tiny"}, Signal: "exit",
		Log: "/bin/sh: 1: .venv/bin/python: not found\n"}))(t)
	if len(plans) == 0 || len(plans[0].Actions) != 2 {
		t.Fatalf("no install: %+v", plans)
	}
	before := g.outside()
	said, err := g.w.carryOut(t.Context(), 1, plans[0])
	if err != nil || !strings.Contains(said, "-m venv") {
		t.Fatalf("%q, %v", said, err)
	}
	out, err := exec.Command(filepath.Join(g.root, ".venv/bin/python"), "-m", "tiny").CombinedOutput()
	if err != nil || string(out) != "it is whole\n" {
		t.Errorf("it says %q, %v", out, err)
	}
	proctest.Value(g.w.project.Rollback(t.Context(), 1, true))(t)
	if diff := cmp.Diff(before, g.outside()); diff != "" {
		t.Error("after a rollback there is another tree:\n" + diff)
	}
}

// TestWithoutAViewAnInstallIsMadeInPlace, and the episode says so; but not since of what is in the project.
func TestWithoutAViewAnInstallIsMadeInPlace(t *testing.T) {
	l := proctest.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Write(archiveOf(t, "near", "echo x > ../../made"))
	}))
	withNode(t)
	g := newGroundOf(t, user{flags: []string{"--sandbox-deny", "*"}})
	var notes []string
	g.w.says = func(text string) { notes = append(notes, text) }
	g.declare("near", fmt.Sprintf("http://%s/near.tgz", l.Addr()))
	plan := g.planFor("near")
	for i := range 2100 { // more than an install can be kept from
		g.write(fmt.Sprintf("keys/%d.pem", i), secret)
	}
	if _, err := g.w.carryOut(t.Context(), 1, plan); err == nil || !strings.Contains(err.Error(), "are secret") || g.read("made") != "none" {
		t.Errorf("%v; its script has made %q", err, g.read("made"))
	}
	proctest.Must(t, os.RemoveAll(filepath.Join(g.root, "keys")))
	if _, err := g.w.carryOut(t.Context(), 1, plan); err != nil || g.read("made") != "x\n" {
		t.Errorf("%v; its script has made %q", err, g.read("made"))
	}
	if len(notes) != 1 || !strings.HasPrefix(notes[0], unconfined) {
		t.Errorf("it says %q", notes)
	}
}
