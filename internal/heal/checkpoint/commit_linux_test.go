package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
	"pgregory.net/rapid"
)

var repair = Commit{Message: "Repair the service\n\nIt works again.", Trailers: map[string]string{"Signal": "exit", "Heal-Id": "ep\n1"}}

// The last commit gets what the healer has done, by lines; what the user has not committed, or
// has staged, is still just that.
func TestACommitHoldsWhatTheHealerChanged(t *testing.T) {
	lines := "1\n2\n3\n4\n5\n6\n7\n8\n9\n"
	with := func(edits ...string) string { return strings.NewReplacer(edits...).Replace(lines) }
	w := newWorld(t, true, map[string]string{
		"clean.txt": lines, "dirty.txt": lines, "staged.txt": lines, "staged2.txt": lines, "clash.txt": lines, "gone.txt": "g", "run.sh": "#!\n", "crlf.txt": "a\nb\nc\nd\ne\n",
		".gitignore": "*.log\n", ".gitattributes": "*.secret filter=crypt\n", "x.secret": "s", "file": "f", "deleted.txt": "by the user\n", "back.txt": lines,
	})
	w.write(map[string]string{
		"dirty.txt": with("8", "eight by the user"), "staged.txt": with("1", "one, staged"), "clash.txt": with("5", "FIVE by the user"), "untracked.txt": lines, "new-staged.txt": lines,
		"crlf.txt": "a\r\nb\r\nc\r\nd\r\ne\r\n", "back.txt": with("5", "broken"),
	})
	w.git("add", "staged.txt", "new-staged.txt")
	w.write(map[string]string{"staged.txt": with("1", "one, staged", "9", "nine, not staged")})
	proctest.Must(t, os.Remove(w.path("deleted.txt")))
	hooks := w.path(".git/hooks")
	for _, hook := range []string{"pre-commit", "commit-msg", "reference-transaction", "post-commit"} {
		proctest.Must(t, os.WriteFile(filepath.Join(hooks, hook), []byte("#!/bin/sh\ntouch "+w.path("hook-ran")+"\nexit 1\n"), 0o755))
	}
	w.git("config", "commit.gpgSign", "true")
	w.git("config", "gpg.program", "/bin/false")
	w.git("config", "filter.crypt.clean", "touch "+w.path("filter-ran"))
	userDiff, userStaged := w.git("diff", "--", "dirty.txt"), w.git("diff", "--cached")
	p := w.take()
	w.write(map[string]string{
		"clean.txt": with("2", "two"), "dirty.txt": with("2", "two", "8", "eight by the user"), "staged.txt": with("1", "one, staged", "5", "five", "9", "nine, not staged"),
		"clash.txt": with("5", "five by the healer"), "added/new.txt": "new\n", "untracked.txt": "healer\n", "new-staged.txt": "healer\n", "crlf.txt": "a\r\nb\r\nCC\r\nd\r\ne\r\n",
		"debug.log": "x", "y.secret": "plain text of a secret", "deleted.txt": "other\n", "back.txt": lines, "not-named.txt": "x",
	})
	proctest.Must(t, os.Remove(w.path("gone.txt")))
	proctest.Must(t, os.Remove(w.path("file")))
	w.write(map[string]string{"file/inner.txt": "i\n"})
	proctest.Must(t, os.Symlink("clean.txt", w.path("link")))
	proctest.Must(t, os.Chmod(w.path("run.sh"), 0o755))
	proctest.Must(t, p.Mark(t.Context()))
	work := w.tree()

	c := repair
	for _, ch := range proctest.Value(p.Changes(t.Context()))(t) {
		if ch.Path != "not-named.txt" {
			c.Paths = append(c.Paths, ch.Path)
		}
		if wantDirty := slices.Contains([]string{"dirty.txt", "staged.txt", "clash.txt", "untracked.txt", "new-staged.txt", "crlf.txt", "back.txt", "deleted.txt"}, ch.Path); ch.Dirty != wantDirty || ch.AtHead != (ch.Path == "back.txt") {
			t.Errorf("%+v; want dirty: %v", ch, wantDirty)
		}
	}
	done := proctest.Value(p.Commit(t.Context(), c))(t)
	w.want("the work tree after Commit", work)
	if want := []string{"added/new.txt", "clean.txt", "crlf.txt", "dirty.txt", "file", "file/inner.txt", "gone.txt", "link", "run.sh", "staged.txt"}; !slices.Equal(done.Paths, want) {
		t.Errorf("committed %q; want %q", done.Paths, want)
	}
	left := map[string]string{}
	for _, l := range done.Left {
		left[l.Path] = l.Reason
	}
	if want := []string{"clash.txt", "debug.log", "deleted.txt", "new-staged.txt", "untracked.txt", "y.secret"}; !slices.Equal(slices.Sorted(maps.Keys(left)), want) {
		t.Errorf("left %v; want %q", left, want)
	}
	for name, want := range map[string]string{"clean.txt": with("2", "two"), "dirty.txt": with("2", "two"), "staged.txt": with("5", "five"), "crlf.txt": "a\nb\nCC\nd\ne\n", "clash.txt": lines, "file/inner.txt": "i\n", "link": "clean.txt"} {
		if got := w.git("show", "HEAD:"+name); got != want {
			t.Errorf("HEAD has %s as %q; want %q", name, got, want)
		}
	}
	if got := w.git("diff", "--", "dirty.txt"); got[strings.Index(got, "---"):] != userDiff[strings.Index(userDiff, "---"):] && !strings.Contains(got, "+eight by the user") {
		t.Errorf("the user's uncommitted change was\n%s\nand is\n%s", userDiff, got)
	}
	if got := w.git("diff", "--cached", "--stat"); got != " new-staged.txt | 9 +++++++++\n staged.txt     | 2 +-\n 2 files changed, 10 insertions(+), 1 deletion(-)\n" || !strings.Contains(userStaged, "one, staged") {
		t.Errorf("staged is now\n%s", got)
	}
	if got := w.git("log", "-1", "--format=%an|%cn|%P|%B"); got != "tend healer|tend healer|"+strings.TrimSpace(w.git("rev-parse", "HEAD~"))+"|Repair the service\n\nIt works again.\n\nHeal-Id: ep 1\nSignal: exit\n\n" {
		t.Errorf("the commit is %q", got)
	}
	if got := strings.TrimSpace(w.git("rev-parse", "main")); got != done.Hash {
		t.Errorf("main is %s; want %s", got, done.Hash)
	}
	w.git("fsck", "--strict")

	// What is in lines of the user is committed if that is asked for.
	over := repair
	over.Overlap, over.Paths = true, []string{"clash.txt"}
	if done := proctest.Value(p.Commit(t.Context(), over))(t); done.Hash == "" || w.git("show", "HEAD:clash.txt") != with("5", "five by the healer") {
		t.Errorf("%+v: %q", done, w.git("show", "HEAD:clash.txt"))
	}
	// There is nothing left to commit.
	if done := proctest.Value(p.Commit(t.Context(), c))(t); done.Hash != "" {
		t.Errorf("committed again: %+v", done)
	}
}

