//go:build linux

package torture

import (
	"context"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/tend-run/tend/internal/lib/backoff"
	"github.com/tend-run/tend/internal/support/testdaemon"
	"github.com/tend-run/tend/sdk/go"
)

// shortestFreeze is how long roles stand still at least.
const shortestFreeze = 100 * time.Millisecond

// Frozen are the sets of roles that are stopped (SIGSTOP) together: each role
// alone; and all roles with all processes, as on a machine that stands still.
var Frozen = []Victims{{testdaemon.Server}, {testdaemon.Keeper}, {testdaemon.Anchor}, {testdaemon.Launcher, testdaemon.Anchor,
	testdaemon.Keeper, testdaemon.Server}}

// freezer stops victims at one instant and continues them later, in any order.
// One time in three it kills a set of roles meanwhile.
type freezer struct {
	d       *testdaemon.Daemon
	rnd     *rand.Rand
	victims Victims
	longest time.Duration
	// tree holds the cgroups of all processes, stopped too if it is set.
	tree cgroupTree
}

func (f *freezer) patient() bool { return false }

func (f *freezer) strike(ctx context.Context) (killed int, hit bool) {
	roles := f.d.Roles()
	var stopped []int
	for _, i := range f.rnd.Perm(len(f.victims)) {
		if pid := roles[f.victims[i]]; pid > 0 && syscall.Kill(pid, syscall.SIGSTOP) == nil {
			stopped = append(stopped, pid)
		}
	}
	if len(stopped) == 0 {
		return 0, false
	}
	f.tree.freeze("1")
	// Short ones are as interesting as long ones.
	span := math.Log(float64(f.longest) / float64(shortestFreeze))
	long := time.Duration(float64(shortestFreeze) * math.Exp(f.rnd.Float64()*span))
	if f.rnd.IntN(3) == 0 {
		part := time.Duration(f.rnd.Int64N(int64(long)))
		backoff.Wait(ctx, part)
		long -= part
		k := killer{d: f.d, rnd: f.rnd, victims: Combinations[f.rnd.IntN(len(Combinations))]}
		killed, _ = k.strike(ctx)
	}
	backoff.Wait(ctx, long)
	f.tree.freeze("0")
	for _, i := range f.rnd.Perm(len(stopped)) {
		syscall.Kill(stopped[i], syscall.SIGCONT)
	}
	return killed, true
}

// cgroupTree is the directory above the cgroups of all processes; "": there is
// none.
type cgroupTree string

func (g cgroupTree) freeze(word string) {
	if g != "" {
		_ = os.WriteFile(filepath.Join(string(g), "cgroup.freeze"), []byte(word), 0) // before Linux 5.2 the processes run on
	}
}

// treeOf finds the directory in the status of the daemon.
func treeOf(promises map[string]tend.Promise) cgroupTree {
	p := promises["kill_reaches_tree"]
	path, ok := strings.CutPrefix(p.Detail, "cgroup.kill in ")
	if !ok || !p.Kept {
		return ""
	}
	return cgroupTree(path)
}
