package place

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/support/proctest"
)

// TestADirectoryHasOnePlace: by a bind mount, a bind mount of one in it, and links.
func TestADirectoryHasOnePlace(t *testing.T) {
	proctest.Root(t)
	dir := proctest.Value(filepath.EvalSymlinks(t.TempDir()))(t)
	runtime.LockOSThread() // the thread ends with the test, and its mounts with it
	proctest.Must(t, unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS))
	proctest.Must(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	for _, name := range []string{"state/in/deep", "other", "bound", "inner", "memory", "beside"} {
		proctest.Must(t, os.MkdirAll(filepath.Join(dir, name), 0o755))
	}
	proctest.Must(t, unix.Mount(dir+"/state", dir+"/bound", "", unix.MS_BIND, ""))
	proctest.Must(t, unix.Mount(dir+"/state/in", dir+"/inner", "", unix.MS_BIND, ""))
	proctest.Must(t, unix.Mount("none", dir+"/memory", "tmpfs", 0, ""))
	t.Cleanup(func() {
		for _, name := range []string{"bound", "inner", "memory"} {
			proctest.Must(t, unix.Unmount(filepath.Join(dir, name), unix.MNT_DETACH))
		}
	})
	proctest.Must(t, os.Symlink("state/in", dir+"/link"))
	read := func() Table { return proctest.Value(readThread())(t) }
	state := proctest.Value(read().Of(dir + "/state"))(t)
	for name, want := range map[string]string{"state": "", "state/in": "/in", "bound": "", "bound/in/deep": "/in/deep", "inner": "/in", "inner/deep": "/in/deep", "link/deep": "/in/deep",
		"link/not/there": "/in/not/there", "state/none": "/none"} {
		p := proctest.Value(read().Of(dir + "/" + name))(t)
		if rest, ok := p.In(&state); !ok || rest != want {
			t.Errorf("%s is at %q in the directory, %v; want %q", name, rest, ok, want)
		}
	}
	for _, name := range []string{"other", "memory", "memory/state", "statement", ""} {
		p := proctest.Value(read().Of(dir + "/" + name))(t)
		if rest, ok := p.In(&state); ok {
			t.Errorf("%s is at %q in the directory", name, rest)
		}
	}
	above, bound := proctest.Value(read().Of(dir))(t), proctest.Value(read().Of(dir+"/bound/in"))(t)
	if rest, ok := bound.In(&above); !ok || rest != "/state/in" {
		t.Errorf("what is bound is at %q, %v", rest, ok)
	}
	// Without what is known of mounts the inode alone tells.
	state.dev = "none"
	p := proctest.Value(read().Of(dir + "/bound/in"))(t)
	if rest, ok := p.In(&state); !ok || rest != "/in" {
		t.Errorf("by its inode it is at %q, %v", rest, ok)
	}
}

// readThread is Read for a thread with mounts of its own.
func readThread() (Table, error) { return readFile("/proc/thread-self/mountinfo") }
