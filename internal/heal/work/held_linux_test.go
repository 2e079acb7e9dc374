package work

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/heal/view"
	"github.com/tend-run/tend/internal/support/proctest"
)

// TestAPersonIsShownAllThatWaits: also what was made the project's before the rest was proved, and what is no
// text. A worker that goes on for a killed one, and does not know the change, has none wait in its place.
func TestAPersonIsShownAllThatWaits(t *testing.T) {
	g := newGround(t, 0)
	w := g.w
	w.state.Tries = []healer.Try{{Remedy: healer.Remedy{Kind: healer.Model}}}
	h := &hands{ctx: t.Context(), w: w, try: 1, set: &view.Set{}}
	h.set.Put(view.Change{Path: "go.mod", Kind: view.File, Data: []byte("module declared\n")})
	proctest.Must(t, h.apply(t.Context(), h.set))
	for _, c := range []view.Change{
		{Path: "clean.js", Kind: view.File, Data: []byte("try { clean(); } catch (e) {}\n")}, {Path: "a.bin", Kind: view.File, Data: []byte("\x00")},
		{Path: "run.sh", Kind: view.File, Mode: 0o755, Data: []byte("true\n")}, {Path: "long", Kind: view.File, Mode: 0o644, Data: []byte(strings.Repeat("long\n", healer.MaxDiff))},
	} {
		h.set.Put(c)
	}
	if err := h.judge(t.Context(), "It is good."); err == nil || !strings.Contains(err.Error(), "an exception is swallowed") {
		t.Fatalf("it is judged: %v", err)
	}
	held := proctest.Value(healer.ReadHeld(w.order.Dir))(t)
	for _, shown := range []string{"+module declared", "+try {", "Binary or large files /dev/null and b/a.bin", "run.sh: with mode 755", "b/long differ"} {
		if !strings.Contains(held.Diff, shown) {
			t.Errorf("%q is not in\n%.2000s", shown, held.Diff)
		}
	}
	proctest.Must(t, h.apply(t.Context(), h.set))
	w.applied = heldSet{}
	if _, err := w.reviewed(t.Context(), healer.Effect{Try: 1, Remedy: w.state.Tries[0].Remedy}); err == nil {
		t.Error("the one that goes on finds nothing")
	}
	if now := proctest.Value(healer.ReadHeld(w.order.Dir))(t); now.Hash != held.Hash {
		t.Errorf("in place of it waits %+v", now)
	}
}

// TestAViewIsWhatTheProjectWouldBe: what a command may not remove is there for the next one, with its
// directory, and modes are as they were set.
func TestAViewIsWhatTheProjectWouldBe(t *testing.T) {
	g := newGround(t, 0)
	g.h.try, g.h.set = 1, &view.Set{}
	proctest.Must(t, os.Chmod(filepath.Join(g.root, "clean.js"), 0o755))
	g.exec("rm -r engine; echo more >> clean.js; chmod 640 clean.js; mkdir made; echo x > made/x; chmod 600 made/x")
	for range 2 {
		if got := g.exec("cat engine/core.js; stat -c %a clean.js made/x; rm -r engine"); !strings.HasPrefix(got, "core\n640\n600\n") {
			t.Errorf("the next command sees %q", got)
		}
	}
	if got, _, err := g.h.ReadFile("engine/core.js", 0, 100); string(got) != "core\n" {
		t.Errorf("what it may not remove is %q, %v", got, err)
	}
	g.exec("rm -r made")
	proctest.Must(t, g.h.apply(t.Context(), g.h.set))
	if got := g.read("engine/core.js") + g.read("made/x") + g.read("clean.js"); got != "core\nnoneclean\nmore\n" {
		t.Errorf("the project has %q", got)
	}
	if st := proctest.Value(os.Stat(filepath.Join(g.root, "clean.js")))(t); st.Mode().Perm() != 0o640 {
		t.Errorf("its mode is %v", st.Mode())
	}
}

// TestWhatWaitsIsForTheFilesAsTheyWere: a file that has become a directory or a link is another one, also a
// link to the same content, and then nothing is changed at all.
func TestWhatWaitsIsForTheFilesAsTheyWere(t *testing.T) {
	g := newGround(t, 0)
	w := g.w
	var s view.Set
	s.Put(view.Change{Path: "clean.js", Kind: view.File, Data: []byte("mended\n")})
	s.Put(view.Change{Path: "also.js", Kind: view.File, Data: []byte("new\n")})
	var set heldSet
	proctest.Must(t, w.based(t.Context(), &set, &s))
	w.keepHeld(&set, "", "")
	w.order.Apply, w.order.Hash = filepath.Base(w.order.Dir), proctest.Value(healer.ReadHeld(w.order.Dir))(t).Hash
	look := func() healer.Entry { return proctest.Value(w.lookHeld(t.Context()))(t) }
	if e := look(); len(e.Remedies) != 1 {
		t.Fatalf("as they were: %+v", e)
	}
	at := filepath.Join(g.root, "clean.js")
	proctest.Must(t, errors.Join(os.Remove(at), os.Mkdir(at, 0o755)))
	if e := look(); len(e.Remedies) != 0 || !slices.Equal(e.Changed, []string{"clean.js"}) {
		t.Errorf("a directory: %+v", e)
	}
	proctest.Must(t, errors.Join(os.Remove(at), os.WriteFile(at+".other", []byte("clean\n"), 0o644), os.Symlink("clean.js.other", at), w.project.Absorb(t.Context())))
	if _, err := w.applyHeld(t.Context()); err == nil || !strings.Contains(err.Error(), "nothing was changed: clean.js leads to clean.js.other") {
		t.Errorf("a link: %v", err)
	}
	if got := g.read("clean.js.other") + g.read("also.js"); got != "clean\nnone" {
		t.Errorf("there is %q", got)
	}
}
