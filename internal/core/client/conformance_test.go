//go:build linux

package client_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/tend-run/tend/internal/lib/kernelfault"
	"github.com/tend-run/tend/internal/support/testbin"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/process/processtest"
)

// keeperBinary is the program of launcher, anchor and keeper, built once.
var keeperBinary string

func TestMain(m *testing.M) {
	kernelfault.Main(os.Environ())
	processtest.Main()
	strangerMain()
	standstillMain()
	os.Exit(testbin.Main(func(dir string) int {
		keeperBinary = testbin.Roles.Keeper(dir)
		return m.Run()
	}, testbin.Roles))
}

// TestConformance runs the suite on one real keeper.
func TestConformance(t *testing.T) {
	t.Parallel()
	manager := testkeeper.Open(t, testkeeper.Start(t))
	processtest.Run(t, func(*testing.T) process.Manager { return manager })
}

// daemonOn starts the roles on an existing directory.
func daemonOn(t *testing.T, stateDir string) {
	t.Helper()
	cmd := exec.Command(keeperBinary, "launcher", "--state-dir", stateDir)
	testkeeper.Run(t, stateDir, cmd, cmd.Start)
}
