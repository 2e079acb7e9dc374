package local

import (
	"testing"

	"github.com/tend-run/tend/internal/support/testkeeper"
)

// TestRootless runs what holds also where the daemon is an ordinary user, as one.
func TestRootless(t *testing.T) {
	t.Parallel()
	testkeeper.Rootless(t, "^(TestDriver|TestAProgramInsideCannotGetOut|TestManySandboxesLeaveNothing|TestTheWayOutFollowsTheSandbox|TestASandboxOutlivesKeeperAndServer|TestASandboxOfAnImage|TestAnImageOfManyLayersIsASandbox|"+
		"TestAVolumeIsInSeveralSandboxesAndOutlivesThem|TestALimitedVolumeIsFullForAll)$")
}
