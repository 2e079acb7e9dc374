package procfs

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

func TestTheMemoryOfTheMachineIsKnown(t *testing.T) {
	machine, limit := Memory(), MemoryLimit()
	if machine < 64<<20 || limit <= 0 || limit > machine {
		t.Errorf("the machine has %d, and we may use %d", machine, limit)
	}
}

// The least of all groups around a process bounds it.
func TestLimitsOfControlGroups(t *testing.T) {
	mount := t.TempDir()
	write := func(path, text string) {
		t.Helper()
		path = filepath.Join(mount, path)
		proctest.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		proctest.Must(t, os.WriteFile(path, []byte(text), 0o644))
	}
	write("memory.max", "1000\n")
	write("a/memory.max", "max\n")
	write("a/b/memory.max", "300\n")
	write("memory/memory.limit_in_bytes", "9223372036854771712\n")
	write("memory/docker/x/memory.limit_in_bytes", "200\n")
	for groups, want := range map[string][]int64{
		"0::/a/b\n":                            {300, 1000},
		"0::/a\n":                              {1000},
		"0::/elsewhere/in/another/namespace\n": {1000},
		"0::/\n":                               {1000},
		"3:cpu,cpuacct:/a/b\n2:memory:/docker/x\n1:name=systemd:/\n": {200, 9223372036854771712},
		"": nil, "nonsense\n": nil, "0:/\n": nil,
	} {
		if got := limitsOf(groups, mount); !slices.Equal(got, want) {
			t.Errorf("%q: %v; want %v", groups, got, want)
		}
	}
}
