package local

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/support/proctest"
)

const mostRanges = (endOfIDs - firstIDs) / container.IDs

// TestRangesOfIDsAreFree: no two have one, none that the machine names is given, and one that is returned is given again.
func TestRangesOfIDsAreFree(t *testing.T) {
	file := filepath.Join(t.TempDir(), "subuid")
	write := func(text string) { proctest.Must(t, os.WriteFile(file, []byte(text), 0o644)) }
	s := newIDs("/state", UIDBase)
	s.files = []string{file, file + "-none"}
	first := s.take()
	s.free(first)
	// The range that is first in line, half of the next, and what is none of ours or no range.
	a, b := uint32(firstIDs+(s.first+1)%mostRanges*container.IDs), uint32(firstIDs+(s.first+2)%mostRanges*container.IDs)
	write("root:100000:65536\nuser:" + fmt.Sprint(first) + ":1\nother:" + fmt.Sprint(a+5) + ":65536\n\nx:y:z\nfar:5000000000:65536\n")
	if got := s.take(); got == first || got == a || got == b && b > a {
		t.Errorf("%#x is given, which is named", got)
	}
	write("")
	given := map[uint32]bool{}
	for range mostRanges - 1 {
		base := s.take()
		if given[base] || base < firstIDs || base >= endOfIDs || base%container.IDs != 0 {
			t.Fatalf("%#x is given", base)
		}
		given[base] = true
	}
	if got := s.take(); got != UIDBase {
		t.Errorf("when none is left it is %#x", got)
	}
	s.free(UIDBase)
	s.free(a)
	if got := s.take(); got != a {
		t.Errorf("%#x is returned, and %#x given", a, got)
	}
}

func TestNamedIDs(t *testing.T) {
	for line, want := range map[string]idRange{
		"u:1879048192:65536": {0x70000000, 0x70010000}, "u:1000000:4000000000": {1_000_000, 4_001_000_000}, "u:100000:65536": {}, "u": {}, "u:2147287040:1": {},
	} {
		if got, _ := namedIDs(line, true); got != want {
			t.Errorf("%s: %v; want %v", line, got, want)
		}
	}
	if got, _ := namedIDs("late:x:1879048200:100:Somebody:/home/late:/bin/sh", false); got != (idRange{0x70000008, 0x70000009}) {
		t.Errorf("an account: %v", got)
	}
}