// A link in place of a directory is committed, and so is that what was in it is gone.
func TestALinkInPlaceOfADirectory(t *testing.T) {
	w := newWorld(t, true, map[string]string{"data/a/b.txt": "b\n", "data/c.txt": "c\n", "other/x.txt": "x\n"})
	p := w.take()
	proctest.Must(t, os.RemoveAll(w.path("data")))
	proctest.Must(t, os.Symlink("other", w.path("data")))
	proctest.Must(t, p.Mark(t.Context()))
	done := proctest.Value(p.Commit(t.Context(), repair))(t)
	if want := []string{"data", "data/a/b.txt", "data/c.txt"}; !slices.Equal(done.Paths, want) {
		t.Errorf("committed %q, left %v; want %q", done.Paths, done.Left, want)
	}
	if got := w.git("status", "--porcelain"); got != "" {
		t.Errorf("git has uncommitted changes: %s", got)
	}
}

// A file that the user has staged, and then deleted, is the user's, whatever comes in its
// place.
func TestAStagedFileThatWasDeletedIsLeft(t *testing.T) {
	w := newWorld(t, true, map[string]string{"a.txt": "a\n"})
	w.write(map[string]string{"staged.txt": "by the user\n"})
	w.git("add", "staged.txt")
	proctest.Must(t, os.Remove(w.path("staged.txt")))
	staged := w.git("diff", "--cached")
	p := w.take()
	w.write(map[string]string{"staged.txt": "by the healer\n", "a.txt": "b\n"})
	proctest.Must(t, p.Mark(t.Context()))
	done := proctest.Value(p.Commit(t.Context(), repair))(t)
	if !slices.Equal(done.Paths, []string{"a.txt"}) || len(done.Left) != 1 || done.Left[0].Path != "staged.txt" || !strings.Contains(done.Left[0].Reason, "staged") {
		t.Errorf("%+v", done)
	}
	if got := w.git("diff", "--cached"); got != staged {
		t.Errorf("staged was\n%s\nand is\n%s", staged, got)
	}
}

