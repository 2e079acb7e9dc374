package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/tend-run/tend/internal/support/proctest"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(diesIn); dir != "" {
		die(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

// world is a project in a directory, with the private one beside it.
type world struct {
	t    testing.TB
	root string
	opts Options
}

// newWorld makes a project with files, in a git repository or not.
func newWorld(t testing.TB, inGit bool, files map[string]string) *world {
	t.Helper()
	base := proctest.Value(filepath.EvalSymlinks(t.TempDir()))(t)
	w := &world{t: t, root: filepath.Join(base, "app")}
	w.opts = Options{Root: w.root, Dir: filepath.Join(base, "episode"), ID: "ep-1"}
	proctest.Must(t, os.MkdirAll(w.root, 0o755))
	w.write(files)
	if inGit {
		w.git("init", "-q", "-b", "main")
		w.git("config", "user.name", "User")
		w.git("config", "user.email", "user@example.org")
		w.git("add", "-A")
		w.git("commit", "-q", "--allow-empty", "-m", "first")
	}
	return w
}

func (w *world) path(name string) string { return filepath.Join(w.root, name) }

func (w *world) write(files map[string]string) {
	w.t.Helper()
	for name, text := range files {
		proctest.Must(w.t, os.MkdirAll(filepath.Dir(w.path(name)), 0o755))
		proctest.Must(w.t, os.WriteFile(w.path(name), []byte(text), 0o644))
	}
}

func (w *world) read(name string) string {
	w.t.Helper()
	return string(proctest.Value(os.ReadFile(w.path(name)))(w.t))
}

// git runs git as the user does.
func (w *world) git(args ...string) string {
	w.t.Helper()
	cmd := exec.CommandContext(w.t.Context(), "git", args...)
	cmd.Dir = w.root
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.t.Fatalf("git %q: %v: %s", args, err, out)
	}
	return string(out)
}

func (w *world) take() *Point {
	w.t.Helper()
	p := proctest.Value(Take(w.t.Context(), w.opts))(w.t)
	w.t.Cleanup(func() { p.Close() })
	return p
}

func (w *world) open() *Point {
	w.t.Helper()
	p := proctest.Value(Open(w.t.Context(), w.opts))(w.t)
	w.t.Cleanup(func() { p.Close() })
	return p
}

func (w *world) restore(p *Point) Restored {
	w.t.Helper()
	return proctest.Value(p.Restore(w.t.Context()))(w.t)
}

// tree is all that the project holds but .git: modes, links, content.
func (w *world) tree() map[string]string {
	w.t.Helper()
	found := map[string]string{}
	proctest.Must(w.t, filepath.WalkDir(w.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(w.root, path)
		if d.Name() == ".git" || rel == "." {
			if d.IsDir() && rel != "." {
				return fs.SkipDir
			}
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := info.Mode().String()
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			text += " -> " + proctest.Value(os.Readlink(path))(w.t)
		case info.Mode().IsRegular() && info.Size() < 1<<20:
			text += " " + string(proctest.Value(os.ReadFile(path))(w.t))
		case info.Mode().IsRegular():
			text += fmt.Sprint(" ", info.Size())
		}
		found[rel] = text
		return nil
	}))
	return found
}

// repository is all that there is in .git.
func (w *world) repository() string {
	w.t.Helper()
	var all strings.Builder
	proctest.Must(w.t, filepath.WalkDir(w.path(".git"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			fmt.Fprintf(&all, "%s %q\n", path, proctest.Value(os.ReadFile(path))(w.t))
		}
		return err
	}))
	return all.String()
}

