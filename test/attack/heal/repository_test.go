//go:build linux

package heal

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/heal/checkpoint"
	"github.com/tend-run/tend/internal/heal/guard"
	"github.com/tend-run/tend/internal/heal/project"
	"github.com/tend-run/tend/internal/support/proctest"
)

// repository is one that somebody hostile has made, and in which the person works.
type repository struct {
	*testing.T
	base, dir string
	ran       string // is made by any program that its configuration names
	redact    *guard.Redactor
	open      project.Opened
	broken    bool // no checkpoint can be taken of it, or no commit be made
	dirty     bool // of a rollback it is said that it may not be whole
}

func newRepository(t *testing.T) *repository {
	base := proctest.Value(filepath.EvalSymlinks(t.TempDir()))(t)
	r := &repository{T: t, base: base, dir: filepath.Join(base, "app"), ran: filepath.Join(base, "ran"), redact: guard.NewRedactor()}
	r.write("../outside/theirs", "of somebody else\n")
	r.write(".env", "KEY="+former+"\n")
	for name, text := range map[string]string{
		"part.txt": "bad\n", "lib/a.txt": "a\n", "other.txt": "one\n", ".gitignore": "ignored/\n.env\n",
	} {
		r.write(name, text)
	}
	r.git("init", "-q", "-b", "main")
	r.git("add", "-f", "-A")
	r.git("commit", "-q", "-m", "base")
	r.git("rm", "-q", "--cached", ".env")
	r.git("commit", "-q", "-m", "no secrets")
	r.write("other.txt", "one\ntwo, which the person is about to write\n")
	r.write("new.txt", "not tracked\n")
	r.write("ignored/cache", "1\n")
	r.write(".env", "KEY="+secret+"\n")
	return r
}

func (r *repository) path(name string) string { return filepath.Join(r.dir, name) }

func (r *repository) write(name, text string) {
	r.Helper()
	proctest.Must(r, os.MkdirAll(filepath.Dir(r.path(name)), 0o755))
	proctest.Must(r, os.WriteFile(r.path(name), []byte(text), 0o644))
}

