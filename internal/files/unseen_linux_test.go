package files

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/support/proctest"
)

// A directory that may be read but not entered shows names and types. They are
// listed, and what is beside it.
func TestAListingHasWhatCannotBeLookedAt(t *testing.T) {
	f := self(t)
	if os.Geteuid() == 0 { // root may enter everything
		f, _ = stranger(t)
	}
	inHome := func(name string) string { return filepath.Join(f.User.Home, name) }
	for _, err := range []error{
		os.MkdirAll(inHome("shown/dir/deeper"), 0o755), os.WriteFile(inHome("shown/file"), []byte("x"), 0o644),
		os.Symlink("file", inHome("shown/link")), unix.Mkfifo(inHome("shown/fifo"), 0o644), os.WriteFile(inHome("tail"), nil, 0o644),
		os.Chmod(inHome("shown"), 0o444),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { os.Chmod(inHome("shown"), 0o755) })
	list, err := f.List(t.Context(), "shown", 2)
	if err != nil {
		t.Fatal(err)
	}
	want := []Entry{
		{Name: "dir", Path: inHome("shown/dir"), Type: TypeDir, Permissions: "d---------"},
		{Name: "fifo", Path: inHome("shown/fifo"), Permissions: "p---------"},
		{Name: "file", Path: inHome("shown/file"), Type: TypeFile, Permissions: "----------"},
		{Name: "link", Path: inHome("shown/link"), Permissions: "L---------", Target: inHome("shown/link")},
	}
	if diff := cmp.Diff(want, list); diff != "" {
		t.Error(diff)
	}
	list, err = f.List(t.Context(), "", 2)
	if err != nil || len(list) != 6 || list[5].Name != "tail" {
		t.Errorf("from above: %+v, %v", list, err)
	}
}

// A mount whose server is gone says ENOTCONN to whoever looks at it.
func TestAListingHasAMountThatDoesNotAnswer(t *testing.T) {
	f := self(t)
	dead := filepath.Join(f.User.Home, "dead")
	proctest.Must(t, os.Mkdir(dead, 0o755))
	proctest.Must(t, os.WriteFile(filepath.Join(f.User.Home, "file"), nil, 0o644))
	fuse, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT { // a container, whose /dev is short
		node := filepath.Join(t.TempDir(), "fuse")
		proctest.Must(t, unix.Mknod(node, unix.S_IFCHR|0o600, int(unix.Mkdev(10, 229))))
		fuse, err = unix.Open(node, unix.O_RDWR|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	err = unix.Mount("tend-test", dead, "fuse", unix.MS_NOSUID|unix.MS_NODEV, "fd="+strconv.Itoa(fuse)+",rootmode=40000,user_id=0,group_id=0")
	unix.Close(fuse)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dead, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if _, err := os.Lstat(dead); err == nil {
		t.Fatal("the mount answers")
	}
	for _, depth := range []uint32{1, 2} {
		list, err := f.List(t.Context(), "", depth)
		if err != nil || len(list) != 2 || list[0].Name != "dead" || list[0].Type != TypeDir || list[1].Name != "file" {
			t.Errorf("depth %d: %+v, %v", depth, list, err)
		}
	}
}