func (w *world) want(what string, want map[string]string) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.tree()); diff != "" {
		w.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func kinds(changes []Change) map[string]Kind {
	m := map[string]Kind{}
	for _, c := range changes {
		m[c.Path] = c.Kind
	}
	return m
}

// Everything that a tree can hold is again as it was, in git and outside.
func TestRestoreMakesEverythingWhatItWas(t *testing.T) {
	for _, inGit := range []bool{true, false} {
		t.Run(fmt.Sprintf("in git: %v", inGit), func(t *testing.T) {
			w := newWorld(t, inGit, map[string]string{
				"a.txt": "a\n", "dir/b.txt": "b\n", "dir/deep/c.txt": "c\n", "gone.txt": "gone\n", ".gitignore": "logs/\n.env\n*.db\n",
				"new\nline": "n", "quote\"s \\ ": "q", "bytes\xff\xfe": "bytes\x00\xff", "crlf.txt": "x\r\ny\r\n", "empty": "", "file-to-dir": "f", "dir-to-file/x": "x", "locked/in.txt": "in",
			})
			w.write(map[string]string{"untracked.txt": "mine\n", ".env": "KEY=secret-value\n", "prod.env": "KEY=secret-value\n", "logs/app.log": "line\n", "data.db": "\x00db"})
			proctest.Must(t, os.WriteFile(w.path("a.txt"), []byte("a\nuncommitted\n"), 0o600))
			proctest.Must(t, os.Symlink("a.txt", w.path("link")))
			proctest.Must(t, os.Symlink("/nowhere\xff", w.path("broken")))
			proctest.Must(t, os.MkdirAll(w.path("empty-dir/inner"), 0o750))
			proctest.Must(t, os.WriteFile(w.path("run.sh"), []byte("#!"), 0o644))
			proctest.Must(t, os.Chmod(w.path("run.sh"), 0o4755))
			proctest.Must(t, os.Chmod(w.path("locked"), 0o555))
			proctest.Must(t, syscall.Mkfifo(w.path("fifo"), 0o644))
			proctest.Must(t, os.MkdirAll(w.path("node_modules/x"), 0o755))
			state := ""
			if inGit {
				w.git("config", "core.hooksPath", w.path(".git/bad"))
				w.git("config", "filter.bad.clean", "touch "+w.path("filter-ran"))
				w.git("config", "core.fsmonitor", "touch "+w.path("monitor-ran"))
				proctest.Must(t, os.MkdirAll(w.path(".git/bad"), 0o755))
				for _, hook := range []string{"pre-commit", "reference-transaction", "post-index-change", "post-commit"} {
					proctest.Must(t, os.WriteFile(w.path(".git/bad/"+hook), []byte("#!/bin/sh\ntouch "+w.path("hook-ran")+"\nexit 1\n"), 0o755))
				}
				w.write(map[string]string{".git/info/attributes": "* filter=bad\n"})
				state = w.repository()
			}
			before := w.tree()
			p := w.take()
			if inGit != (p.git != nil) {
				t.Fatalf("in git: %v", p.git != nil)
			}
			proctest.Must(t, os.Chmod(w.path("locked"), 0o755))
			for _, gone := range []string{"gone.txt", "dir", "link", "empty-dir", "file-to-dir", "dir-to-file", "new\nline", ".env"} {
				proctest.Must(t, os.RemoveAll(w.path(gone)))
			}
			w.write(map[string]string{"a.txt": "spoiled", "bytes\xff\xfe": "x", "file-to-dir/y": "y", "dir-to-file": "was a directory", "added/deep/new.txt": "new", "logs/app.log": "x", "data.db": "y", "locked/more": "m", "crlf.txt": "x\ny\n"})
			proctest.Must(t, os.Symlink("/etc", w.path("dir")))
			proctest.Must(t, os.WriteFile(w.path("link"), []byte("a file now"), 0o644))
			proctest.Must(t, os.Chmod(w.path("run.sh"), 0o644))
			proctest.Must(t, os.Chmod(w.path("untracked.txt"), 0o000))
			proctest.Must(t, os.Remove(w.path("broken")))
			proctest.Must(t, os.Symlink("elsewhere", w.path("broken")))
			proctest.Must(t, p.Mark(t.Context()))
			got := kinds(proctest.Value(p.Changes(t.Context()))(t))
			for path, want := range map[string]Kind{"a.txt": Modified, "gone.txt": Deleted, "added/deep/new.txt": Added, "run.sh": Mode, "dir/b.txt": Deleted, "link": Modified, "locked/more": Added} {
				if got[path] != want {
					t.Errorf("%s is %q; want %q", path, got[path], want)
				}
			}
			diff := proctest.Value(p.Diff(t.Context()))(t)
			for _, want := range []string{"--- a/a.txt\n+++ b/a.txt\n", "-uncommitted\n", "run.sh: mode", "+new"} {
				if !strings.Contains(diff, want) {
					t.Errorf("the diff has no %q:\n%s", want, diff)
				}
			}
			p = w.open()
			r := w.restore(p)
			if len(r.Left) > 0 || len(r.Kept) > 0 {
				t.Errorf("left %v, kept %v", r.Left, r.Kept)
			}
			w.want("after Restore", before)
			if again := w.restore(p); len(again.Paths) > 0 {
				t.Errorf("restored again: %q", again.Paths)
			}
			proctest.Must(t, p.Drop(t.Context()))
			if inGit && w.repository() != state {
				t.Error("the repository was changed")
			}
			if _, err := Open(t.Context(), w.opts); !errors.Is(err, ErrNone) {
				t.Errorf("after Drop: %v; want ErrNone", err)
			}
		})
	}
}

// What others change while the healer works is neither rolled back nor lost.
func TestWhatOthersChangedStays(t *testing.T) {
	for _, inGit := range []bool{true, false} {
		t.Run(fmt.Sprintf("in git: %v", inGit), func(t *testing.T) {
			lines := "1\n2\n3\n4\n5\n6\n7\n8\n9\n"
			w := newWorld(t, inGit, map[string]string{"user.txt": "old\n", "both.txt": lines, "clash.txt": lines, "healer.txt": lines, "app.log": "start\n", "removed.txt": "x\n"})
			p := w.take()
			w.write(map[string]string{"user.txt": "the user's\n", "users-new.txt": "new\n"})
			proctest.Must(t, p.Absorb(t.Context()))
			w.write(map[string]string{"both.txt": strings.Replace(lines, "2\n", "two by the healer\n", 1), "healer.txt": "healer\n", "clash.txt": strings.Replace(lines, "5\n", "five\n", 1), "healers-new.txt": "x\n", "app.log": "start\nstarted again\n"})
			proctest.Must(t, p.Mark(t.Context()))
			w.write(map[string]string{"both.txt": strings.Replace(w.read("both.txt"), "8\n", "eight by the user\n", 1), "clash.txt": strings.Replace(lines, "5\n", "FIVE by the user\n", 1)})
			proctest.Must(t, os.Remove(w.path("removed.txt")))
			proctest.Must(t, p.Absorb(t.Context()))
			want := map[string]Kind{"both.txt": Modified, "clash.txt": Modified, "healer.txt": Modified, "healers-new.txt": Added}
			if got := kinds(proctest.Value(p.Changes(t.Context()))(t)); !maps.Equal(got, want) {
				t.Errorf("the healer's changes are %v; want %v", got, want)
			}
			p = w.open()
			r := w.restore(p)
			for name, want := range map[string]string{
				"user.txt": "the user's\n", "users-new.txt": "new\n", "healer.txt": lines, "both.txt": strings.Replace(lines, "8\n", "eight by the user\n", 1), "clash.txt": lines, "app.log": "start\nstarted again\n",
			} {
				if got := w.read(name); got != want {
					t.Errorf("%s is %q; want %q", name, got, want)
				}
			}
			for _, gone := range []string{"removed.txt", "healers-new.txt"} {
				if _, err := os.Lstat(w.path(gone)); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%s is there: %v", gone, err)
				}
			}
			if len(r.Kept) != 1 || r.Kept[0].Path != "clash.txt" || !strings.Contains(string(proctest.Value(os.ReadFile(r.Kept[0].Copy))(t)), "FIVE by the user") {
				t.Errorf("kept: %+v", r.Kept)
			}
		})
	}
}

