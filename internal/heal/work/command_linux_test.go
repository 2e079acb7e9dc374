package work

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tend-run/tend/internal/heal/agent"
	"github.com/tend-run/tend/internal/heal/checkpoint"
	"github.com/tend-run/tend/internal/heal/guard"
	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/heal/project"
	"github.com/tend-run/tend/internal/heal/view"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testbin"
	"github.com/tend-run/tend/internal/support/testdaemon"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

const secret = "not-a-secret-canary-7f3a9c21"

// ground is a project in git with work of its user in it, a worker and a daemon that runs
// its commands, as a user.
type ground struct {
	*testing.T
	root    string
	view    string // of this machine on what is where the project is; "": it is there
	sandbox *tend.Sandbox
	w       *worker
	h       *hands
}

// enter makes a sandbox, and puts what is in base there, in /srv.
func (g *ground) enter(d *testdaemon.Daemon, c *tend.Client, base string, who user) {
	g.Helper()
	if who.open {
		g.enterOpen(d, c, base, who)
		return
	}
	share, line := tend.SandboxShare{Source: filepath.Join(base, "home"), Target: "/mnt/home", ReadOnly: true}, "cp -a /mnt/home /srv/"
	if who.shared {
		share, line = tend.SandboxShare{Source: share.Source, Target: "/srv/home"}, "true"
	}
	g.sandbox = proctest.Value(c.CreateSandbox(g.Context(), tend.SandboxSpec{Name: "home", Isolation: tend.IsolationFull, Size: who.size, Shares: []tend.SandboxShare{share}}))(g.T)
	res := proctest.Value(g.sandbox.Processes().Run(g.Context(), tend.Command("sh", "-c", line)))(g.T)
	if res.Exit.Code != 0 {
		g.Fatalf("cp: %v: %s", res.Exit, res.Stderr)
	}
	look := proctest.Value(g.sandbox.Look(g.Context()))(g.T)
	proctest.Value(look.Start(g.Context(), process.Spec{Argv: []string{"sh", "-c", "sleep 1000; :", base}}))(g.T)
	g.root = "/srv/home/app"
	proctest.Eventually(g, "a program runs in the sandbox", func() bool { // the API has its pid inside
		for _, pid := range proctest.Value(procfs.PIDs())(g.T) {
			if line, err := procfs.Read(pid, "cmdline"); err == nil && strings.HasSuffix(string(line), "\x00"+base+"\x00") {
				g.view = procfs.Path(pid, "root")
			}
		}
		return g.view != ""
	})
	o := g.w.order
	o.StateDir, o.Rules.Sandbox, o.Rules.Cwd, o.Healer.Root = d.StateDir(), "home", g.root, g.root
	o.SandboxID = proctest.Value(g.sandbox.ID(g.Context()))(g.T)
	proctest.Must(g, g.w.findPlace(g.Context()))
}

// enterOpen makes a sandbox that is not isolated, with the project in its own directory.
func (g *ground) enterOpen(d *testdaemon.Daemon, c *tend.Client, base string, who user) {
	g.Helper()
	g.sandbox = proctest.Value(c.CreateSandbox(g.Context(), tend.SandboxSpec{Name: "home", Isolation: tend.IsolationNone, User: strconv.Itoa(who.uid)}))(g.T)
	res := proctest.Value(g.sandbox.Processes().Run(g.Context(), tend.Command("cp", "-a", filepath.Join(base, "home", "app"), ".")))(g.T)
	if res.Exit.Code != 0 {
		g.Fatalf("cp: %v: %s", res.Exit, res.Stderr)
	}
	g.root = proctest.Value(g.sandbox.Info(g.Context()))(g.T).Dir + "/app"
	o := g.w.order
	o.StateDir, o.Rules.Sandbox, o.Rules.Cwd, o.Healer.Root = d.StateDir(), "home", g.root, g.root
	o.SandboxID = proctest.Value(g.sandbox.ID(g.Context()))(g.T)
	proctest.Must(g, g.w.findPlace(g.Context()))
}

