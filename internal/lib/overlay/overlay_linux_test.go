package overlay

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/support/proctest"
)

// TestADefaultOfTheMachineChangesNothing: an option that comes first stands for the default,
// which no test may change. With each there are the overlay of a sandbox and that of a model's
// command over the same directory at once, and then one over other layers.
func TestADefaultOfTheMachineChangesNothing(t *testing.T) {
	proctest.Root(t)
	for _, set := range []string{"index=on", "nfs_export=on", "redirect_dir=on", "redirect_dir=off", "metacopy=on", "xino=on"} {
		for _, user := range []bool{false, true} {
			name := set
			if user {
				name += " and marks of a user"
			}
			t.Run(name, func(t *testing.T) { overlays(t, set, user) })
		}
	}
}

func overlays(t *testing.T, set string, user bool) {
	dir := t.TempDir()
	runtime.LockOSThread() // the thread ends with the test, and its mounts with it
	proctest.Must(t, unix.Unshare(unix.CLONE_NEWNS))
	proctest.Must(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	proctest.Must(t, unix.Mount("none", dir, "tmpfs", 0, "mode=755"))
	t.Cleanup(func() { proctest.Must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"lower/d", "other", "up", "work", "root", "up2", "work2", "root2"} {
		proctest.Must(t, os.MkdirAll(at(name), 0o755))
	}
	proctest.Must(t, os.WriteFile(at("lower/f"), []byte("content"), 0o600))
	mount := func(s Spec, to string) {
		t.Helper()
		s.User = user
		if err := unix.Mount("none", at(to), "overlay", 0, set+","+s.Options()); err != nil {
			t.Fatalf("%s with %s: %v", to, s.Options(), err)
		}
	}
	mount(Spec{Lower: []string{at("lower")}, Upper: at("up"), Work: at("work")}, "root")
	mount(Spec{Lower: []string{at("up"), at("lower")}, Upper: at("up2"), Work: at("work2"), Volatile: true}, "root2")
	if err := unix.Rename(at("root/d"), at("root/e")); !errors.Is(err, unix.EXDEV) {
		t.Errorf("a directory of a layer is renamed in place: %v", err)
	}
	proctest.Must(t, os.Chmod(at("root/f"), 0o644))
	if b, err := os.ReadFile(at("up/f")); string(b) != "content" {
		t.Errorf("of a file whose mode was changed there is %q, %v", b, err)
	}
	proctest.Must(t, unix.Unmount(at("root2"), 0))
	proctest.Must(t, unix.Unmount(at("root"), 0))
	mount(Spec{Lower: []string{at("other"), at("lower")}, Upper: at("up"), Work: at("work")}, "root")

	// As the base of sandboxes: two directories, which none writes to.
	mount(Spec{Lower: []string{at("other"), at("lower")}}, "root2")
	proctest.Must(t, unix.Unmount(at("root2"), 0))
}
