package work

import (
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
