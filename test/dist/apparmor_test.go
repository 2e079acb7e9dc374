//go:build linux && tend_dist

package dist

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tend-run/tend/internal/support/debian"
	"github.com/tend-run/tend/internal/support/proctest"
)

// TestTheProfileOfAppArmor: the package gives it to an AppArmor that reads it, which is one of version 4, and puts nothing before
// an older one: that would fail at each start for it. No kernel of Debian enforces it; the parser says what it reads.
func TestTheProfileOfAppArmor(t *testing.T) {
	file := build(t, "v0.1.0", "deb").file(".deb")
	for release, takes := range map[string]bool{"bookworm": false, "trixie": true} {
		t.Run(release, func(t *testing.T) {
			dir := debian.Root(t, release, "apparmor")
			proctest.Must(t, os.WriteFile(filepath.Join(dir, "root/tend.deb"), proctest.Value(os.ReadFile(file))(t), 0o644))
			profile := filepath.Join(dir, "etc/apparmor.d/tend")
			has := func() bool { _, err := os.Stat(profile); return err == nil }
			command(t, nil, "chroot", dir, "dpkg", "-i", "/root/tend.deb")
			if has() != takes {
				t.Errorf("after the installation the profile is there: %v", has())
			}
			if takes {
				command(t, nil, "chroot", dir, "apparmor_parser", "--skip-kernel-load", "--skip-cache", "/etc/apparmor.d/tend")
			}
			command(t, nil, "chroot", dir, "dpkg", "-r", "tend")
			if has() {
				t.Error("a removal leaves the profile")
			}
		})
	}
}