func (r *repository) gitIn(dir string, args ...string) string {
	r.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_OPTIONAL_LOCKS=0",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
	out, err := cmd.Output()
	if err != nil {
		r.Fatalf("git %q: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (r *repository) git(args ...string) string { return r.gitIn(r.dir, args...) }

// local opens the project as a worker does.
func (r *repository) local() *project.Local {
	r.Helper()
	state := filepath.Join(r.base, "state")
	proctest.Must(r, os.MkdirAll(filepath.Join(state, "episode"), 0o700))
	l, opened, err := project.Open(project.Config{
		ID: "e1", Root: r.dir, Cwd: r.dir, Dir: filepath.Join(state, "episode"), StateDir: state, Redact: r.redact,
	})
	proctest.Must(r, err)
	r.open = opened
	return l
}

// seen is all that must be as it was.
func (r *repository) seen() map[string]string {
	all := snapshot(r, r.base)
	for path := range all {
		if strings.HasPrefix(path, filepath.Join(r.base, "state")) {
			delete(all, path)
		}
	}
	return all
}

// harm is what a remedy does that does not help: the worst that a playbook's program can.
func (r *repository) harm() {
	r.Helper()
	for name, text := range map[string]string{
		"part.txt": "worse\n", "other.txt": "", "lib/a.txt": "owned\n", "made/by/it.txt": "x\n",
		".gitignore": "*\n", ".gitattributes": "* filter=evil\n",
	} {
		r.write(name, text)
	}
	proctest.Must(r, os.Remove(r.path("new.txt")))
	proctest.Must(r, os.Symlink("../outside/theirs", r.path("new.txt")))
}

// rolledBack makes an attempt, which is rolled back.
func (r *repository) rolledBack() {
	r.Helper()
	l := r.local()
	defer l.Close()
	before := r.seen()
	if err := l.Take(r.Context(), 1); err != nil {
		if !r.broken {
			r.Fatal(err)
		}
		r.same(before)
		return
	}
	proctest.Must(r, l.Absorb(r.Context()))
	r.harm()
	proctest.Must(r, l.Mark(r.Context()))
	out, err := l.Rollback(r.Context(), 1, false)
	if (err != nil) != r.dirty || len(out.Left) > 0 {
		r.Errorf("this was left: %+v, %v", out.Left, err)
	}
	proctest.Must(r, l.Drop(r.Context(), 1))
	r.same(before)
}

// committed makes one that helps.
func (r *repository) committed() {
	r.Helper()
	l := r.local()
	defer l.Close()
	before := r.seen()
	if err := l.Take(r.Context(), 1); err != nil && r.broken {
		return
	} else if err != nil {
		r.Fatal(err)
	}
	proctest.Must(r, l.Absorb(r.Context()))
	proctest.Must(r, l.WriteFile(r.Context(), "part.txt", []byte("good\n")))
	proctest.Must(r, l.Mark(r.Context()))
	done, err := l.Commit(r.Context(), 1, &checkpoint.Commit{
		Message: "Repair\x1b[2J web\u009b2J\n\nit is well\r now", Trailers: map[string]string{"Heal-Id": "e1"},
	})
	if err != nil && r.broken {
		proctest.Value(l.Rollback(r.Context(), 1, false))(r.T)
		proctest.Must(r, l.Drop(r.Context(), 1))
		r.same(before)
		return
	}
	proctest.Must(r, err)
	proctest.Must(r, l.Drop(r.Context(), 1))
	now := r.seen()
	if done.Hash != "" {
		if got := r.git("show", "--name-only", "--format=", done.Hash); got != "part.txt" {
			r.Errorf("the commit has %q", got)
		}
		if got := r.git("show", "-s", "--format=%B", done.Hash); strings.ContainsAny(got, "\x1b\r\u009b") {
			r.Errorf("the message of the commit is %q", got)
		}
	}
	for path := range now { // what a commit changes
		_, rest, ofGit := strings.Cut(path, "/.git/")
		if path == r.path("part.txt") || ofGit && !strings.HasPrefix(rest, "hooks") && !strings.HasPrefix(rest, "config") {
			delete(now, path)
			delete(before, path)
		}
	}
	for path := range before {
		if strings.Contains(path, "/.git/refs/") || strings.Contains(path, "/.git/logs/") {
			delete(before, path)
		}
	}
	if diff := changed(before, now); diff != "" {
		r.Errorf("more than the repair has changed: %s", diff)
	}
}

func (r *repository) same(before map[string]string) {
	r.Helper()
	if diff := changed(before, r.seen()); diff != "" {
		r.Errorf("not as it was: %s", diff)
	}
}

// programs are settings that name a program.
func programs(run string) string {
	return fmt.Sprintf(`[core]
	fsmonitor = %[1]s
	hooksPath = hooks
	editor = %[1]s
	pager = %[1]s
	askPass = %[1]s
	sshCommand = %[1]s
	gitProxy = %[1]s
	alternateRefsCommand = %[1]s
[log]
	showSignature = true
[commit]
	gpgSign = true
[gpg]
	program = %[1]s
[gpg "ssh"]
	program = %[1]s
	defaultKeyCommand = %[1]s
[filter "evil"]
	clean = %[1]s
	smudge = %[1]s
	process = %[1]s
	required = true
[diff]
	external = %[1]s
[diff "evil"]
	command = %[1]s
	textconv = %[1]s
[merge "evil"]
	driver = %[1]s
[hook "evil"]
	command = %[1]s
	event = reference-transaction
	event = post-index-change
[trailer "evil"]
	command = %[1]s
[credential]
	helper = "!%[1]s"
[pager]
	log = %[1]s
[extensions]
	partialClone = evil
[remote "evil"]
	promisor = true
	url = ext::%[1]s
	uploadpack = %[1]s
	vcs = evil
[protocol "ext"]
	allow = always
`, run)
}

// TestAHostileRepository: in each form a repair is rolled back, and another is committed, and
// neither harms anything.
func TestAHostileRepository(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		won  string
		make func(r *repository)
	}{
		"names programs in its configuration, for all that git does": {"a program runs with the rights of the daemon", func(r *repository) {
			config := proctest.Value(os.ReadFile(r.path(".git/config")))(r.T)
			r.write(".git/config", string(config)+programs("touch "+r.ran))
			r.write(".git/info/attributes", "* filter=evil diff=evil merge=evil\n")
			for _, hook := range []string{"pre-commit", "post-index-change", "reference-transaction", "post-checkout", "fsmonitor-watchman"} {
				r.write(".git/hooks/"+hook, "#!/bin/sh\ntouch "+r.ran+"\n")
				proctest.Must(r, os.Chmod(r.path(".git/hooks/"+hook), 0o755))
			}
		}},
		"includes such a configuration, if it is in this directory": {"the same", func(r *repository) {
			r.write("../evil.conf", programs("touch "+r.ran))
			r.git("config", "includeIf.gitdir:"+r.dir+"/.path", r.base+"/evil.conf")
			r.git("config", "include.path", "../../evil.conf")
		}},
		"is a work tree of another, and has a configuration of its own": {"the same, and a commit on another branch", func(r *repository) {
			main := r.base + "/main"
			r.gitIn(r.base, "clone", "-q", r.dir, main)
			proctest.Must(r, os.RemoveAll(r.dir))
			r.gitIn(main, "worktree", "add", "-q", "-b", "side", r.dir)
			r.gitIn(main, "config", "extensions.worktreeConfig", "true")
			r.write("../main/.git/worktrees/app/config.worktree", programs("touch "+r.ran))
			r.write("other.txt", "one\ntwo\n")
			r.write("new.txt", "not tracked\n")
			r.write(".env", "KEY="+secret+"\n")
		}},
		"has the objects of another repository, and commands for its refs": {"objects that are not its own are read, and a program " +
			"runs", func(r *repository) {
			r.gitIn(r.base, "clone", "-q", "--bare", r.dir, r.base+"/theirs")
			r.write(".git/objects/info/alternates", r.base+"/theirs/objects\n"+r.base+"/none\n/dev/null\n")
		}},
		"cuts its history, so that a former secret is found by nobody": {"a former value of .env, by a command that knows its " +
			"name", func(r *repository) {
			r.write(".git/info/grafts", r.git("rev-parse", "HEAD")+"\n")
		}},
		"replaces commits by others": {"a former value of .env, and a commit on another parent", func(r *repository) {
			empty := r.git("commit-tree", r.git("rev-parse", "HEAD^{tree}"), "-m", "nothing before")
			r.git("replace", r.git("rev-parse", "HEAD"), empty)
		}},
		"has names that are lines, options, escapes, globs and no UTF-8": {"a name is taken for another, or for an option", func(r *repository) {
			for _, name := range []string{
				"caf\xe9.txt", "a\nb", "\x1b[2J", "-rf", "--help", ":(glob)**", `"quoted"`, `back\slash`, "tab\there", "*", "dir\xff/\xfe",
			} {
				r.write(name, "theirs\n")
			}
			r.git("add", "--", "./caf\xe9.txt", "./-rf", "./dir\xff")
			r.git("commit", "-q", "-m", "names")
			r.write("caf\xe9.txt", "theirs, and not committed\n")
		}},
		"has names that differ in their letters alone": {"one is written in the place of the other", func(r *repository) {
			for _, name := range []string{"Part.txt", "PART.TXT", "LIB/a.txt", "lib/A.txt", ".Env", "NEW.txt"} {
				r.write(name, name+"\n")
			}
		}},
		"is deeper than any path can be": {"the worker ends, or an attempt is left half", func(r *repository) {
			r.broken = true
			at := proctest.Value(os.OpenRoot(r.dir))(r.T)
			deep := strings.Repeat("d", 200)
			for range 30 {
				proctest.Must(r, at.Mkdir(deep, 0o755))
				next := proctest.Value(at.OpenRoot(deep))(r.T)
				at.Close()
				at = next
			}
			proctest.Must(r, at.WriteFile("deep.txt", []byte("x"), 0o644))
			at.Close()
		}},
		"has FIFOs, sockets, devices, and links to themselves": {"the worker waits for ever, or reads without end", func(r *repository) {
			proctest.Must(r, syscall.Mkfifo(r.path("lib/pipe"), 0o644))
			proctest.Must(r, syscall.Mknod(r.path("lib/zero"), syscall.S_IFCHR|0o666, int(unix.Mkdev(1, 5))))
			l := proctest.Value(net.ListenUnix("unix", &net.UnixAddr{Name: r.path("s")}))(r.T)
			l.SetUnlinkOnClose(false)
			l.Close()
			for name, to := range map[string]string{"loop": "loop", "lib/up": "..", "zero": "/dev/zero", "proc": "/proc/self/fd/0"} {
				proctest.Must(r, os.Symlink(to, r.path(name)))
			}
		}},
		"has hard links to files outside": {"a file outside is changed by a rollback", func(r *repository) {
			proctest.Must(r, os.Link(r.path("../outside/theirs"), r.path("linked.txt")))
		}},
		"has its work tree elsewhere": {"a rollback writes there", func(r *repository) { r.git("config", "core.worktree", "../../outside") }},
		"is a link to the repository of another user": {"a commit in a repository of somebody else", func(r *repository) {
			proctest.Must(r, os.Rename(r.path(".git"), r.path("../theirs.git")))
			for _, path := range []string{r.path("../theirs.git"), r.path("../theirs.git/config")} {
				proctest.Must(r, os.Chown(path, 65534, 65534))
			}
			proctest.Must(r, os.Symlink("../theirs.git", r.path(".git")))
		}},
		"has a HEAD that names a file outside": {
			"a ref is written there", func(r *repository) { r.write(".git/HEAD", "ref: ../../outside/theirs\n") },
		},
		"keeps a lock of its index for ever": {
			"work that is staged is lost, or the repair never ends", func(r *repository) {
				r.broken = true
				r.write(".git/index.lock", "")
			},
		},
		"has playbooks that are FIFOs, devices and bombs": {"no repair begins any more", func(r *repository) {
			r.write(".tend/playbooks/bomb.yaml", "a: &a [x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a]\nc: &c [*b, *b, *b, *b, "+
				"*b, *b, *b]\nd: [*c, *c, *c, *c, *c, *c]\n")
			r.write(".tend/playbooks/deep.yaml", strings.Repeat("[", 60_000))
			proctest.Must(r, syscall.Mkfifo(r.path(".tend/playbooks/fifo.yaml"), 0o644))
			proctest.Must(r, os.Symlink("/dev/zero", r.path(".tend/playbooks/zero.yaml")))
		}},
		"has a .tend that is a link to another directory": {
			"files of tend's are written there, or removed",
			func(r *repository) {
				r.dirty = true
				proctest.Must(r, os.Symlink("../outside", r.path(".tend")))
			},
		},
		"has files of variables that are FIFOs, directories and without end": {"no repair begins any more", func(r *repository) {
			proctest.Must(r, syscall.Mkfifo(r.path("lib/.env"), 0o644))
			proctest.Must(r, os.MkdirAll(r.path("a/.env"), 0o755))
			proctest.Must(r, os.Symlink("/dev/zero", r.path(".env.local")))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			proctest.Root(t)
			t.Parallel()
			r := newRepository(t)
			c.make(r)
			defer func() {
				if _, err := os.Lstat(r.ran); err == nil {
					t.Error("a program of the repository ran")
				}
				for _, s := range []string{secret, former} {
					if got := r.redact.Text("it is " +
						"" + s); strings.Contains(got, s) && !strings.Contains(strings.Join(r.open.Notes, "\n"), "commands do not see the git "+
						"repository") {
						t.Errorf("%s is no secret", s)
					}
				}
				if t.Failed() {
					t.Logf("won: %s; notes: %q", c.won, r.open.Notes)
				}
			}()
			r.rolledBack()
			r.committed()
		})
	}
	t.Run("holds a file that is many bytes, and takes none", func(t *testing.T) {
		t.Parallel()
		// won: the memory of the machine, where the kernel bounds none
		r := newRepository(t)
		cmd := exec.Command("sh", "-c", "head -c 270M /dev/zero | git -c core.looseCompression=1 hash-object -w --stdin")
		cmd.Dir = r.dir
		blob := strings.TrimSpace(string(proctest.Value(cmd.Output())(t)))
		r.git("update-index", "--add", "--cacheinfo", "100644,"+blob+",bomb.bin")
		r.git("commit", "-q", "-m", "bomb")
		r.write("bomb.bin", "small\n")
		before := r.seen()
		p := proctest.Value(checkpoint.Take(t.Context(), checkpoint.Options{Root: r.dir, Dir: filepath.Join(r.base, "state"), ID: "e1"}))(t)
		s := proctest.Value(p.Standings(t.Context()))(t)
		if data, err := s.Head(t.Context(), "bomb.bin"); err == nil || !strings.Contains(err.Error(), "writes more than") {
			t.Errorf("won: %d bytes are read, %v", len(data), err)
		}
		proctest.Must(t, p.Drop(t.Context()))
		r.same(before)
	})
	t.Run("has 60,000 files before the one with its secrets", func(t *testing.T) {
		t.Parallel()
		// won: values of .env, as the service writes them to its log
		r := newRepository(t)
		proctest.Must(t, os.Remove(r.path(".env")))
		proctest.Must(t, os.Mkdir(r.path("assets"), 0o755))
		at := proctest.Value(os.OpenRoot(r.path("assets")))(t)
		defer at.Close()
		for i := range 60_000 {
			proctest.Must(t, at.WriteFile(fmt.Sprint(i), nil, 0o644))
		}
		r.write("web/.env", "KEY="+unborn+"\n")
		proctest.Must(t, r.local().Close())
		if got := r.redact.Text("KEY=" + unborn); strings.Contains(got, unborn) {
			t.Errorf("won: it is told %q", got)
		}
	})
}