// After a kill nobody knows whose a change is: it is taken back, and a copy is kept.
func TestWhatWasNotMarkedIsKept(t *testing.T) {
	w := newWorld(t, true, map[string]string{"a.txt": "a\n", "sub/b.txt": "b\n"})
	w.opts.Leave = []string{"data/**", "*.sqlite"}
	w.write(map[string]string{"data/x": "1", "db.sqlite": "1"})
	before := w.tree()
	p := w.take()
	w.write(map[string]string{"a.txt": "perhaps the user's\n", "sub/new.txt": "this too\n", "data/x": "2", "db.sqlite": "2", "data/y": "3"})
	r := w.restore(p)
	if len(r.Kept) != 2 || len(r.Left) > 0 {
		t.Fatalf("%+v", r)
	}
	for _, k := range r.Kept {
		want := map[string]string{"a.txt": "perhaps the user's\n", "sub/new.txt": "this too\n"}[k.Path]
		if got := string(proctest.Value(os.ReadFile(k.Copy))(t)); got != want {
			t.Errorf("the copy of %s is %q; want %q", k.Path, got, want)
		}
	}
	after := w.tree()
	for _, own := range []string{"data/x", "db.sqlite", "data/y"} {
		if !strings.HasSuffix(after[own], map[string]string{"data/x": "2", "db.sqlite": "2", "data/y": "3"}[own]) {
			t.Errorf("%s of the service is %q", own, after[own])
		}
		delete(after, own)
		delete(before, own)
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Error(diff)
	}
}

