//go:build linux

package limits

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// What many starts at once have taken is given back when nobody calls any more. A Go
// program that does nothing would keep it: it collects when it allocates. The most is
// looked for after each start: where starts take long, a role rests before the last one.
// What idle threads keep is not given back, and there are more of them on a busy machine.
func TestRolesGiveMemoryBackWhenNobodyUsesThem(t *testing.T) {
	d := serve(t)
	pids := proctest.Value(d.c.Status(t.Context()))(t).Roles
	const given = 128 // KiB; nothing at all is given back by a role that does not rest
	roles := []string{"keeper", "server"}
	started := make(chan error)
	for range 150 {
		go func() {
			_, err := d.c.Start(t.Context(), process.Spec{Argv: []string{"sleep", "1000"}})
			started <- err
		}()
	}
	most := map[string]int{}
	for range 150 {
		if err := <-started; err != nil {
			t.Error(err)
		}
		for _, role := range roles {
			most[role] = max(most[role], ownMemory(t, pids[role]))
		}
	}
	for _, role := range roles {
		proctest.Eventually(t, fmt.Sprintf("the %s has less memory than %d KiB", role, most[role]-given), func() bool {
			return ownMemory(t, pids[role]) < most[role]-given
		})
	}
}

// ownMemory is what no file backs of a process's memory, in KiB.
func ownMemory(t *testing.T, pid int) int {
	t.Helper()
	f := proctest.Value(os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", pid)))(t)
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if n, ok := strings.CutPrefix(s.Text(), "Anonymous:"); ok {
			return proctest.Value(strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(n, "kB"))))(t)
		}
	}
	t.Fatal("smaps_rollup has no Anonymous")
	return 0
}
