//go:build linux

package limits

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/tend-run/tend/internal/scene"
	"github.com/tend-run/tend/process"
)

// What many starts at once have taken is given back when nobody calls any more. A Go
// program that does nothing would keep it: it collects when it allocates.
func TestRolesGiveMemoryBackWhenNobodyUsesThem(t *testing.T) {
	d := serve(t)
	before := map[string]int{}
	var together sync.WaitGroup
	for range 150 {
		together.Go(func() {
			if _, err := d.c.Start(t.Context(), process.Spec{Argv: []string{"sleep", "1000"}}); err != nil {
				t.Error(err)
			}
		})
	}
	together.Wait()
	pids := scene.Value(d.c.Status(t.Context()))(t).Roles
	for _, role := range []string{"keeper", "server"} {
		before[role] = ownMemory(t, pids[role])
	}
	for _, role := range []string{"keeper", "server"} {
		scene.Eventually(t, fmt.Sprintf("the %s has less memory than %d KiB", role, before[role]), func() bool {
			return ownMemory(t, pids[role]) < before[role]-512
		})
	}
}

// ownMemory is what no file backs of a process's memory, in KiB.
func ownMemory(t *testing.T, pid int) int {
	t.Helper()
	f := scene.Value(os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", pid)))(t)
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if n, ok := strings.CutPrefix(s.Text(), "Anonymous:"); ok {
			return scene.Value(strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(n, "kB"))))(t)
		}
	}
	t.Fatal("smaps_rollup has no Anonymous")
	return 0
}
