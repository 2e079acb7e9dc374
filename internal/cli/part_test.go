package cli

import (
	"fmt"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"

	"github.com/tend-run/tend/internal/support/proctest"
)

// TestAVerbIsTheSameWithoutTheOthers: a command line that begins with a verb is read by a
// grammar of this verb alone, by which it is understood as by the whole.
func TestAVerbIsTheSameWithoutTheOthers(t *testing.T) {
	build := func(g any) *kong.Application { return proctest.Value(kong.New(g, kong.Name("tend")))(t).Model }
	whole := build(new(grammar))
	for _, verb := range whole.Children {
		for _, word := range append([]string{verb.Name}, verb.Aliases...) {
			g, flags := grammarFor([]string{word, "--json"})
			alone := build(g)
			if verb.Tag.Has("whole") {
				if len(alone.Children) != len(whole.Children) {
					t.Errorf("%s is about all verbs, and knows %d", word, len(alone.Children))
				}
				continue
			}
			if len(alone.Children) != 1 {
				t.Errorf("%s is read with %d verbs", word, len(alone.Children))
			}
			if diff := cmp.Diff(described(whole.Node, verb), described(alone.Node, verbOf(alone.Node, word))); diff != "" {
				t.Errorf("%s alone is another verb (-in the whole +alone):\n%s", word, diff)
			}
			flags.URL = "unix:///x"
			if got := alone.Flags[1].Target.String(); got != flags.URL {
				t.Errorf("the global flags of %s are others than those that are read: %q", word, got)
			}
		}
	}
	for _, args := range [][]string{nil, {"--json", "ps"}, {"pss"}, {"--help"}, {"help", "ps"}, {""}} {
		if g, _ := grammarFor(args); len(build(g).Children) != len(whole.Children) {
			t.Errorf("%q is not read by the whole grammar", args)
		}
	}
}

// described is all that a verb says of itself, with the flags of the program and the
// verbs below it, a line each.
func described(app, verb *kong.Node) (lines []string) {
	if verb == nil {
		return nil
	}
	for _, n := range []*kong.Node{app, verb} {
		for _, f := range n.Flags {
			lines = append(lines, fmt.Sprintf("flag --%s -%c %q default %q of %v, hidden %v, group %v", f.Name, f.Short, f.Help, f.Default, f.Target.Type(), f.Hidden, f.Group))
		}
	}
	for _, p := range verb.Positional {
		lines = append(lines, fmt.Sprintf("argument %s %q of %v, required %v", p.Name, p.Help, p.Target.Type(), p.Required))
	}
	lines = append(lines, fmt.Sprintf("%s %v %q %q, hidden %v, group %v", verb.Name, verb.Aliases, verb.Help, verb.Detail, verb.Hidden, verb.Group))
	for _, c := range verb.Children {
		lines = append(lines, described(verb, c)...)
	}
	return lines
}
