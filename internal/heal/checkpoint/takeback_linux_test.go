package checkpoint

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

// repaired makes a project, and a repair of it that is committed, or of which an Undo is
// kept. The checkpoint is gone. before is the tree without the repair.
func repaired(t *testing.T, inGit bool) (w *world, b Back, before map[string]string) {
	t.Helper()
	w = newWorld(t, inGit, map[string]string{
		"a.txt": "1\n2\n3\n", "gone/by/repair.txt": "g\n", "run.sh": "#!/bin/sh\n", "crlf.txt": "x\ny\n", "user.txt": "u\n", "staged.txt": "s\n", "kind": "a file\n", "dir/x": "x\n",
	})
	proctest.Must(t, os.Symlink("a.txt", w.path("link")))
	if inGit {
		w.git("add", "-A")
		w.git("commit", "-q", "-m", "second")
		w.write(map[string]string{"staged.txt": "s, staged\n"})
		w.git("add", "staged.txt")
	}
	w.write(map[string]string{"user.txt": "the user's, not committed\n", "untracked.txt": "nobody's\n", "crlf.txt": "x\r\ny\r\n"})
	proctest.Must(t, os.Chmod(w.path("a.txt"), 0o640))
	before = w.tree()
	p := w.take()
	w.write(map[string]string{"a.txt": "1\ntwo\n3\n", "new/dir/file.txt": "n\n", "crlf.txt": "x\r\nz\r\n"})
	proctest.Must(t, os.Chmod(w.path("run.sh"), 0o755))
	for _, gone := range []string{"gone", "link", "kind", "dir"} {
		proctest.Must(t, os.RemoveAll(w.path(gone)))
	}
	w.write(map[string]string{"kind/is/a": "directory\n", "dir": "is a file\n"})
	proctest.Must(t, os.Symlink("run.sh", w.path("link")))
	proctest.Must(t, p.Mark(t.Context()))
	b = Back{Root: w.root, Dir: w.opts.Dir, ID: "back-1", Message: "Take back the repair", Trailers: map[string]string{"Heal-Id": "ep-1"}}
	if inGit {
		b.Commit = proctest.Value(p.Commit(t.Context(), Commit{Message: "Repair"}))(t).Hash
	} else {
		u, why, err := p.Undo(t.Context())
		proctest.Must(t, err)
		if b.Undo = u; why != "" {
			t.Fatal(why)
		}
	}
	proctest.Must(t, p.Drop(t.Context()))
	return w, b, before
}

// copied is another project like it.
func (w *world) copied(t *testing.T, b Back) (*world, Back) {
	t.Helper()
	base := proctest.Value(filepath.EvalSymlinks(t.TempDir()))(t)
	if out, err := exec.CommandContext(t.Context(), "cp", "-a", filepath.Dir(w.root)+"/.", base).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	b.Root, b.Dir = filepath.Join(base, "app"), filepath.Join(base, "episode")
	return &world{t: t, root: b.Root}, b
}

var backPaths = []string{"a.txt", "crlf.txt", "dir", "dir/x", "gone/by/repair.txt", "kind", "kind/is/a", "link", "new/dir/file.txt", "run.sh"}

// A repair is taken back as it was committed, or kept: the paths that it has changed, and
// nothing else; once.
func TestARepairIsTakenBack(t *testing.T) {
	for _, inGit := range []bool{true, false} {
		t.Run(fmt.Sprintf("in git: %v", inGit), func(t *testing.T) {
			w, b, before := repaired(t, inGit)
			head, staged := "", ""
			if inGit {
				head, staged = w.git("rev-parse", "HEAD"), w.git("diff", "--cached")
			}
			with := w.tree()
			check := proctest.Value(CheckBack(t.Context(), b))(t)
			w.want("the tree after CheckBack", with)
			if len(check.Changed) > 0 || !strings.Contains(check.Diff, "-two\n+2\n") || !strings.Contains(check.Diff, "+link to a.txt\n") || !strings.Contains(check.Diff, "run.sh: mode 755 becomes 644") {
				t.Errorf("%+v", check)
			}
			done := proctest.Value(TakeBack(t.Context(), b))(t)
			w.want("the tree after TakeBack", before)
			if slices.Sort(done.Paths); !slices.Equal(done.Paths, backPaths) || len(done.Left)+len(done.Changed) > 0 {
				t.Errorf("%+v", done)
			}
			again := proctest.Value(TakeBack(t.Context(), b))(t)
			w.want("the tree after the second TakeBack", before)
			if again.Hash != done.Hash {
				t.Errorf("it was committed twice: %s, %s", done.Hash, again.Hash)
			}
			if !inGit {
				return
			}
			if got := w.git("log", "-1", "--format=%H|%an|%P|%B"); got != done.Hash+"|tend healer|"+strings.TrimSpace(head)+"|Take back the repair\n\nHeal-Id: ep-1\nTend-Rollback: back-1\n\n" {
				t.Errorf("the commit is %q", got)
			}
			if got := w.git("diff", "--stat", "HEAD~2", "HEAD"); got != "" {
				t.Errorf("it is not the opposite of the repair:\n%s", got)
			}
			if got := w.git("diff", "--cached"); got != staged {
				t.Errorf("staged was\n%s\nand is\n%s", staged, got)
			}
			w.git("fsck", "--strict")
		})
	}
}

