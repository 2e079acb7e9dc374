package house_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testbin"
)

// mostSize is how large the program may be on disk, in bytes: one file is copied into each
// guest and each image. OCI images are 1.5 MB of it, E2B's code interpreter 0.2, the list of what sandboxes see 0.1,
// disks of volumes and cells by MCP 0.1, cells by tend's own API and on the page 0.2, BuildKit's parser 0.6. What is planned
// adds at most: people 1.4 MB; healing takes 2 away. Who adds more finds what can go first.
const mostSize = 39_950_000

func TestTheProgramKeepsItsSize(t *testing.T) {
	dir := t.TempDir()
	proctest.Must(t, testbin.Make(dir, testbin.Released))
	info := proctest.Value(os.Stat(testbin.Released.Tend(dir)))(t)
	if info.Size() > mostSize {
		t.Errorf("tend has %d bytes, and %d are the limit; find out what came in: go tool nm -size -sort size", info.Size(), mostSize)
	}
}

// A function that calls reflect's MethodByName with a name that is computed, as templates do,
// makes the linker keep every exported method of every type: a fifth of the program.
func TestNothingKeepsAllMethods(t *testing.T) {
	link := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-w -dumpdep",
		"-o", filepath.Join(t.TempDir(), "tend"), "./cmd/tend")
	link.Env = append(link.Environ(), "CGO_ENABLED=0")
	deps := proctest.Value(link.CombinedOutput())(t)
	if len(deps) < 1<<20 {
		t.Fatalf("the linker said %q", deps)
	}
	roots := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^(\S+) <[^>]*ReflectMethod[^>]*>`).FindAllSubmatch(deps, -1) {
		roots[string(m[1])] = true
	}
	for root := range roots {
		t.Errorf("%s finds a method by a name that is computed", root)
	}
}
