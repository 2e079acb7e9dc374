//go:build linux

package limits

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// cycles is how many sandboxes are made and destroyed: LIMITS_SANDBOXES, or a few.
func cycles(t *testing.T) int64 {
	s := os.Getenv("LIMITS_SANDBOXES")
	if s == "" {
		return 100
	}
	return proctest.Value(strconv.ParseInt(s, 10, 64))(t)
}

// Sandboxes come and go, some with programs that would go on, and leave nothing behind: no
// mount, group, process, folder, descriptor. A namespace is held by one of those.
func TestSandboxesThatCameAndWentLeaveNothing(t *testing.T) {
	d := serve(t)
	comeAndGo := func(n int64) (made bool) {
		var wg sync.WaitGroup
		var left atomic.Int64
		var refused atomic.Bool
		left.Store(n)
		for range 4 {
			wg.Go(func() {
				for i := left.Add(-1); i >= 0 && !t.Failed(); i = left.Add(-1) {
					sandbox, err := d.c.CreateSandbox(t.Context(), tend.SandboxSpec{Isolation: tend.IsolationFull})
					if errors.Is(err, process.ErrUnsupported) {
						refused.Store(true)
						return
					}
					if err == nil && i%5 == 0 {
						_, err = sandbox.Processes().Spawn(t.Context(), tend.Shell("(setsid sleep 1000 &) ; echo > /tmp/file; sleep 1000"))
					}
					if err == nil {
						err = sandbox.Destroy(t.Context())
					}
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		return !refused.Load()
	}
	if !comeAndGo(20) { // what is kept for the next ones is there then
		return
	}
	same := d.sameRoles()
	before := d.census()
	n := cycles(t)
	comeAndGo(n)
	const slack = 12 // connections and spare folders come and go
	var more map[string]int
	defer func() {
		t.Logf("behind %d sandboxes there is %v; before them, %v; more: %v", n, d.census(), before, more)
	}()
	proctest.Eventually(t, "as little is there as before", func() bool {
		more = d.census()
		maps.DeleteFunc(more, func(what string, n int) bool { return n <= before[what]+slack })
		return len(more) == 0
	})
	same()
}

// census counts what sandboxes take.
func (d *daemon) census() map[string]int {
	d.t.Helper()
	count := map[string]int{}
	for role, pid := range d.Roles() {
		fds, _ := os.ReadDir(procfs.Path(pid, "fd"))
		count["descriptors of the "+role] = len(fds)
		mounts, _ := os.ReadFile(procfs.Path(pid, "mountinfo"))
		count["mounts of the "+role] = strings.Count(string(mounts), "\n")
	}
	for _, dir := range []string{"sandboxes", "sandboxes/.trash", "cells", "run/cells", "spool"} {
		names, _ := os.ReadDir(filepath.Join(d.StateDir(), dir))
		for _, n := range names {
			if dir != "sandboxes" || driver.LikeID(n.Name()) {
				count["folders in "+dir]++
			}
		}
	}
	identity := strings.Fields(string(proctest.Value(os.ReadFile(filepath.Join(d.StateDir(), "identity")))(d.t)))
	group := identity[len(identity)-1]
	filepath.WalkDir("/sys/fs/cgroup", func(path string, e os.DirEntry, err error) error {
		if err == nil && e.IsDir() && strings.Contains(path, "/"+group+"/") {
			count["groups"]++
		}
		return nil
	})
	pids, _ := procfs.PIDs()
	for _, pid := range pids {
		if text, err := procfs.Read(pid, "cgroup"); err == nil && strings.Contains(string(text), fmt.Sprintf("/%s/", group)) {
			count["processes"]++
		}
	}
	return count
}
