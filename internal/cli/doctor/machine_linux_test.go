package doctor

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTheKernelIsAsked(t *testing.T) {
	dir := t.TempDir()
	m := ReadMachine(filepath.Join(dir, "not", "there"))
	if m.UID != os.Geteuid() || m.FilesMost == 0 || m.Tasks == 0 || m.TasksBy == "" || m.Disk.Total == 0 || m.Disk.Magic == 0 || m.Clock.IsZero() {
		t.Errorf("%+v", m)
	}
	if m.UID == 0 && m.Caps == 0 {
		t.Error("root has no capability")
	}
	if at := Existing(m.Dir); at != dir {
		t.Errorf("the filesystem of %s is looked for at %s", m.Dir, at)
	}
}