// What has changed since keeps a repair from being taken back, and is named; nothing is
// changed then.
func TestWhatHasChangedSinceIsNotTakenBack(t *testing.T) {
	worlds, backs := map[bool]*world{}, map[bool]Back{}
	for _, inGit := range []bool{true, false} {
		worlds[inGit], backs[inGit], _ = repaired(t, inGit)
	}
	for name, c := range map[string]struct {
		do     func(w *world)
		paths  []string
		reason string
		git    int // 1: in git alone, -1: without git alone
	}{
		"a file is edited":           {func(w *world) { w.write(map[string]string{"a.txt": "mine\n"}) }, []string{"a.txt"}, "not committed", 0},
		"a file is gone":             {func(w *world) { proctest.Must(w.t, os.Remove(w.path("a.txt"))) }, []string{"a.txt"}, "it is gone", 0},
		"a file is no program again": {func(w *world) { proctest.Must(w.t, os.Chmod(w.path("run.sh"), 0o600)) }, []string{"run.sh"}, "already", 0},
		"a link leads elsewhere": {func(w *world) {
			proctest.Must(w.t, os.Remove(w.path("link")))
			proctest.Must(w.t, os.Symlink("x", w.path("link")))
		}, []string{"link"}, "changed", 0},
		"a directory is a link": {func(w *world) {
			proctest.Must(w.t, os.Rename(w.path("new"), w.path("moved")))
			proctest.Must(w.t, os.Symlink("moved", w.path("new")))
		}, []string{"new/dir/file.txt"}, "changed", 0},
		"a file that was removed is": {func(w *world) { w.write(map[string]string{"gone/by/repair.txt": "mine\n"}) }, []string{"gone/by/repair.txt"}, "changed", 0},
		"two are committed again": {func(w *world) {
			w.write(map[string]string{"a.txt": "mine\n", "link2": ""})
			w.git("commit", "-q", "-m", "mine", "a.txt")
		}, []string{"a.txt"}, "committed again", 1},
		"it is staged": {func(w *world) {
			w.write(map[string]string{"a.txt": "mine\n"})
			w.git("add", "a.txt")
			w.write(map[string]string{"a.txt": "1\ntwo\n3\n"})
		}, []string{"a.txt"}, "staged", 1},
		"it was reverted by the user": {func(w *world) {
			w.git("stash", "-q")
			w.git("revert", "--no-edit", "HEAD")
		}, backPaths, "already", 1},
		"another branch": {func(w *world) { w.git("stash", "-q"); w.git("checkout", "-q", "-b", "x", "HEAD~1") }, backPaths, "already", 1},
	} {
		for _, inGit := range []bool{true, false} {
			if c.git > 0 && !inGit || c.git < 0 && inGit {
				continue
			}
			t.Run(fmt.Sprintf("%s, in git: %v", name, inGit), func(t *testing.T) {
				w, b := worlds[inGit].copied(t, backs[inGit])
				c.do(w)
				state := func() string {
					if !inGit {
						return ""
					}
					return w.git("rev-parse", "HEAD") + w.git("diff", "--cached") + w.git("status", "--porcelain")
				}
				with, was := w.tree(), state()
				for what, do := range map[string]func() (TakenBack, error){
					"CheckBack": func() (TakenBack, error) { return CheckBack(t.Context(), b) },
					"TakeBack":  func() (TakenBack, error) { return TakeBack(t.Context(), b) },
				} {
					if what == "TakeBack" && c.reason == "already" {
						continue // it would go on with what another run has begun
					}
					got := proctest.Value(do())(t)
					var paths []string
					for _, l := range got.Changed {
						if paths = append(paths, l.Path); !strings.Contains(l.Reason, c.reason) {
							t.Errorf("%s: %+v; want %q", what, l, c.reason)
						}
					}
					if slices.Sort(paths); !slices.Equal(paths, c.paths) {
						t.Errorf("%s: %q have changed; want %q", what, paths, c.paths)
					}
					w.want("the tree after "+what, with)
					if now := state(); now != was {
						t.Errorf("%s: git had\n%s\nand has\n%s", what, was, now)
					}
				}
			})
		}
	}
}