// at is a path of the project's place, on this machine.
func (g *ground) at(path string) string { return g.view + path }

func newGround(t *testing.T, uid int) *ground { return newGroundOf(t, user{uid: uid}) }

func newGroundOf(t *testing.T, who user) *ground {
	t.Helper()
	uid := who.uid
	proctest.Root(t)
	base := proctest.Value(os.MkdirTemp("", "tend-work-"))(t)
	t.Cleanup(func() { os.RemoveAll(base) })
	base = proctest.Value(filepath.EvalSymlinks(base))(t)
	g := &ground{T: t, root: filepath.Join(base, "home", "app")}
	self := filepath.Join(base, "self")
	proctest.Must(t, os.WriteFile(self, proctest.Value(os.ReadFile(testbin.Released.Tend(bin)))(t), 0o755))
	for name, text := range map[string]string{
		"lib.js": "one\ntwo\nthree\n", "clean.js": "clean\n", "gone.js": "gone\n", "go.mod": "module m\n", "engine/core.js": "core\n",
		".gitignore": "data/\ncache.json\ndist/\n*.db\nnode_modules/\n",
	} {
		g.write(name, text)
	}
	g.git("init", "-q", "-b", "main")
	g.git("add", "-A")
	g.git("commit", "-q", "-m", "base")
	g.write("lib.js", "one\ntwo\nthree\nfour, which the user is about to wr")
	g.write("go.mod", "module m\n\nrequire a v1\nrequire b v1\n")
	g.write("new.js", "untracked\n")
	g.write("cache.json", "{half")
	g.write("data/orders.json", "[1]\n")
	g.write("big.db", strings.Repeat("x", 2<<20))
	g.write(".env", "KEY="+secret+"\n")
	g.write("apps/web/.env.local", "KEY="+secret+"\n")
	g.write("deploy/prod.env", "KEY="+secret+"\n")
	g.write("keys/server.pem", secret+"\n")
	g.write("dist/a.js", "built\n")
	g.write("node_modules/p/index.js", "installed\n")
	g.write("sub/file", "of another repository\n")
	cmd := exec.Command("git", "init", "-q", filepath.Join(g.root, "sub"))
	proctest.Must(t, cmd.Run())
	proctest.Must(t, os.Remove(filepath.Join(g.root, "gone.js")))
	state := filepath.Join(base, "state")
	proctest.Must(t, os.MkdirAll(filepath.Join(state, "episode"), 0o700))
	proctest.Must(t, os.WriteFile(filepath.Join(state, "key"), []byte(secret), 0o600))
	proctest.Must(t, os.WriteFile(filepath.Join(base, "home", "diary"), []byte(secret), 0o644))
	proctest.Must(t, os.Chmod(base, 0o755))
	proctest.Must(t, filepath.WalkDir(base, func(path string, d fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, uid, uid))
	}))
	command := []string{testbin.Released.Tend(bin)}
	if who.served {
		proctest.Must(t, filepath.WalkDir(state, func(path string, d fs.DirEntry, err error) error {
			return errors.Join(err, os.Lchown(path, 0, 0))
		}))
		uid = 0 // that of the daemon
	}
	if uid != 0 {
		for d := bin; d != "/" && d != os.TempDir(); d = filepath.Dir(d) {
			proctest.Must(t, os.Chmod(d, 0o755))
		}
		command = append([]string{"setpriv", "--reuid", fmt.Sprint(uid), "--regid", fmt.Sprint(uid), "--clear-groups"}, command...)
	}
	dir := proctest.Value(os.MkdirTemp("", "tend-work-"))(t) // the daemon's: root obeys no state below what belongs to another
	t.Cleanup(func() { os.RemoveAll(dir) })
	proctest.Must(t, errors.Join(os.Chmod(dir, 0o755), os.Chown(dir, uid, uid)))
	d := testdaemon.Serve(t, testdaemon.Config{Command: command, Dir: dir, Flags: who.flags})
	env := map[string]string{"PORT": "3000", "DB_PASSWORD": secret, "ANTHROPIC_API_KEY": secret, "DATABASE": "postgres://me:" + secret + "@host/db"}
	c := d.Connect(t)
	g.w = &worker{
		redact: guard.NewRedactor(), says: func(string) {}, client: c, there: c, self: self, path: os.Getenv("PATH"), environment: os.Environ(),
		order: &healer.Order{ID: "e1", Dir: filepath.Join(state, "episode"), StateDir: state, Keys: filepath.Join(state, "key"), URL: d.URL, Rules: &config.Service{Cwd: g.root, Env: env, Command: config.Command{Argv: []string{"sleep", "1003"}}}, Healer: &config.Healer{Root: g.root, Data: []string{"data"}, Protected: []string{"engine/**"}}},
	}
	if uid != 0 { // its worker would be that user, too
		g.w.path = insidePath
	}
	if who.served {
		g.w.order.Rules.User = strconv.Itoa(who.uid)
	}
	if who.boxed {
		g.enter(d, c, base, who)
	}
	p, _, err := g.w.openProject(t.Context())
	proctest.Must(t, err)
	t.Cleanup(func() { p.Close() })
	g.w.project = p
	if g.w.remote() != (who.served || who.boxed) {
		t.Fatalf("it is worked on by %T", p)
	}
	proctest.Must(t, g.w.takePoint(t.Context(), 1))
	g.h = &hands{ctx: t.Context(), w: g.w}
	return g
}

