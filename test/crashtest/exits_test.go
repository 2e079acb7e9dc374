//go:build linux

package crashtest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testdaemon"
	"github.com/tend-run/tend/process"
)

// What was asked for at the end of a process is done, once each here, whoever is killed at
// the moment at which the process ends.
func TestExitHooksOutliveRoles(t *testing.T) {
	t.Parallel()
	d := serve(t)
	c, dir := d.Connect(t), t.TempDir()
	var want []string
	for _, roles := range [][]string{{testdaemon.Server}, {testdaemon.Keeper}, {testdaemon.Anchor}, {testdaemon.Server, testdaemon.Keeper}, {testdaemon.Server, testdaemon.Keeper, testdaemon.Anchor}} {
		name := strings.Join(roles, "+")
		want = append(want, name+"=7")
		gate := filepath.Join(dir, "gate."+name)
		spec := process.Spec{
			Name: name, Dir: dir, Shell: "until [ -e '" + gate + "' ]; do sleep 0.05; done; exit 7", Stdin: process.StdinNull,
			Labels: map[string]string{"tend.on-exit": "echo $TEND_EXIT_NAME=$TEND_EXIT_STATUS >> done"},
		}
		spec.Retention.Pin = true
		proctest.Value(c.Start(t.Context(), spec))(t)
		pids := d.Roles()
		proctest.Must(t, os.WriteFile(gate, nil, 0o600))
		for _, role := range roles {
			if pid := pids[role]; pid > 0 {
				proctest.Must(t, syscall.Kill(pid, syscall.SIGKILL))
			}
		}
		if !d.Settle(t.Context()) {
			t.Fatalf("not all roles came back: %v", d.Roles())
		}
	}
	var got []string
	proctest.Eventually(t, "all commands have run", func() bool {
		b, _ := os.ReadFile(filepath.Join(dir, "done"))
		got = strings.Fields(string(b))
		return len(got) >= len(want)
	})
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("what ran is %v; want %v", got, want)
	}
	proctest.Eventually(t, "none is kept for it any more", func() bool {
		all, err := c.List(t.Context(), process.Filter{})
		return err == nil && !slices.ContainsFunc(all, func(in process.Info) bool { return in.Pinned })
	})
}
