package cli

import (
	"strings"
	"testing"
)

func TestSurvivorsAreNamedWithoutWhatATerminalObeys(t *testing.T) {
	got := named([]int{12, 13, 14}, map[int]string{12: "sleep", 14: "a\x1b[2Jb"})
	if !strings.HasPrefix(got, "12 (sleep), 13, 14 (a") || strings.Contains(got, "\x1b") {
		t.Errorf("%q", got)
	}
}