// kept is where copies of the user's work are, and copies are those.
func (g *ground) kept() string {
	if g.w.remote() {
		return g.at(filepath.Join(g.root, ".tend/heal", g.w.order.ID, healer.PointsDir, "1", "kept"))
	}
	return filepath.Join(g.w.order.Path(healer.PointsDir), "1", "kept")
}

func (g *ground) copies() []checkpoint.Kept {
	g.Helper()
	kept := proctest.Value(g.w.project.Commit(g.Context(), 1, nil))(g.T).Kept
	for i := range kept {
		kept[i].Copy = g.at(kept[i].Copy)
	}
	return kept
}

func (g *ground) git(args ...string) string {
	g.Helper()
	cmd := exec.Command("git", append([]string{"-c", "safe.directory=*", "-c", "user.name=x", "-c", "user.email=x@y", "-C", g.root}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		g.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return string(out)
}

func (g *ground) write(name, text string) {
	g.Helper()
	full := filepath.Join(g.root, filepath.FromSlash(name))
	if g.sandbox != nil {
		proctest.Must(g, g.sandbox.Files().WriteFile(g.Context(), full, []byte(text)))
		return
	}
	proctest.Must(g, os.MkdirAll(filepath.Dir(full), 0o755))
	proctest.Must(g, os.WriteFile(full, []byte(text), 0o644))
}

func (g *ground) read(name string) string {
	b, err := os.ReadFile(g.at(filepath.Join(g.root, filepath.FromSlash(name))))
	if err != nil {
		return "none"
	}
	return string(b)
}

func (g *ground) exec(line string) string {
	g.Helper()
	out, err := g.h.Exec(g.Context(), line)
	if err != nil {
		g.Fatalf("%s: %v", line, err)
	}
	return out.Output
}

// tree is all that a person would miss.
func (g *ground) tree() map[string]string {
	g.Helper()
	all := map[string]string{}
	root := g.at(g.root)
	proctest.Must(g, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() == "index" && strings.Contains(path, ".git") {
			return err
		}
		info, err := d.Info()
		if err != nil || strings.Contains(path, ".git/objects") {
			return err
		}
		text := info.Mode().String()
		if info.Mode().IsRegular() {
			text += string(proctest.Value(os.ReadFile(path))(g))
		}
		if rel := strings.TrimPrefix(path, root+"/"); rel != ".git" && rel != ".tend" && !strings.HasPrefix(rel, ".tend/heal") && !strings.HasPrefix(rel, ".git/refs") && !strings.HasPrefix(rel, ".git/logs") {
			all[rel] = text
		}
		return nil
	}))
	return all
}

