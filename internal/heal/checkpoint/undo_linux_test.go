package checkpoint

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

// undone makes changes between a checkpoint and its removal, as one call of a chat does, and
// returns the Undo of them.
func (w *world) undone(n int, change func()) (*Undo, string) {
	w.t.Helper()
	w.opts.ID = fmt.Sprint("call-", n)
	p := w.take()
	change()
	proctest.Must(w.t, p.Mark(w.t.Context()))
	u, why, err := p.Undo(w.t.Context())
	proctest.Must(w.t, err)
	proctest.Must(w.t, p.Drop(w.t.Context()))
	return u, why
}

// Changes that were made one after the other are taken back as one: what came to nothing is
// none of them, and what somebody else has done in between is not lost.
func TestChangesAreTakenBackAsOne(t *testing.T) {
	for _, inGit := range []bool{true, false} {
		t.Run(fmt.Sprintf("in git: %v", inGit), func(t *testing.T) {
			w := newWorld(t, inGit, map[string]string{"a.txt": "1\n", "gone.txt": "g\n", "back.txt": "b\n", "run.sh": "#!/bin/sh\n", "kind": "a file\n"})
			w.write(map[string]string{"a.txt": "1, not committed\n", "untracked.txt": "nobody's\n"})
			before := w.tree()
			steps := []func(){
				func() {
					w.write(map[string]string{"a.txt": "2\n", "new/made.txt": "m\n", "new/short.txt": "s\n", "back.txt": "x\n"})
					proctest.Must(t, os.Remove(w.path("gone.txt")))
					proctest.Must(t, os.Remove(w.path("kind")))
				},
				func() {},
				func() {
					w.write(map[string]string{"a.txt": "3\n", "back.txt": "b\n", "kind/is/a": "directory\n"})
					proctest.Must(t, os.Remove(w.path("new/short.txt")))
					proctest.Must(t, os.Chmod(w.path("run.sh"), 0o755))
				},
			}
			var all *Undo
			for n, step := range steps {
				u, why := w.undone(n, step)
				if why != "" {
					t.Fatal(why)
				}
				if all, why = all.Join(u); why != "" {
					t.Fatal(why)
				}
			}
			if got := strings.Join(all.Paths(), " "); got != "a.txt gone.txt kind kind/is/a new/made.txt run.sh" {
				t.Errorf("it is %s", got)
			}
			back := Back{Root: w.root, Dir: w.opts.Dir, ID: "back-1", Undo: all}
			if done := proctest.Value(TakeBack(t.Context(), back))(t); len(done.Left)+len(done.Changed) > 0 || done.Hash != "" {
				t.Errorf("%+v", done)
			}
			w.want("the tree after TakeBack", before)

			first, _ := w.undone(8, func() { w.write(map[string]string{"a.txt": "4\n"}) })
			w.write(map[string]string{"a.txt": "4, and mine\n"})
			second, _ := w.undone(9, func() { w.write(map[string]string{"a.txt": "5, and mine\n"}) })
			if _, why := first.Join(second); why != "a.txt was changed by somebody else between two of its changes" {
				t.Errorf("it is %q", why)
			}
			big := &Undo{Files: []Undone{{Path: "big", Before: sideOf(file, 0o644, -1, -1, make([]byte, MaxUndo)), After: sideOf(file, 0o644, -1, -1, nil)}}}
			if u, why := first.Join(big); u != nil || !strings.Contains(why, "more than 8 MiB") {
				t.Errorf("it is %v, %q", u, why)
			}
		})
	}
}

// What has changed when nobody was there to see whose it is can be anybody's work: it cannot be
// taken back by an Undo, though it counts as the healer's.
func TestWhatNobodySawCannotBeTakenBack(t *testing.T) {
	w := newWorld(t, true, map[string]string{"a.txt": "1\n", "b.txt": "1\n"})
	p := w.take()
	proctest.Must(t, p.Absorb(t.Context()))
	w.write(map[string]string{"a.txt": "the healer's\n"})
	proctest.Must(t, p.Mark(t.Context()))
	proctest.Must(t, p.Close()) // its process is killed
	for range 2 {               // and so is the next one, once it has seen it
		p = proctest.Value(Open(t.Context(), w.opts))(t)
		w.write(map[string]string{"b.txt": "whose?\n"})
		proctest.Must(t, p.Mark(t.Context()))
		proctest.Must(t, p.Close())
	}
	p = proctest.Value(Open(t.Context(), w.opts))(t)
	if diff := proctest.Value(p.Diff(t.Context()))(t); !strings.Contains(diff, "+whose?") {
		t.Errorf("the diff is %s", diff)
	}
	u, why, err := p.Undo(t.Context())
	if proctest.Must(t, err); u != nil || !strings.Contains(why, "b.txt may be somebody else's work") {
		t.Errorf("it is %v, %q", u.Paths(), why)
	}
	w.write(map[string]string{"b.txt": "1\n"})
	u, why, err = p.Undo(t.Context())
	if proctest.Must(t, err); why != "" || !slices.Equal(u.Paths(), []string{"a.txt"}) {
		t.Errorf("without it, it is %v, %q", u.Paths(), why)
	}
	proctest.Must(t, p.Drop(t.Context()))
}