func TestWhatIsLeftOutIsLeftAlone(t *testing.T) {
	w := newWorld(t, true, map[string]string{"a.txt": "a\n", ".gitignore": "cache/\nbig.bin\ndist/\n", "tracked/node_modules/x.js": "x\n"})
	huge := w.path("huge.bin")
	proctest.Must(t, os.WriteFile(huge, nil, 0o644))
	proctest.Must(t, os.Truncate(huge, 10<<30))
	proctest.Must(t, os.WriteFile(w.path("big.bin"), make([]byte, 2<<20), 0o644))
	w.write(map[string]string{"node_modules/p/index.js": "p", "dist/out.js": "o", "nested/x": "x", ".tend/state": "s", "state/spool": "1"})
	proctest.Must(t, os.MkdirAll(w.path("nested/.git"), 0o755))
	w.opts.Skip = []string{w.path("state")}
	p := w.take()
	omitted := map[string]bool{}
	for _, o := range p.omitted {
		omitted[o.Path] = true
	}
	if want := []string{"big.bin", "dist", "huge.bin", "nested", "node_modules"}; !slices.Equal(slices.Sorted(maps.Keys(omitted)), want) {
		t.Errorf("omitted: %v; want %v", omitted, want)
	}
	w.write(map[string]string{"node_modules/p/index.js": "2", "node_modules/q/index.js": "2", "dist/out.js": "2", "nested/x": "2", ".tend/state": "2", "state/spool": "2", "tracked/node_modules/x.js": "2"})
	proctest.Must(t, os.Remove(w.path("big.bin")))
	r := w.restore(p)
	if !slices.Equal(r.Paths, []string{"tracked/node_modules/x.js"}) || len(r.Left) != 1 || r.Left[0].Path != "big.bin" {
		t.Errorf("%+v", r)
	}
	for _, name := range []string{"node_modules/p/index.js", "node_modules/q/index.js", "dist/out.js", "nested/x", ".tend/state", "state/spool"} {
		if w.read(name) != "2" {
			t.Errorf("%s was touched", name)
		}
	}
	if info := proctest.Value(os.Stat(huge))(t); info.Size() != 10<<30 {
		t.Errorf("the huge file has %d bytes", info.Size())
	}
}

// A log that the service writes while the healer runs a command is not the healer's, also if
// it is too large for a checkpoint.
func TestALogThatGrowsIsNotTheHealers(t *testing.T) {
	w := newWorld(t, true, map[string]string{".gitignore": "logs/\n"})
	w.write(map[string]string{"logs/small.txt": "start\n", "logs/large.txt": strings.Repeat("line\n", 1<<19), "plain.log": "start\n", "logs/cut.txt": "one\ntwo\n"})
	sparse := w.path("logs/huge.txt")
	proctest.Must(t, os.WriteFile(sparse, nil, 0o644))
	proctest.Must(t, os.Truncate(sparse, 100<<20))
	p := w.take()
	for _, log := range []string{"logs/small.txt", "logs/large.txt", "plain.log", "logs/huge.txt"} {
		f := proctest.Value(os.OpenFile(w.path(log), os.O_APPEND|os.O_WRONLY, 0))(t)
		proctest.Value(f.WriteString("more\n"))(t)
		proctest.Must(t, f.Close())
	}
	w.write(map[string]string{"logs/cut.txt": "two\nthree\nfour\n"})
	proctest.Must(t, p.Mark(t.Context()))
	r := w.restore(p)
	if !slices.Equal(r.Paths, []string{"logs/cut.txt"}) || len(r.Left) > 0 || !strings.HasSuffix(w.read("plain.log"), "more\n") {
		t.Errorf("%+v", r)
	}
}

