package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

// errand is what the process that dies is told.
type errand struct {
	Options Options
	Back    Back
	Do      string // take, mark, restore, commit, drop, back
	At      int    // dies at this step
}

// die does what dir/errand.json says, until it kills itself.
func die(dir string) {
	var e errand
	b, err := os.ReadFile(filepath.Join(dir, "errand.json"))
	if err == nil {
		err = json.Unmarshal(b, &e)
	}
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	n := 0
	step := func(string) {
		if n++; n == e.At {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	if e.Do == "back" {
		e.Back.step = step
		_, err = TakeBack(ctx, e.Back)
	} else if e.Do == "take" {
		e.Options.step = step
		_, err = Take(ctx, e.Options)
	} else {
		var p *Point
		if p, err = Open(ctx, e.Options); err == nil {
			p.opts.step = step
			switch e.Do {
			case "mark":
				err = p.Mark(ctx)
			case "restore":
				_, err = p.Restore(ctx)
			case "commit":
				_, err = p.Commit(ctx, Commit{Message: "Repair", Overlap: true})
			case "drop":
				err = p.Drop(ctx)
			}
		}
	}
	if err != nil {
		panic(err)
	}
	fmt.Println("done")
}

// dies runs an errand in a process that is killed at a step, and reports whether it was.
func (w *world) dies(do string, at int) bool {
	return w.diesIn(errand{Options: w.opts, Do: do, At: at})
}

func (w *world) diesIn(e errand) bool {
	w.t.Helper()
	dir, do := w.t.TempDir(), e.Do
	b := proctest.Value(json.Marshal(e))(w.t)
	proctest.Must(w.t, os.WriteFile(filepath.Join(dir, "errand.json"), b, 0o600))
	cmd := exec.CommandContext(w.t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), diesIn+"="+dir)
	out, err := cmd.CombinedOutput()
	if err == nil {
		return false
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		w.t.Fatalf("%s: %v: %s", do, err, out)
	}
	return true
}

// Killed at any step, each call comes to its end when it is made again, and nothing is lost.
func TestAKillAtAnyStep(t *testing.T) {
	lines := "1\n2\n3\n4\n5\n6\n7\n8\n9\n"
	prepare := func(t *testing.T, inGit bool) (*world, map[string]string) {
		w := newWorld(t, inGit, map[string]string{"a.txt": lines, "b/c.txt": "c\n", "b/d.txt": "d\n", "e": "e\n"})
		w.write(map[string]string{"a.txt": strings.Replace(lines, "8\n", "eight\n", 1), "untracked": "u\n"})
		return w, w.tree()
	}
	spoil := func(w *world) {
		w.write(map[string]string{"a.txt": strings.Replace(w.read("a.txt"), "2\n", "two\n", 1), "b/c.txt": "spoiled\n", "new/x": "x\n"})
		proctest.Must(w.t, os.Remove(w.path("b/d.txt")))
		proctest.Must(w.t, os.Remove(w.path("e")))
		proctest.Must(w.t, os.Mkdir(w.path("e"), 0o700))
	}
	for _, inGit := range []bool{true, false} {
		for _, do := range []string{"take", "mark", "restore", "commit", "drop"} {
			if do == "commit" && !inGit {
				continue
			}
			t.Run(fmt.Sprintf("%s, in git: %v", do, inGit), func(t *testing.T) {
				steps := 0
				for at := 1; ; at++ {
					w, before := prepare(t, inGit)
					if do != "take" {
						proctest.Must(t, w.take().Close())
						spoil(w)
						if do == "commit" {
							p := w.open()
							proctest.Must(t, p.Mark(t.Context()))
						}
					}
					killed := w.dies(do, at)
					var p *Point
					switch do {
					case "take":
						var err error
						if p, err = Open(t.Context(), w.opts); errors.Is(err, ErrNone) {
							p, err = Take(t.Context(), w.opts)
							proctest.Must(t, err)
						} else {
							proctest.Must(t, err)
						}
						w.want("after Take", before)
						spoil(w)
						w.restore(p)
						w.want("after Restore", before)
					case "mark":
						p = w.open()
						proctest.Must(t, p.Mark(t.Context()))
						w.restore(p)
						w.want("after Restore", before)
					case "restore":
						p = w.open()
						w.restore(p)
						w.want("after Restore", before)
					case "commit":
						p = w.open()
						proctest.Value(p.Commit(t.Context(), Commit{Message: "Repair", Overlap: true}))(t)
						if log := w.git("log", "--format=%s"); log != "Repair\nfirst\n" {
							t.Errorf("killed at step %d, the log is %q", at, log)
						}
						if got := w.git("status", "--porcelain", "-z"); got != " M a.txt\x00?? untracked\x00" {
							t.Errorf("killed at step %d, the status is %q", at, got)
						}
						if _, err := os.Lstat(w.path(".git/index.lock")); err == nil {
							t.Errorf("killed at step %d, the index is locked", at)
						}
						if left := proctest.Value(filepath.Glob(w.path(".git/tend-*")))(t); len(left) > 0 {
							t.Errorf("killed at step %d, left behind: %v", at, left)
						}
					case "drop":
						var err error
						if p, err = Open(t.Context(), w.opts); err == nil {
							proctest.Must(t, p.Drop(t.Context()))
						} else {
							w.clear(err)
						}
						p = nil
						w.wantNone(at)
					}
					if p != nil {
						p.Close()
					}
					if !killed {
						break
					}
					steps++
				}
				if steps == 0 {
					t.Error("there is no step to die at")
				}
			})
		}
	}
}

// What a Take that is never made again was killed in goes.
func TestAKilledTakeIsCleared(t *testing.T) {
	for at := 1; ; at++ {
		w := newWorld(t, true, map[string]string{"a.txt": "a\n"})
		w.write(map[string]string{"a.txt": "b\n", "untracked": "u\n"})
		killed := w.dies("take", at)
		p, err := Open(t.Context(), w.opts)
		if err == nil {
			proctest.Must(t, p.Drop(t.Context()))
		} else {
			w.clear(err)
		}
		w.wantNone(at)
		if !killed {
			return
		}
	}
}

// clear clears a checkpoint that Open has returned an error of.
func (w *world) clear(err error) {
	w.t.Helper()
	if !errors.Is(err, ErrNone) {
		w.t.Fatal(err)
	}
	proctest.Must(w.t, Clear(w.opts))
}

// wantNone wants nothing to be left of a checkpoint.
func (w *world) wantNone(at int) {
	w.t.Helper()
	left := proctest.Value(os.ReadDir(w.opts.Dir))(w.t)
	if len(left) > 0 {
		w.t.Errorf("killed at step %d, there are %v", at, left)
	}
}

// Git that moves HEAD is killed while it has its locks. The next run removes them: they hold
// its own commit. Those of somebody else stay.
func TestLocksThatAKilledGitOfOursHasLeft(t *testing.T) {
	for name, c := range map[string]struct {
		detached bool
		spoil    func(w *world)
		ours     bool
	}{
		"of a branch":            {ours: true},
		"of HEAD alone":          {detached: true, ours: true},
		"with another's of HEAD": {spoil: func(w *world) { w.write(map[string]string{".git/HEAD.lock": "x\n"}) }},
		"another's of the branch": {spoil: func(w *world) {
			w.write(map[string]string{".git/refs/heads/main.lock": w.git("rev-parse", "HEAD") + "\n"})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, true, map[string]string{"a.txt": "a\n"})
			if c.detached {
				w.git("checkout", "-q", "--detach")
			}
			p := w.take()
			w.write(map[string]string{"a.txt": "mended\n"})
			proctest.Must(t, p.Mark(t.Context()))
			proctest.Must(t, p.Close())
			killed := false
			for at := 1; !killed; at++ { // until the commit is made, and HEAD not moved
				if !w.dies("commit", at) {
					t.Fatal("it was not killed")
				}
				killed = strings.Contains(w.git("fsck", "--unreachable", "--no-reflogs"), "unreachable commit")
			}
			_, rest, _ := strings.Cut(w.git("fsck", "--unreachable", "--no-reflogs"), "unreachable commit ")
			made := strings.Fields(rest)[0]
			hooks := t.TempDir()
			proctest.Must(t, os.WriteFile(filepath.Join(hooks, "reference-transaction"), []byte("#!/bin/sh\ntest $1 = prepared && kill -9 $PPID\nexit 0\n"), 0o755))
			if out, err := exec.Command("git", "-C", w.opts.Root, "-c", "core.hooksPath="+hooks, "update-ref", "-m", "x", "HEAD", made).CombinedOutput(); err == nil {
				t.Fatalf("git was not killed: %s", out)
			}
			if c.spoil != nil {
				c.spoil(w)
			}
			p = w.open()
			done, err := p.Commit(t.Context(), Commit{Message: "Repair", Overlap: true})
			if errors.Is(err, errMoved) { // as its caller does
				done, err = p.Commit(t.Context(), Commit{Message: "Repair", Overlap: true})
			}
			if c.ours != (err == nil && done.Hash != "") {
				t.Errorf("%+v, %v", done, err)
			}
			left, _ := filepath.Glob(w.path(".git/*.lock"))
			more, _ := filepath.Glob(w.path(".git/refs/heads/*.lock"))
			if c.ours == (len(left)+len(more) > 0) {
				t.Errorf("left are %q, %q", left, more)
			}
		})
	}
}