// A user's lines that the healer repaired are committed with the repair; other lines of
// the file are not.
func TestOnlyLinesThatMeetAreCommittedTogether(t *testing.T) {
	w := newWorld(t, true, map[string]string{"config.json": "{\n  \"title\": \"Old\",\n  \"a\": 1,\n  \"b\": 2,\n  \"theme\": {}\n}\n"})
	w.write(map[string]string{"config.json": "{\n  \"title\": \"New\",\n  \"a\": 1,\n  \"b\": 2,\n  \"theme\": { \"name\": \"pl"})
	p := w.take()
	w.write(map[string]string{"config.json": "{\n  \"title\": \"New\",\n  \"a\": 1,\n  \"b\": 2,\n  \"theme\": { \"name\": \"plain\" }\n}\n"})
	c := repair
	c.Overlap = true
	if done := proctest.Value(p.Commit(t.Context(), c))(t); done.Hash == "" {
		t.Fatalf("%+v", done)
	}
	if got, want := w.git("show", "HEAD:config.json"), "{\n  \"title\": \"Old\",\n  \"a\": 1,\n  \"b\": 2,\n  \"theme\": { \"name\": \"plain\" }\n}\n"; got != want {
		t.Errorf("HEAD has %q; want %q", got, want)
	}
}

// Data that could not be read, and of which the repaired lines are what the last commit
// has, is committed as a whole: nobody could use what the user wrote into it before.
func TestDataThatWasCompletedIsCommittedWhole(t *testing.T) {
	head := "{\n  \"title\": \"Old\",\n  \"limits\": 1,\n  \"theme\": {}\n}\n"
	half, whole := "{\n  \"title\": \"New\",\n  \"limits\": 1,\n  \"the", strings.Replace(head, "Old", "New", 1)
	w := newWorld(t, true, map[string]string{"config.json": head, "notes.txt": head})
	w.write(map[string]string{"config.json": half, "notes.txt": half})
	p := w.take()
	w.write(map[string]string{"config.json": whole, "notes.txt": whole})
	c := repair
	c.Overlap = true
	done := proctest.Value(p.Commit(t.Context(), c))(t)
	if got := w.git("show", "HEAD:config.json"); got != whole || len(done.Left) != 1 {
		t.Errorf("HEAD has %q: %+v", got, done)
	}
	if got := w.git("show", "HEAD:notes.txt"); got != head {
		t.Errorf("what is no data is committed, too: %q", got)
	}
}

