//go:build linux && (amd64 || arm64)

package contain

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// TestContainersInForcedWays: what holds for containers holds in each way that this kernel can be made to go.
func TestContainersInForcedWays(t *testing.T) {
	proctest.Root(t)
	const some = "TestLayersLieOverEachOther|TestAContainerComesBackOnItsFiles|TestManyContainersLeaveNothing"
	const all = "TestNothingOfTheMachineIsReachedInside|TestRootInsideBecomesEachUser|TestBindsShowWhatTheyShouldAndNoMore|" + some
	for forced, tests := range map[string]string{
		"ids=65536,owners=idmap,attach=handed,proc=inside": all, "owners=nobody": all, "proc=handed": all,
		"attach=path": some, // owners inside are others
	} {
		t.Run(forced, func(t *testing.T) {
			cmd := exec.Command(proctest.Value(os.Executable())(t), "-test.v", "-test.run=^("+tests+")$")
			cmd.Env = append(os.Environ(), container.WayVariable+"="+forced)
			out, err := cmd.CombinedOutput()
			if ran := strings.Count(string(out), "\n--- PASS"); err != nil || ran != strings.Count(tests, "Test") {
				t.Errorf("%d tests have passed, %v:\n%s", ran, err, out)
			}
		})
	}
}

// TestTheWayIsFoundAndForced: it stands in a line, and no other is gone where a part is forced.
func TestTheWayIsFoundAndForced(t *testing.T) {
	overlay := ownersOverAnOverlay(t)
	for name, c := range map[string]struct{ line, want string }{
		"root":                          {canHere + `="$1/state" exec "$1/test"`, "ids=65536 upper=idmap owners=idmap attach=handed devices=made proc=inside"},
		"nobody":                        {container.WayVariable + `=owners=nobody ` + canHere + `="$1/state" exec "$1/test"`, "ids=65536 upper=idmap owners=nobody attach=handed devices=made proc=inside"},
		"one id":                        {container.WayVariable + `=ids=1 ` + canHere + `="$1/state" exec "$1/test"`, "ids=1 upper=plain owners=nobody attach=path devices=bound proc=inside"},
		"root of a user namespace":      {canHere + `="$1/state" exec unshare --user --map-root-user "$1/test"`, "ids=1 upper=plain owners=nobody attach=path devices=bound proc=inside"},
		"a root on an overlay":          {overlayRoot + canHere + `=/srv/state exec chroot . /srv/test`, "ids=65536 upper=idmap owners=" + overlay + " attach=handed devices=made proc=inside"},
		"a /proc with hidden parts":     {masked + canHere + `="$1/state" exec "$1/test"`, "ids=65536 upper=idmap owners=idmap attach=handed devices=made proc=handed"},
		"root that may not mount":       {canHere + `="$1/state" exec setpriv --bounding-set=-sys_admin,-sys_ptrace,-mknod "$1/test"`, "ids=65536 upper=plain owners=nobody attach=path devices=bound proc=inside"},
		"root that may make no devices": {canHere + `="$1/state" exec setpriv --bounding-set=-mknod "$1/test"`, "ids=65536 upper=idmap owners=idmap attach=handed devices=bound proc=inside"},
		"the same, for a user":          {masked + `export ` + canHere + `="$1/state"; ` + ordinary + ` "$1/test"`, "ids=1 upper=plain owners=nobody attach=path devices=bound proc=shared"},
	} {
		can := elsewhere(t, c.line)
		if can.Way != c.want || !slices.Contains(can.Layers, container.LayerBase) {
			t.Errorf("%s: %+v; want %s", name, can, c.want)
		}
		noCopies := slices.ContainsFunc(can.Missing, func(m container.Missing) bool { return m.Layer == container.LayerCopies })
		if noCopies != (name == "root that may not mount") {
			t.Errorf("%s: %+v", name, can.Missing)
		}
	}
	// Where the machine's files cannot show other ids, nothing else is tried.
	can := elsewhere(t, overlayRoot+container.WayVariable+`=owners=idmap `+canHere+`=/srv/state exec chroot . /srv/test`)
	if slices.Contains(can.Layers, container.LayerBase) != (overlay == ownersIDMap) {
		t.Errorf("over an overlay that shows owners=%s, another way was forced: %+v", overlay, can)
	}
}

func TestAWayThatCannotBeForcedIsRefused(t *testing.T) {
	for _, text := range []string{"ids=2", "owners", "fast=1", "ids=1,", "ids=1,owners=idmap", "ids=1,attach=handed", "attach=path,owners=idmap", "attach=path,devices=made", "attach=path,proc=handed", "ids=1,proc=handed", "proc=none"} {
		m := proctest.Value(NewMaker(t.TempDir(), nil))(t)
		if err := m.Force(text); !errors.Is(err, process.ErrUnsupported) || !strings.Contains(err.Error(), container.WayVariable) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