// Where git cannot take it back, it says so.
func TestWhatCannotBeTakenBackSaysWhy(t *testing.T) {
	made, back, _ := repaired(t, true)
	for name, c := range map[string]struct {
		do  func(w *world, b *Back)
		err string
	}{
		"git is in the middle of a merge": {func(w *world, _ *Back) { w.write(map[string]string{".git/MERGE_HEAD": ""}) }, "in the middle of a merge"},
		"the commit is gone":              {func(_ *world, b *Back) { b.Commit = strings.Repeat("ab", 20) }, "nothing to go back to"},
		"the commit is the first one":     {func(w *world, b *Back) { b.Commit = strings.TrimSpace(w.git("rev-list", "--max-parents=0", "HEAD")) }, "nothing to go back to"},
		"it is no commit":                 {func(_ *world, b *Back) { b.Commit = "--all" }, "is no commit"},
		"there is no repository":          {func(w *world, _ *Back) { proctest.Must(w.t, os.RemoveAll(w.path(".git"))) }, "no git repository"},
		"nothing was kept":                {func(_ *world, b *Back) { b.Commit = "" }, "nothing to go back to"},
		"a path leads out":                {func(_ *world, b *Back) { b.Commit, b.Undo = "", &Undo{Files: []Undone{{Path: "../x"}}} }, "no path of the project"},
	} {
		t.Run(name, func(t *testing.T) {
			w, b := made.copied(t, back)
			c.do(w, &b)
			with := w.tree()
			for what, do := range map[string]func() (TakenBack, error){
				"CheckBack": func() (TakenBack, error) { return CheckBack(t.Context(), b) },
				"TakeBack":  func() (TakenBack, error) { return TakeBack(t.Context(), b) },
			} {
				if _, err := do(); err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("%s: %v; want %q", what, err, c.err)
				}
			}
			w.want("the tree", with)
		})
	}
}

// What was too large to be kept is not taken back by halves.
func TestAnUndoIsBounded(t *testing.T) {
	w := newWorld(t, false, map[string]string{"big": strings.Repeat("x", MaxUndo+1), "small": "s"})
	p := w.take()
	w.write(map[string]string{"big": "b", "small": "t"})
	proctest.Must(t, p.Mark(t.Context()))
	if u, why, err := p.Undo(t.Context()); u != nil || err != nil || !strings.Contains(why, "8 MiB") {
		t.Errorf("%v, %q, %v", u, why, err)
	}
}

// Killed at any step, it comes to the same end when it is made again: done, once. What somebody
// has edited in between stays.
func TestAKillAtAnyStepOfTakingBack(t *testing.T) {
	for _, inGit := range []bool{true, false} {
		t.Run(fmt.Sprintf("in git: %v", inGit), func(t *testing.T) {
			made, b, before := repaired(t, inGit)
			for at := 1; ; at++ {
				w, b := made.copied(t, b)
				killed := w.diesIn(errand{Back: b, Do: "back", At: at})
				edited := at%2 == 0 && w.read("a.txt") == "1\ntwo\n3\n" && killed
				if edited {
					w.write(map[string]string{"a.txt": "mine\n"})
				}
				with := w.tree()
				done := proctest.Value(TakeBack(t.Context(), b))(t)
				want := maps.Clone(before)
				switch {
				case edited && len(done.Changed) > 0: // nothing had been done yet
					want = with
				case edited:
					if want["a.txt"] = with["a.txt"]; len(done.Left) != 1 || done.Left[0].Path != "a.txt" {
						t.Errorf("killed at step %d: %+v", at, done)
					}
				}
				w.want(fmt.Sprintf("killed at step %d, the tree", at), want)
				if inGit {
					commits := "Take back the repair\nRepair\nsecond\nfirst\n"
					if edited && len(done.Changed) > 0 {
						commits = "Repair\nsecond\nfirst\n"
					}
					if log := w.git("log", "--format=%s"); log != commits {
						t.Errorf("killed at step %d, the log is %q", at, log)
					}
					if got := w.git("diff", "--cached", "--name-only"); !strings.HasPrefix(commits, "Repair") && got != "staged.txt\n" {
						t.Errorf("killed at step %d, staged is %q", at, got)
					}
					if left := proctest.Value(filepath.Glob(w.path(".git/tend-*")))(t); len(left) > 0 && strings.HasPrefix(commits, "Take") {
						t.Errorf("killed at step %d, left behind: %v", at, left)
					}
				}
				if out, err := exec.Command("find", w.root, "-name", temporary+"*").Output(); err != nil || len(out) > 0 {
					t.Errorf("killed at step %d, left behind: %s, %v", at, out, err)
				}
				if !killed {
					if at < 8 {
						t.Errorf("there are %d steps to die at", at-1)
					}
					break
				}
			}
		})
	}
}

