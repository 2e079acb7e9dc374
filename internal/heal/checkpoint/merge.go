package checkpoint

import (
	"strings"

	"github.com/aymanbagabas/go-udiff"
)

// merge applies to ours what has become of base in theirs. It refuses edits that meet: at
// least one line that nobody has changed must be between them.
func merge(base, ours, theirs string) (string, bool) {
	switch {
	case ours == theirs, base == theirs:
		return ours, true
	case base == ours:
		return theirs, true
	}
	x, y := udiff.Lines(base, ours), udiff.Lines(base, theirs)
	var all []udiff.Edit
	for len(x) > 0 || len(y) > 0 {
		switch {
		case len(y) == 0, len(x) > 0 && x[0].End < y[0].Start:
			all, x = append(all, x[0]), x[1:]
		case len(x) == 0, y[0].End < x[0].Start:
			all, y = append(all, y[0]), y[1:]
		case x[0] == y[0]:
			all, x, y = append(all, x[0]), x[1:], y[1:]
		default:
			return "", false
		}
	}
	merged, err := udiff.Apply(base, all)
	return merged, err == nil
}

// overlapping applies to head those of the edits that lead from head to now which touch a
// line that has changed from before to now. It is what a commit holds of a file in
// which the healer has edited lines that were not committed.
func overlapping(head, before, now string) (string, bool) {
	// In the coordinates of now.
	mine := udiff.Lines(now, before)
	back := udiff.Lines(now, head)
	touched := func(e udiff.Edit) bool {
		for _, m := range mine {
			if m.Start <= e.End && e.Start <= m.End {
				return true
			}
		}
		return false
	}
	var keep []udiff.Edit
	for _, e := range back {
		if !touched(e) {
			keep = append(keep, e) // this part goes back to what head has
		}
	}
	out, err := udiff.Apply(now, keep)
	return out, err == nil && out != head
}

// lineFeeds undoes what core.autocrlf does.
func lineFeeds(s string) string { return strings.ReplaceAll(s, "\r\n", "\n") }
