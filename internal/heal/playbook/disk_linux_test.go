package playbook

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

// TestAFullDiskGetsSpaceFromLogs: where logs of the project fill the disk, the end of each
// stays; what git tracks, what is linked and what is no log is left alone. With space
// left nothing is done.
func TestAFullDiskGetsSpaceFromLogs(t *testing.T) {
	root := proctest.Value(filepath.EvalSymlinks(t.TempDir()))(t)
	proctest.Must(t, syscall.Mount("tmpfs", root, "tmpfs", 0, "size=24m"))
	t.Cleanup(func() { proctest.Must(t, syscall.Unmount(root, syscall.MNT_DETACH)) })
	run(t, root, "git", "init", "-q")
	large := make([]byte, 3<<20)
	for _, name := range []string{"tracked.log", "logs/app.log", "logs/app.log.1", "data.db", "linked.log"} {
		write(t, filepath.Join(root, name), large)
	}
	write(t, filepath.Join(root, "small.log"), []byte("x"))
	proctest.Must(t, os.Link(filepath.Join(root, "linked.log"), filepath.Join(root, "other-name")))
	proctest.Must(t, os.Symlink("/var/log/syslog", filepath.Join(root, "system.log")))
	run(t, root, "git", "add", "-f", "tracked.log")
	books := proctest.Value(Load())(t)
	e := Evidence{Root: root, Dir: root, Signal: Exit, Log: "Error: ENOSPC: no space left on device, write\n"}
	if got := books.Match(t.Context(), e); len(got) != 0 {
		t.Errorf("a disk with space: %+v", got)
	}
	f := proctest.Value(os.Create(filepath.Join(root, "fill")))(t)
	for {
		if _, err := f.Write(make([]byte, 64<<10)); err != nil {
			break
		}
	}
	proctest.Must(t, f.Close())
	got := books.Match(t.Context(), e)
	if len(got) != 1 || len(got[0].Actions) != 2 || !got[0].Strong {
		t.Fatalf("%+v", got)
	}
	for _, a := range got[0].Actions {
		if a.Kind != Truncate || a.Keep != 1<<20 || filepath.Dir(a.Path) != "logs" {
			t.Errorf("%+v", a)
		}
	}
	for _, name := range []string{"logs/app.log", "logs/app.log.1"} {
		proctest.Must(t, os.Truncate(filepath.Join(root, name), 10))
	}
	f = proctest.Value(os.OpenFile(filepath.Join(root, "fill"), os.O_APPEND|os.O_WRONLY, 0))(t)
	for {
		if _, err := f.Write(make([]byte, 64<<10)); err != nil {
			break
		}
	}
	proctest.Must(t, f.Close())
	if got := books.Match(t.Context(), e); len(got) != 1 || !got[0].Proposal() {
		t.Errorf("it is no log that fills it: %+v", got)
	}
}