// user has a daemon, or is served by one of root.
type user struct {
	uid    int
	served bool
	boxed  bool // in a sandbox
	open   bool // that is not isolated, in its own directory
	shared bool // by which the project is shared with the machine
	size   tend.SandboxSize
	flags  []string // of the daemon
}

var users = map[string]user{
	"root": {}, "another user": {uid: 65534}, "another user, by a daemon of root": {uid: 65534, served: true},
	"a user of a sandbox": {uid: 65534, served: true, boxed: true},
}

// TestNoCommandLosesTheUsersWork: whatever it does to what nobody has committed.
func TestNoCommandLosesTheUsersWork(t *testing.T) {
	for name, who := range users {
		t.Run(name, func(t *testing.T) {
			g := newGroundOf(t, who)
			before := g.tree()
			for _, line := range []string{
				"git reset --hard",
				"git stash -u; git stash drop; git checkout -- .; git clean -fdx; git restore .",
				"git show HEAD:lib.js > lib.js; git show HEAD:go.mod > go.mod",
				"git diff | git apply -R",
				"(git show HEAD:lib.js; echo; echo more) > lib.js; rm new.js cache.json",
				"printf 'other\\n' > lib.js; : > new.js; echo > go.mod; truncate -s 0 cache.json",
				"rm -f lib.js; mv new.js old.js 2>/dev/null; rm -f old.js; rm -rf go.mod; mkdir go.mod; echo x > go.mod/x; rm -rf go.mod/x",
				"rm -rf data; echo '[]' > data/orders.json; mkdir -p data; echo '[]' > data/orders.json",
				"echo x > big.db; rm -f big.db; ln -s /etc/passwd big.db",
				"rm -rf sub; mkdir -p sub; echo x > sub/file; echo x > sub/made",
				"rm -rf node_modules .git dist; rm -rf engine; echo x > engine/core.js",
				"rm -f .env keys/server.pem; echo x > .env; echo x > apps/web/.env.local; mv apps web; rm -rf .tend",
				"mkdir -p .tend/playbooks; echo x > .tend/playbooks/a.yaml; echo x > .git/hooks/pre-commit; git config core.fsmonitor 'touch /tmp/pwned'",
				"for f in * */*; do rm -f $f; ln -s /etc/passwd $f; done",
				"mv lib.js new.js; mv go.mod lib.js; cp clean.js go.mod",
			} {
				proctest.Must(t, os.RemoveAll(g.kept()))
				out := g.exec(line)
				after := g.tree()
				for path, text := range before {
					switch {
					case after[path] == text:
					case slices.ContainsFunc(g.copies(), func(k checkpoint.Kept) bool {
						data, err := os.ReadFile(k.Copy)
						return err == nil && k.Path == path && strings.HasSuffix(text, string(data))
					}):
					case strings.HasPrefix(path, "clean.js"): // git has it
					default:
						t.Errorf("%s\n%s\n%s is %.60q, and was %.60q", line, out, path, after[path], text)
					}
				}
				done := proctest.Value(g.w.project.Rollback(t.Context(), 1, false))(t)
				if len(done.Left) > 0 {
					t.Errorf("%s: not taken back is %v", line, done.Left)
				}
				after = g.tree()
				for path, text := range before {
					if after[path] != text {
						t.Errorf("%s: after a rollback %s is %.60q", line, path, after[path])
					}
					delete(after, path)
				}
				for path := range after {
					t.Errorf("%s: after a rollback there is %s", line, path)
				}
				if t.Failed() {
					return
				}
			}
		})
	}
}

