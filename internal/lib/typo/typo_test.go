package typo

import "testing"

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"health", "health", 0},
		{"helth", "health", 1}, {"healthh", "health", 1}, {"heelth", "health", 1},
		{"haelth", "health", 1}, // neighbours exchanged
		{"kitten", "sitting", 3},
	} {
		if got := Distance(c.a, c.b); got != c.want {
			t.Errorf("from %q to %q are %d steps, not %d", c.a, c.b, got, c.want)
		}
	}
}