// A diff that is too long is cut, and not the look at the files.
func TestEachFileIsLookedAtBehindALongDiff(t *testing.T) {
	w := newWorld(t, false, map[string]string{"a.txt": strings.Repeat("a", 140<<10) + "\n", "b.txt": "b\n", "c.txt": "c\n"})
	p := w.take()
	w.write(map[string]string{"a.txt": strings.Repeat("A", 140<<10) + "\n", "b.txt": "B\n", "c.txt": "C\n"})
	proctest.Must(t, p.Mark(t.Context()))
	u, why, err := p.Undo(t.Context())
	if proctest.Must(t, err); u == nil {
		t.Fatal(why)
	}
	proctest.Must(t, p.Drop(t.Context()))
	w.write(map[string]string{"c.txt": "somebody's\n"})
	check := proctest.Value(CheckBack(t.Context(), Back{Root: w.root, Dir: w.opts.Dir, ID: "back-1", Undo: u}))(t)
	if len(check.Changed) != 1 || check.Changed[0].Path != "c.txt" || !slices.Equal(check.Paths, []string{"a.txt", "b.txt", "c.txt"}) {
		t.Errorf("of %q there are changed since: %v", check.Paths, check.Changed)
	}
	if check.Diff != "… 3 of 3 changed files are left out: the diff is too long\n" {
		t.Errorf("the diff is %.200q", check.Diff)
	}
}

// With its commit it is done: what somebody commits, or begins, before the next worker
// follows changes nothing of that.
func TestTakingBackThatIsCommittedIsDone(t *testing.T) {
	w, b, before := repaired(t, true)
	dies := b
	dies.step = func(step string) {
		if step == "committed" {
			panic(step)
		}
	}
	func() {
		defer func() {
			if got := recover(); got != "committed" {
				t.Fatalf("it came to %v", got)
			}
		}()
		_, _ = TakeBack(t.Context(), dies) // it dies
	}()
	made := strings.TrimSpace(w.git("rev-parse", "HEAD"))
	w.write(map[string]string{"a.txt": "mine\n"})
	w.git("commit", "-q", "-m", "mine", "a.txt")
	w.write(map[string]string{".git/MERGE_HEAD": ""})
	done := proctest.Value(TakeBack(t.Context(), b))(t)
	if done.Hash != made || len(done.Changed) > 0 || len(done.Left) != 1 || done.Left[0].Path != "a.txt" {
		t.Errorf("%+v; want the commit %s", done, made)
	}
	before["a.txt"] = w.tree()["a.txt"]
	w.want("the tree", before)
}

// What somebody saves while it is taken back is theirs, also if the process dies before it is seen.
func TestASaveWhileItIsTakenBackStays(t *testing.T) {
	for _, dies := range []bool{false, true} {
		w := newWorld(t, false, map[string]string{"a.txt": "a\n", "b.txt": "b\n"})
		p := w.take()
		w.write(map[string]string{"a.txt": "repaired\n", "b.txt": "repaired\n"})
		proctest.Must(t, p.Mark(t.Context()))
		u, why, err := p.Undo(t.Context())
		if proctest.Must(t, err); u == nil {
			t.Fatal(why)
		}
		o := Back{Root: w.root, Dir: w.opts.Dir, ID: "back-1", Undo: u}
		b := proctest.Value(openBack(t.Context(), o))(t)
		temp := b.temp(b.files[0])
		if dies { // between the exchange and the look at what was there
			w.write(map[string]string{temp: "saved\n", "a.txt": "a\n"})
		} else {
			o.step = func(step string) {
				if step == "written" && w.read("a.txt") == "repaired\n" {
					w.write(map[string]string{"a.txt": "saved\n"})
				}
			}
		}
		done := proctest.Value(TakeBack(t.Context(), o))(t)
		if w.read("a.txt") != "saved\n" || !dies && (w.read("b.txt") != "b\n" || len(done.Left) != 1 || done.Left[0].Path != "a.txt") {
			t.Errorf("dies: %v: there are %q and %q, %+v", dies, w.read("a.txt"), w.read("b.txt"), done)
		}
		if exists(w.path(temp)) {
			t.Error("something is left beside it")
		}
		proctest.Must(t, b.root.Close())
	}
}