// Where git is in the middle of something, or not at all, nothing is committed, nothing is
// changed, and the reason is said.
func TestNothingIsCommittedWhereThatWouldDoHarm(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(w *world)
		reason  string
	}{
		"a merge with conflicts": {func(w *world) {
			w.git("checkout", "-q", "-b", "other")
			w.write(map[string]string{"b.txt": "theirs\n"})
			w.git("commit", "-qam", "theirs")
			w.git("checkout", "-q", "main")
			w.write(map[string]string{"b.txt": "ours\n"})
			w.git("commit", "-qam", "ours")
			w.tryGit("merge", "other")
		}, "a merge"},
		"a rebase": {func(w *world) {
			w.git("checkout", "-q", "-b", "other")
			w.write(map[string]string{"b.txt": "theirs\n"})
			w.git("commit", "-qam", "theirs")
			w.git("checkout", "-q", "main")
			w.write(map[string]string{"b.txt": "ours\n"})
			w.git("commit", "-qam", "ours")
			w.tryGit("rebase", "other")
		}, "a rebase"},
		"no commit yet": {func(w *world) {
			w.git("update-ref", "-d", "HEAD")
		}, "no commit yet"},
		"a locked index": {func(w *world) {
			w.write(map[string]string{".git/index.lock": ""})
		}, ""},
		"a locked HEAD": {func(w *world) {
			w.write(map[string]string{".git/HEAD.lock": ""})
		}, ""},
		"a locked branch": {func(w *world) {
			w.write(map[string]string{".git/refs/heads/main.lock": ""})
		}, ""},
		"no git": {func(w *world) {
			proctest.Must(w.t, os.RemoveAll(w.path(".git")))
		}, "it is in no git repository"},
		"no git program": {func(w *world) {
			w.t.(*testing.T).Setenv("PATH", w.t.TempDir())
		}, "there is no git program"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, true, map[string]string{"a.txt": "a\n", "b.txt": "b\n"})
			c.prepare(w)
			state := func() string {
				switch name {
				case "no git":
					return ""
				case "no git program": // what it would say cannot be asked
					index, _ := os.ReadFile(w.path(".git/index"))
					return string(index)
				case "a locked HEAD", "a locked branch": // what was staged is taken back
					return w.git("for-each-ref", "refs/heads") + w.git("ls-files", "--stage")
				}
				index, _ := os.ReadFile(w.path(".git/index"))
				return w.git("for-each-ref", "refs/heads") + string(index)
			}
			before, tree := state(), w.tree()
			p := w.take()
			w.write(map[string]string{"a.txt": "healer\n"})
			done, err := p.Commit(t.Context(), repair)
			if c.reason == "" && !errors.Is(err, errMoved) || c.reason != "" && (err != nil || len(done.Left) != 1 || !strings.Contains(done.Left[0].Reason, c.reason)) || done.Hash != "" {
				t.Errorf("%+v, %v; want %q", done, err, c.reason)
			}
			if locked := strings.HasPrefix(name, "a locked "); locked && !(strings.Contains(fmt.Sprint(err), ".lock is there: ") && strings.HasSuffix(fmt.Sprint(err), "remove the file")) {
				t.Errorf("it is said to be: %v", err)
			}
			if got := state(); got != before {
				t.Errorf("git was %q and is %q", before, got)
			}
			w.restore(p)
			w.want("after Restore", tree)
		})
	}
}

func (w *world) tryGit(args ...string) {
	defer func(t testing.TB) { w.t = t }(w.t)
	w.t = quiet{w.t}
	w.git(args...)
}

// quiet lets git fail.
type quiet struct{ testing.TB }

func (quiet) Fatalf(string, ...any) {}

// Repositories of other shapes: a detached HEAD, a linked work tree, a root below the top,
// SHA-256, a submodule.
func TestShapesOfRepositories(t *testing.T) {
	for name, prepare := range map[string]func(w *world){
		"a detached HEAD": func(w *world) { w.git("checkout", "-q", "--detach") },
		"a linked work tree": func(w *world) {
			w.git("worktree", "add", "-q", filepath.Join(w.root, "../linked"), "-b", "linked")
			w.root = filepath.Join(w.root, "../linked")
			w.opts.Root = w.root
		},
		"a root below the top": func(w *world) {
			w.root = w.path("sub")
			w.opts.Root = w.root
		},
		"SHA-256": func(w *world) {
			proctest.Must(w.t, os.RemoveAll(w.path(".git")))
			w.git("init", "-q", "-b", "main", "--object-format=sha256")
			w.git("config", "user.name", "U")
			w.git("config", "user.email", "u@example.org")
			w.git("add", "-A")
			w.git("commit", "-qm", "first")
		},
		"a submodule": func(w *world) {
			w.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", w.root, "module")
			w.git("commit", "-qm", "module")
			w.write(map[string]string{"module/a.txt": "the user's own in the module\n"})
		},
		"a sparse and split index": func(w *world) {
			w.git("config", "core.splitIndex", "true")
			w.git("update-index", "--split-index")
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, true, map[string]string{"a.txt": "a\n", "sub/a.txt": "in sub\n", "sub/deep/b.txt": "b\n"})
			prepare(w)
			w.write(map[string]string{"user.txt": "u\n"})
			head, before := w.git("rev-parse", "HEAD"), w.tree()
			p := w.take()
			w.write(map[string]string{"a.txt": "healer\n", "new.txt": "n\n"})
			done := proctest.Value(p.Commit(t.Context(), repair))(t)
			if len(done.Left) > 0 || !slices.Equal(done.Paths, []string{"a.txt", "new.txt"}) {
				t.Errorf("%+v", done)
			}
			if got := w.git("rev-parse", "HEAD", "HEAD~"); got != done.Hash+"\n"+head {
				t.Errorf("HEAD and its parent are %q", got)
			}
			if got := w.git("status", "--porcelain"); strings.Contains(got, "a.txt\n") && name != "a submodule" || !strings.Contains(got, "?? ") {
				t.Errorf("the status is %q", got)
			}
			w.git("fsck", "--strict")
			w.restore(p)
			w.want("after Restore", before)
		})
	}
}

