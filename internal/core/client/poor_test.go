//go:build linux

package client_test

import (
	"os"
	"testing"

	"github.com/tend-run/tend/internal/core/client"
	"github.com/tend-run/tend/internal/lib/kernelfault"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
)

// poor starts the roles on a kernel that lacks something.
func poor(t *testing.T, w kernelfault.World) (m *client.Manager, stateDir string) {
	t.Helper()
	stateDir = shortDir(t)
	cmd := proctest.Value(kernelfault.Command(w, keeperBinary, "launcher", "--state-dir", stateDir))(t)
	testkeeper.Run(t, stateDir, cmd, cmd.Start)
	return testkeeper.Open(t, stateDir), stateDir
}

// watched starts the roles so that the test sees each of the calls.
func watched(t *testing.T, calls ...uintptr) (stateDir string, l *kernelfault.Listener) {
	t.Helper()
	var rules []kernelfault.Rule
	for _, call := range calls {
		rules = append(rules, kernelfault.Rule{Call: call, Arg: -1})
	}
	return watchedIn(t, kernelfault.World{Rules: rules})
}

// watchedIn is watched in a world, some of whose rules may refuse calls.
func watchedIn(t *testing.T, w kernelfault.World) (stateDir string, l *kernelfault.Listener) {
	t.Helper()
	stateDir = shortDir(t)
	cmd := proctest.Value(kernelfault.Command(w, keeperBinary, "launcher", "--state-dir", stateDir))(t)
	t.Cleanup(func() { l.Close() }) // after the roles have ended
	testkeeper.Run(t, stateDir, cmd, func() (err error) {
		l, err = kernelfault.Listen(cmd, cmd.Start)
		return err
	})
	return stateDir, l
}

// shortDir is a directory with room for the names of sockets.
func shortDir(t *testing.T) string {
	t.Helper()
	dir := proctest.Value(os.MkdirTemp("", "tend-"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