func TestAProjectThatIsTooLargeIsRefused(t *testing.T) {
	w := newWorld(t, false, map[string]string{"file": ""})
	for i := range maxPlainFiles { // other names of one file: thousands of inodes that were just freed slow all that creates files
		proctest.Must(t, os.Link(w.path("file"), w.path(fmt.Sprint(i))))
	}
	var limit *LimitError
	if _, err := Take(t.Context(), w.opts); !errors.As(err, &limit) || limit.What != "files" {
		t.Errorf("%v; want a *LimitError for files", err)
	}
	if _, err := Open(t.Context(), w.opts); !errors.Is(err, ErrNone) {
		t.Errorf("%v; want ErrNone", err)
	}
	for _, o := range []Options{{Root: "x", Dir: w.opts.Dir, ID: "a"}, {Root: w.root, Dir: w.opts.Dir, ID: "../a"}, {Root: w.root, Dir: w.opts.Dir, ID: "a.lock"}, {Root: w.root, Dir: w.opts.Dir, ID: "a", Leave: []string{"["}}, {Root: w.root + "/missing", Dir: w.opts.Dir, ID: "a"}} {
		if _, err := Take(t.Context(), o); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
}

// Of what cannot be put back it is said where it is as it was.
func TestWhatCannotBePutBackIsFound(t *testing.T) {
	w := newWorld(t, true, map[string]string{"committed": "c\n", "changed": "x\n"})
	w.write(map[string]string{"changed": "mine\n"})
	p := w.take()
	for _, name := range []string{"committed", "changed"} { // what tools make is nobody's to remove
		proctest.Must(t, os.Remove(w.path(name)))
		w.write(map[string]string{name + "/node_modules/x": "x"})
	}
	proctest.Must(t, p.Mark(t.Context()))
	for _, l := range w.restore(p).Left {
		_, where, _ := strings.Cut(strings.TrimSuffix(l.Reason, ")"), " (as it was: ")
		got := ""
		if oid, ok := strings.CutPrefix(where, "git show "); ok {
			got = w.git("show", oid)
		} else {
			got = string(proctest.Value(os.ReadFile(where))(t))
		}
		if want := map[string]string{"committed": "c\n", "changed": "mine\n"}[l.Path]; got != want {
			t.Errorf("%s: %s has %q", l.Path, where, got)
		}
	}
}

// Content that was damaged is noticed, and not restored.
func TestDamagedContentIsNotRestored(t *testing.T) {
	w := newWorld(t, false, map[string]string{"a.txt": "good\n", "b.txt": "good too\n"})
	p := w.take()
	stored := proctest.Value(filepath.Glob(filepath.Join(w.opts.Dir, "store/*/*")))(t)
	for _, s := range stored {
		if b := proctest.Value(os.ReadFile(s))(t); string(b) == "good\n" {
			proctest.Must(t, os.WriteFile(s, []byte("bad\n"), 0o600))
		}
	}
	w.write(map[string]string{"a.txt": "new\n", "b.txt": "new\n"})
	r := w.restore(p)
	if w.read("a.txt") != "new\n" || w.read("b.txt") != "good too\n" || len(r.Left) != 1 || r.Left[0].Path != "a.txt" {
		t.Errorf("%q, %q, %+v", w.read("a.txt"), w.read("b.txt"), r)
	}
}

const diesIn = "TEND_TEST_CHECKPOINT_DIES_IN"
