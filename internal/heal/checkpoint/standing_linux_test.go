package checkpoint

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tend-run/tend/internal/support/proctest"
)

// TestWhatMayBeLostIsKnown: what no commit has, what the checkpoint does not hold, and what
// is not its business.
func TestWhatMayBeLostIsKnown(t *testing.T) {
	for _, inGit := range []bool{true, false} {
		w := newWorld(t, inGit, map[string]string{"clean": "clean\n", "dirty": "one\n", "gone": "gone\n", ".gitignore": "*.tmp\ndist/\n"})
		w.opts.Leave = []string{"data/**"}
		w.write(map[string]string{"dirty": "two\n", "new": "new\n", "part.tmp": "part\n", "big.tmp": strings.Repeat("x", maxIgnoredFile+1), "data/x": "x\n", "dist/a": "a\n", "node_modules/p/a": "a\n"})
		proctest.Must(t, os.Remove(w.path("gone")))
		proctest.Must(t, os.Symlink("clean", w.path("link")))
		p := proctest.Value(Take(t.Context(), w.opts))(t)
		w.write(map[string]string{"clean": "healed\n", "made": "made\n"})
		proctest.Must(t, p.Mark(t.Context()))
		s := proctest.Value(p.Standings(t.Context()))(t)
		is := map[string]string{}
		for _, name := range []string{"clean", "dirty", "new", "part.tmp", "big.tmp", "data/x", "dist/a", "node_modules/p/a", "link", "made", "gone", "none", "data"} {
			o := s.Of(name)
			for _, word := range []struct {
				on   bool
				word string
			}{{o.Seen, "seen"}, {o.Held, "held"}, {o.Uncommitted, "uncommitted"}, {o.Made, "made"}, {o.Left, "left"}, {o.Link, "link"}} {
				if word.on {
					is[name] += " " + word.word
				}
			}
		}
		want := map[string]string{
			"clean": " seen held", "dirty": " seen held uncommitted", "new": " seen held uncommitted", "part.tmp": " seen held uncommitted", "big.tmp": " seen uncommitted", "data/x": " seen held uncommitted left",
			"dist/a": " held made", "node_modules/p/a": " held made", "link": " seen held uncommitted link", "made": " seen held", "gone": " held", "none": " held", "data": " seen held left",
		}
		if !inGit { // no commit has anything
			want["clean"], want["big.tmp"], want["dist/a"] = " seen held uncommitted", " seen held uncommitted", " seen held uncommitted"
		}
		if diff := cmp.Diff(want, is); diff != "" {
			t.Errorf("in git %v:\n%s", inGit, diff)
		}
		head, err := s.Head(t.Context(), "dirty")
		if inGit && (err != nil || string(head) != "one\n") || !inGit && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q, %v", head, err)
		}
		files, dirs := s.Below("data")
		if strings.Join(files, " ") != "data/x" || strings.Join(dirs, " ") != "data" {
			t.Errorf("%q %q", files, dirs)
		}
		// The copy is of what Restore goes back to, and outlives the checkpoint.
		to := proctest.Value(p.Keep(t.Context(), "clean"))(t)
		again := proctest.Value(p.Keep(t.Context(), "clean"))(t)
		if diff := cmp.Diff([]Kept{{"clean", to}, {"clean", again}}, p.Kept()); diff != "" {
			t.Error(diff)
		}
		proctest.Must(t, p.Drop(t.Context()))
		for _, copied := range []string{to, again} {
			if got := string(proctest.Value(os.ReadFile(copied))(t)); got != "clean\n" {
				t.Errorf("%s has %q", copied, got)
			}
		}
	}
}
