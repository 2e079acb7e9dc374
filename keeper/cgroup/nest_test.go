//go:build linux

package cgroup

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tend-run/tend/internal/scene"
	"github.com/tend-run/tend/process/box"
)

// TestLimitsAreWrittenToV2: into files of a directory that has those of a nest with all
// controllers. Machines whose controllers are v1's have no real one.
func TestLimitsAreWrittenToV2(t *testing.T) {
	for name, swap := range map[string]bool{"with an account of swap": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			scene.Must(t, os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("cpu memory pids\n"), 0o600))
			tree := &Tree{root: root}
			n := tree.Nest("x")
			scene.Must(t, os.Mkdir(n.Dir(), 0o700))
			files := []string{"memory.max", "pids.max", "cpu.max"}
			if swap {
				files = append(files, "memory.swap.max")
			}
			for _, f := range files {
				scene.Must(t, os.WriteFile(filepath.Join(n.Dir(), f), nil, 0o600))
			}
			holds := func(want map[string]string) {
				t.Helper()
				for f, v := range want {
					got, err := os.ReadFile(filepath.Join(n.Dir(), f))
					if f == "memory.swap.max" && !swap && os.IsNotExist(err) {
						continue
					}
					if err != nil || string(got) != v {
						t.Errorf("%s holds %q, %v; want %q", f, got, err, v)
					}
					scene.Must(t, os.Truncate(filepath.Join(n.Dir(), f), 0)) // the kernel takes each write as a whole
				}
			}
			all := box.Limits{Memory: 1 << 30, Tasks: 4096, CPUs: 1.5}
			scene.Must(t, n.Limit(&box.Limits{}, &all))
			holds(map[string]string{"memory.max": "1073741824", "memory.swap.max": "0", "pids.max": "4096", "cpu.max": "150000 100000"})
			scene.Must(t, n.Limit(&all, &box.Limits{}))
			holds(map[string]string{"memory.max": "max", "memory.swap.max": "max", "pids.max": "max", "cpu.max": "max"})
		})
	}
}