// TestWhatACommandOfAModelMakesIsTakenOver: what a repair needs.
func TestWhatACommandOfAModelMakesIsTakenOver(t *testing.T) {
	for name, who := range users {
		t.Run(name, func(t *testing.T) {
			g := newGroundOf(t, who)
			for _, c := range []struct {
				line, name, want, says string
			}{
				{"mkdir -p gen/deep && echo made > gen/deep/file", "gen/deep/file", "made\n", ""},
				{"rm -r gen && mkdir gen && echo anew > gen/file", "gen/file", "anew\n", ""},
				{"test ! -e gen/deep && echo gone > gen/was", "gen/was", "gone\n", ""},
				{"sed -i s/clean/mended/ clean.js", "clean.js", "mended\n", ""},
				{"rm clean.js", "clean.js", "none", ""},
				{"git show HEAD:gone.js > gone.js", "gone.js", "gone\n", ""},
				{"sed -i '/require b/d' go.mod", "go.mod", "module m\n\nrequire a v1\n", ""},
				{"sed 's/^/  /' lib.js > x && cat x > lib.js && rm x", "lib.js", "  one\n  two\n  three\n  four, which the user is about to wr", ""},
				{`echo '{"whole": 1}' > cache.json`, "cache.json", "{\"whole\": 1}\n", ""},
				{"echo rebuilt > dist/a.js; echo b > dist/b.js", "dist/b.js", "b\n", ""},
				{"echo x > engine/core.js", "engine/core.js", "core\n", "protected"},
				{"git checkout -q -- lib.js", "lib.js", "  one\n  two\n  three\n  four, which the user is about to wr", "no command may do"},
				{"cat .env keys/server.pem apps/web/.env.local deploy/prod.env ../diary ../../state/key $HOME/../diary; env; git log --format=%s | head -1", "new.js", "untracked\n", "base"},
				{"dd if=/dev/zero of=huge bs=1M count=40", "huge", "none", "more than 32 MiB"},
				{"kill -9 $$", "new.js", "untracked\n", ""},
			} {
				out := g.exec(c.line)
				if got := g.read(c.name); got != c.want || !strings.Contains(out, c.says) {
					t.Errorf("%s\n%s\n%s is %.80q", c.line, out, c.name, got)
				}
				if strings.Contains(out, secret) {
					t.Errorf("%s shows a secret:\n%s", c.line, out)
				}
			}
			// What was uncommitted and has changed is in a copy, once.
			kept := map[string]string{}
			for _, k := range g.copies() {
				kept[k.Path] += string(proctest.Value(os.ReadFile(k.Copy))(t))
			}
			want := map[string]string{"go.mod": "module m\n\nrequire a v1\nrequire b v1\n", "lib.js": "one\ntwo\nthree\nfour, which the user is about to wr", "cache.json": "{half"}
			if !maps.Equal(kept, want) {
				t.Errorf("kept are %q", kept)
			}
		})
	}
}

// TestInASandboxThatIsNotIsolatedNoCommandRuns: its directory is in the daemon's own, of which nothing
// is seen in a view. What a person allows is not there either.
func TestInASandboxThatIsNotIsolatedNoCommandRuns(t *testing.T) {
	g := newGroundOf(t, user{boxed: true, open: true})
	if out, err := g.h.Exec(t.Context(), "echo x > new.js"); !errors.Is(err, project.ErrNoCommands) {
		t.Errorf("a command has %+v, %v", out, err)
	}
	state := g.w.order.StateDir
	if path, err := g.w.project.Where(t.Context(), g.root+"/lib.js"); err != nil || path != g.root+"/lib.js" {
		t.Errorf("a file of the project that a person allows is %q, %v", path, err)
	}
	for _, name := range []string{"spool", "identity"} {
		if path, err := g.w.project.Where(t.Context(), filepath.Join(state, name)); err == nil {
			t.Errorf("a person may allow %s", path)
		}
	}
}