// Another commit at the same moment is not lost.
func TestACommitOfTheUserAtTheSameMoment(t *testing.T) {
	for _, step := range []string{"made", "indexed", "locked", "staged"} {
		t.Run(step, func(t *testing.T) {
			w := newWorld(t, true, map[string]string{"a.txt": "a\n", "b.txt": "b\n"})
			p := w.take()
			w.write(map[string]string{"a.txt": "healer\n", "b.txt": "user\n"})
			did := false
			p.opts.step = func(s string) {
				if s != step || did {
					return
				}
				did = true
				if step == "locked" { // git itself would wait for the lock
					hash := strings.TrimSpace(w.git("commit-tree", "HEAD^{tree}", "-p", "HEAD", "-m", "users"))
					w.git("update-ref", "HEAD", hash)
					return
				}
				w.git("commit", "-qm", "users", "b.txt")
			}
			c := repair
			c.Paths = []string{"a.txt"}
			done := proctest.Value(p.Commit(t.Context(), c))(t)
			if got := w.git("log", "--format=%s"); !did || got != "Repair the service\nusers\nfirst\n" {
				t.Errorf("the log is %q", got)
			}
			if got := w.git("show", "--format=", "--name-only", done.Hash); got != "a.txt\n" {
				t.Errorf("the commit changes %q", got)
			}
			want := ""
			if step == "locked" {
				want = " M b.txt\n"
			}
			if got := w.git("status", "--porcelain"); got != want {
				t.Errorf("the status is %q; want %q", got, want)
			}
		})
	}
}

// TestRandomTrees: whatever the user had done before, and whatever the healer does, Restore
// brings back each byte, and a commit holds what the healer did and nothing of the user's.
func TestRandomTrees(t *testing.T) {
	scratch := t.TempDir()
	runs := 0
	rapid.Check(t, func(rt *rapid.T) {
		runs++
		base := filepath.Join(scratch, fmt.Sprint(runs))
		inGit := rapid.Bool().Draw(rt, "git")
		w := &world{t: t, root: filepath.Join(base, "app")}
		w.opts = Options{Root: w.root, Dir: filepath.Join(base, "ep"), ID: "x"}
		proctest.Must(t, os.MkdirAll(w.root, 0o755))
		defer os.RemoveAll(base)
		edit := func(who string) {
			for range rapid.IntRange(0, 8).Draw(rt, who) {
				name := rapid.SampledFrom([]string{"a", "b.txt", "d", "d/x", "d/y", "d/e/z", "l\xff", ":(top)x", "run", "i.log", ".env"}).Draw(rt, "path")
				full := w.path(name)
				switch rapid.IntRange(0, 6).Draw(rt, "act") {
				case 0:
					os.RemoveAll(full)
				case 1:
					os.MkdirAll(full, 0o755)
				case 2:
					os.Remove(full)
					os.Symlink(rapid.SampledFrom([]string{"a", "/etc/passwd", "d", "none"}).Draw(rt, "to"), full)
				case 3:
					if info, err := os.Lstat(full); err == nil && info.Mode().IsRegular() {
						os.Chmod(full, rapid.SampledFrom([]fs.FileMode{0o644, 0o755, 0o600, 0o400}).Draw(rt, "mode"))
					}
				default:
					info, err := os.Lstat(full)
					if err == nil && !info.Mode().IsRegular() || os.MkdirAll(filepath.Dir(full), 0o755) != nil {
						continue
					}
					// A parent may be a link to somewhere.
					if real, err := filepath.EvalSymlinks(filepath.Dir(full)); err != nil || !strings.HasPrefix(real, w.root) {
						continue
					}
					var text strings.Builder
					bits := rapid.IntRange(0, 1<<12-1).Draw(rt, "lines")
					for i := range 12 {
						fmt.Fprintf(&text, "line %d of %d\n", i, bits>>i&1)
					}
					os.WriteFile(full, []byte(text.String()), 0o644)
				}
			}
		}
		edit("committed")
		if inGit {
			w.write(map[string]string{".gitignore": "*.log\n.env\n"})
			w.git("init", "-q", "-b", "main")
			w.git("config", "user.name", "U")
			w.git("config", "user.email", "u@example.org")
			w.git("add", "-A")
			w.git("commit", "-qm", "first")
		}
		edit("staged")
		if inGit {
			w.git("add", "-A")
		}
		edit("user")
		before := w.tree()
		p, err := Take(t.Context(), w.opts)
		if err != nil {
			rt.Fatal(err)
		}
		defer func() { p.Close() }()
		edit("healer")
		after := w.tree()
		if inGit {
			head, staged := w.headTree(), w.git("diff", "--cached", "--name-only")
			done, err := p.Commit(t.Context(), repair)
			if err != nil {
				rt.Fatal(err)
			}
			w.want("the work tree after Commit", after)
			w.git("fsck", "--strict", "--no-dangling")
			now := w.headTree()
			for name := range now {
				if now[name] != head[name] && !slices.Contains(done.Paths, name) {
					rt.Fatalf("%q is in the commit, which names %q", name, done.Paths)
				}
			}
			for _, path := range done.Paths {
				// What was clean is committed as it is now.
				if b, ok := before[path]; ok && strings.HasSuffix(b, "\x00"+head[path]) && after[path] != "" && !strings.HasSuffix(after[path], now[path]) {
					rt.Fatalf("%q is %q in the commit; want %q", path, now[path], after[path])
				}
			}
			if got := w.git("diff", "--cached", "--name-only"); got != staged {
				rt.Fatalf("staged was %q and is %q; committed %+v", staged, got, done)
			}
		}
		if _, err := p.Restore(t.Context()); err != nil {
			rt.Fatal(err)
		}
		w.want("after Restore", before)
		if t.Failed() {
			rt.FailNow()
		}
	})
}

