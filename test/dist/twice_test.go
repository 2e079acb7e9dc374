//go:build linux && tend_dist

package dist

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testbin"
)

// TestTheSameCommitGivesTheSameBytes builds all for two processors, in two checkouts at
// different paths, of which one is no repository, and at different times.
func TestTheSameCommitGivesTheSameBytes(t *testing.T) {
	sums := func(dir string) string {
		t.Helper()
		out := t.TempDir()
		command(t, []string{"VERSION=v0.1.0", "OUT=" + out, "SOURCE_DATE_EPOCH=1790000000"}, filepath.Join(dir, "scripts/dist"), "linux/amd64", "linux/arm64")
		return string(proctest.Value(os.ReadFile(filepath.Join(out, "SHA256SUMS")))(t))
	}
	here := proctest.Value(testbin.Root())(t)
	there := filepath.Join(t.TempDir(), "elsewhere")
	command(t, nil, "sh", "-c", `mkdir "$1" && git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$1"`, "sh", there)
	if one, two := sums(here), sums(there); one != two || one == "" {
		t.Errorf("the sums of one build:\n%s\nof the other:\n%s", one, two)
	}
}