// TestAChangeIsJudgedBeforeItIsMade: rules see of what is only to be made what they see of it once it is.
func TestAChangeIsJudgedBeforeItIsMade(t *testing.T) {
	for _, name := range []string{"root", "another user, by a daemon of root"} {
		t.Run(name, func(t *testing.T) {
			g := newGroundOf(t, users[name])
			changes := []view.Change{
				{Path: "clean.js", Kind: view.Gone}, {Path: "lib.js", Kind: view.File,
					Data: []byte("one\ntwo\nthree\n")}, {Path: "new.js", Kind: view.File, Data: []byte("other\n")},
				{Path: "gone.js", Kind: view.File, Data: []byte("gone\n")}, {Path: "made.js", Kind: view.File,
					Data: []byte("made\n")}, {Path: "go.mod", Kind: view.File, Data: []byte("module n\n")},
			}
			before := proctest.Value(g.w.project.Preview(t.Context(), changes))(t)
			proctest.Must(t, g.w.project.Apply(t.Context(), changes))
			after := proctest.Value(g.w.project.Review(t.Context(), 1))(t).Files
			for _, all := range [][]agent.FileDiff{before, after} {
				slices.SortFunc(all, func(a, b agent.FileDiff) int { return strings.Compare(a.Path, b.Path) })
			}
			if diff := cmp.Diff(after, before); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestWhatOthersChangeDuringACommandStays: the command's version does not take its place.
func TestWhatOthersChangeDuringACommandStays(t *testing.T) {
	g := newGround(t, 0)
	done := make(chan string, 1)
	go func() {
		out, err := g.h.Exec(t.Context(), "go=; trap 'go=1' USR1; : its turn; cp clean.js c; while test -z \"$go\"; do sleep 0.01; done; echo command > clean.js; echo command > lib.js; echo theirs > made.js")
		done <- fmt.Sprint(out.Output, err)
	}()
	shell := 0
	proctest.Eventually(t, "the command waits", func() bool {
		all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, f := range all {
			b, err := os.ReadFile(f)
			if err != nil || !strings.HasPrefix(string(b), "/bin/sh\x00-c\x00go=; trap") {
				continue
			}
			if status, err := os.ReadFile(filepath.Join(filepath.Dir(f), "status")); err == nil {
				_, caught, _ := strings.Cut(string(status), "SigCgt:\t")
				caught, _, _ = strings.Cut(caught, "\n")
				if mask, err := strconv.ParseUint(caught, 16, 64); err == nil && mask&(1<<(syscall.SIGUSR1-1)) != 0 {
					shell, err = strconv.Atoi(filepath.Base(filepath.Dir(f)))
					return err == nil
				}
			}
		}
		return false
	})
	g.write("clean.js", "the user's, meanwhile\n")
	g.write("lib.js", "one\ntwo\nthree\nfour, which is whole now\n")
	g.write("also.js", "the user's, too\n")
	proctest.Must(t, syscall.Kill(shell, syscall.SIGUSR1))
	out := <-done
	for name, want := range map[string]string{"clean.js": "the user's, meanwhile\n", "lib.js": "one\ntwo\nthree\nfour, which is whole now\n", "also.js": "the user's, too\n", "made.js": "theirs\n"} {
		if got := g.read(name); got != want {
			t.Errorf("%s is %q\n%s", name, got, out)
		}
	}
	if !strings.Contains(out, "clean.js was left as it is: somebody else has changed it meanwhile") {
		t.Error(out)
	}
	proctest.Value(g.w.project.Rollback(t.Context(), 1, false))(t)
	if got := g.read("clean.js") + g.read("also.js") + g.read("made.js") + g.read("c"); got != "the user's, meanwhile\nthe user's, too\nnonenone" {
		t.Errorf("after a rollback: %q", got)
	}
}