// headTree is the last commit, by path.
func (w *world) headTree() map[string]string {
	files := map[string]string{}
	for _, rec := range strings.Split(strings.TrimSuffix(w.git("ls-tree", "-r", "-z", "HEAD"), "\x00"), "\x00") {
		meta, path, _ := strings.Cut(rec, "\t")
		if f := strings.Fields(meta); len(f) == 3 {
			files[path] = f[0] + w.git("cat-file", "blob", f[2])
		}
	}
	for path, text := range files {
		files[path] = text[6:]
	}
	return files
}

// reachable makes a project one that other users find.
func (w *world) reachable() {
	w.t.Helper()
	for dir := filepath.Dir(w.root); dir != filepath.Dir(dir) && dir != os.TempDir(); dir = filepath.Dir(dir) {
		proctest.Must(w.t, os.Chmod(dir, 0o755))
	}
}

// TestARepositoryStaysItsOwners: root, which works on the project of somebody else, leaves no
// directory in its repository in which they could make no file, nor a log that they could not
// append to.
func TestARepositoryStaysItsOwners(t *testing.T) {
	w := newWorld(t, true, map[string]string{"a.txt": "a\n", "b.txt": "b\n"})
	w.git("branch", "other")
	proctest.Must(t, os.RemoveAll(w.path(".git/logs")))
	const owner = 65534
	w.reachable()
	own := func(wrong func(name string, d fs.DirEntry)) {
		proctest.Must(t, filepath.WalkDir(w.root, func(name string, d fs.DirEntry, err error) error {
			if err == nil {
				wrong(name, d)
			}
			return err
		}))
	}
	own(func(name string, _ fs.DirEntry) { proctest.Must(t, os.Lchown(name, owner, owner)) })
	foreign := func(when string) {
		t.Helper()
		own(func(name string, d fs.DirEntry) {
			var st syscall.Stat_t
			proctest.Must(t, syscall.Lstat(name, &st))
			if st.Uid != owner && (d.IsDir() || strings.Contains(name, "/logs/")) {
				t.Errorf("%s %s belongs to %d", when, strings.TrimPrefix(name, w.root), st.Uid)
			}
		})
	}
	w.write(map[string]string{"b.txt": "of the user\n"})
	p := w.take()
	foreign("after the checkpoint")
	w.write(map[string]string{"a.txt": "repaired\n"})
	proctest.Must(t, p.Mark(t.Context()))
	c := repair
	c.Paths = []string{"a.txt"}
	if done := proctest.Value(p.Commit(t.Context(), c))(t); done.Hash == "" {
		t.Errorf("nothing was committed: %+v", done)
	}
	foreign("after the commit")
	proctest.Must(t, p.Drop(t.Context()))
	foreign("at the end")
}
