//go:build linux

package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// As TestLimitsAreWrittenToV2, of a process: the next one in its group has none.
func TestLimitsOfAProcessAreWrittenToV2AndLifted(t *testing.T) {
	for name, swap := range map[string]bool{"with an account of swap": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			proctest.Must(t, os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("cpu memory pids\n"), 0o600))
			tree := &Tree{root: root, v1: []controller{{"memory", filepath.Join(root, "v1")}}} // v2 has it, too
			proctest.Must(t, os.Mkdir(tree.dir(7), 0o700))
			want := map[string][2]string{"memory.max": {"1048576", "max"}, "pids.max": {"5", "max"}, "cpu.weight": {"300", "100"}}
			if swap {
				want["memory.swap.max"] = [2]string{"0", "max"}
			}
			holds := func(which int) {
				t.Helper()
				for f, v := range want {
					path := filepath.Join(tree.dir(7), f)
					if got := string(proctest.Value(os.ReadFile(path))(t)); got != v[which] {
						t.Errorf("%s holds %q; want %q", f, got, v[which])
					}
					proctest.Must(t, os.Truncate(path, 0))
				}
			}
			for f := range want {
				proctest.Must(t, os.WriteFile(filepath.Join(tree.dir(7), f), nil, 0o600))
			}
			l := process.Limits{MemoryMax: 1 << 20, PidsMax: 5, CPUWeight: 300}
			if own, err := tree.Limit(7, 1, true, &l); err != nil || len(own) > 0 {
				t.Errorf("limited: %v, %v", own, err)
			}
			holds(0)
			tree.Lift(7)
			holds(1)
			if _, err := tree.Limit(7, 1, false, &process.Limits{PidsMax: 5}); !errors.Is(err, process.ErrUnsupported) {
				t.Errorf("without a group: %v", err)
			}
		})
	}
}

// A process in a nest may have directories there and elsewhere: with the nest go its own
// alone, and the others after the process.
func TestWithANestGoNoDirectoriesElsewhere(t *testing.T) {
	root := t.TempDir()
	tree := &Tree{v1: []controller{{"memory", filepath.Join(root, "memory", "x")}, {"pids", filepath.Join(root, "pids", "x")}}}
	n := tree.Nest("1")
	proctest.Must(t, os.MkdirAll(filepath.Join(root, "memory", "x", n.name), 0o700))
	proctest.Must(t, os.MkdirAll(filepath.Join(root, "pids"), 0o700))
	tree.Place(3, n)
	o := owner{3, 7}
	dirs := []string{tree.ownDir(&tree.v1[0], o), tree.ownDir(&tree.v1[1], o)}
	for _, dir := range dirs {
		proctest.Must(t, os.Mkdir(dir, 0o700))
	}
	tree.own = map[owner][]string{o: dirs}
	proctest.Must(t, os.Remove(dirs[0])) // as removeDir does it in a cgroup, whose files need not be removed
	proctest.Must(t, n.Remove(time.Now()))
	if _, err := os.Stat(dirs[1]); err != nil {
		t.Fatalf("it went with the nest: %v", err)
	}
	tree.Unlimit(o.slot, o.gen)
	if _, err := os.Stat(dirs[1]); !os.IsNotExist(err) {
		t.Errorf("it is left: %v", err)
	}
	if left := tree.owners(); len(left) > 0 {
		t.Errorf("known are %v", left)
	}
}

func TestTheOwnerIsReadFromTheNameOfADirectory(t *testing.T) {
	for name, want := range map[string]bool{
		"p0.1": true, "p17.4294967295": true, "p17": false, "p17.": false, "p.1": false, "p017.1": false, "p1.01": false, "p1.1.1": false, "b1.1": false, "p1.4294967296": false, "p99999999999.1": false,
	} {
		if o, ok := ownerOf(name); ok != want || ok && o.name() != name {
			t.Errorf("%s is of %+v, %v", name, o, ok)
		}
	}
}

// TestLimitsAreWrittenToV2: into files of a directory that has those of a nest with all
// controllers. Machines whose controllers are v1's have no real one.
func TestLimitsAreWrittenToV2(t *testing.T) {
	for name, swap := range map[string]bool{"with an account of swap": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			proctest.Must(t, os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("cpu memory pids\n"), 0o600))
			tree := &Tree{root: root}
			n := tree.Nest("x")
			proctest.Must(t, os.Mkdir(n.Dir(), 0o700))
			files := []string{"memory.max", "pids.max", "cpu.max"}
			if swap {
				files = append(files, "memory.swap.max")
			}
			for _, f := range files {
				proctest.Must(t, os.WriteFile(filepath.Join(n.Dir(), f), nil, 0o600))
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
					proctest.Must(t, os.Truncate(filepath.Join(n.Dir(), f), 0)) // the kernel takes each write as a whole
				}
			}
			all := container.Limits{Memory: 1 << 30, Tasks: 4096, CPUs: 1.5}
			proctest.Must(t, n.Limit(&container.Limits{}, &all))
			holds(map[string]string{"memory.max": "1073741824", "memory.swap.max": "0", "pids.max": "4096", "cpu.max": "150000 100000"})
			proctest.Must(t, n.Limit(&all, &container.Limits{}))
			holds(map[string]string{"memory.max": "max", "memory.swap.max": "max", "pids.max": "max", "cpu.max": "max"})
		})
	}
}

// The kernel refuses a limit of memory of v1 with EINTR if the thread that sets it has a
// signal to take, as it has now and then in every Go program.
func TestALimitIsSetWhateverSignalsCome(t *testing.T) {
	tree := Find(fmt.Sprintf("tend-test-%d", os.Getpid()))
	defer tree.RemoveAll()
	if why := tree.Controllers()["memory"]; why != nil {
		t.Fatal(why)
	}
	n := tree.Nest("signals")
	proctest.Must(t, n.Make())
	defer func() { proctest.Must(t, n.Remove(time.Now().Add(time.Minute))) }()
	was := container.Limits{Memory: 64 << 20}
	proctest.Must(t, n.Limit(&container.Limits{}, &was))
	proctest.Must(t, n.Join(&was))

	proctest.InAStorm(t, func(*atomic.Int64) {
		for i := range 200 {
			l := container.Limits{Memory: int64(64+(i+1)%2) << 20}
			if err := n.Limit(&was, &l); err != nil {
				t.Errorf("set for the %d. time: %v", i+1, err)
				break
			}
			was = l
		}
	})
}
