//go:build linux

package client_test

import (
	"testing"

	"github.com/tend-run/tend/internal/testbin"
	"github.com/tend-run/tend/internal/testkeeper"
)

// TestBoxesOfAnOrdinaryUser: what is promised of boxes while keepers die, also without
// rights and without cgroups.
func TestBoxesOfAnOrdinaryUser(t *testing.T) {
	t.Parallel()
	testkeeper.Rootless(t, "^(TestABoxIsMadeOrGoneAtEachPoint|TestBoxesOverManyKeepers)$", testbin.Points)
}
