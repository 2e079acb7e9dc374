//go:build linux

// Package debian makes root directories of Debian for tests.
package debian

import (
	"cmp"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

// Root makes a root as a directory of the test.
func Root(t testing.TB, release, include string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "debian")
	proctest.Must(t, Make(dir, release, include))
	return dir
}

// Make makes a root by debootstrap, from where apt of this machine has its packages: a small Debian of a release ("": this
// machine's), with these packages beside (names with commas between them; "": none). It takes about a minute.
func Make(dir, release, include string) error {
	out, err := exec.Command("apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME)", "Created-By: Packages").Output()
	if err != nil {
		return fmt.Errorf("apt-get indextargets: %w", err)
	}
	var mirror, here string
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) == 2 && !strings.Contains(f[1], "-") {
			mirror, here = f[0], f[1]
			break
		}
	}
	if mirror == "" {
		return fmt.Errorf("apt names no suite of Debian:\n%s", out)
	}
	args := []string{"--variant=minbase", cmp.Or(release, here), dir, mirror}
	if include != "" {
		args = append([]string{"--include=" + include}, args...)
	}
	if out, err := exec.Command("debootstrap", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("debootstrap: %w\n%s", err, out)
	}
	return nil
}
