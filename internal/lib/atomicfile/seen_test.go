package atomicfile

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A version is known again once no other can have its time; each other version is another.
func TestVersionsOfAFileAreToldApart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	write := func(text string, at time.Time) Seen {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
		s, err := Look(path)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	now, old := time.Now(), time.Now().Add(-time.Hour)
	if young := write("a", now.Add(time.Minute)); !young.Same(young) {
		t.Error("a file of the future is read for ever")
	}
	if young := write("a", now); young.Same(young) {
		t.Error("a file that was just written counts as known")
	}
	first := write("a", old)
	if again, _ := Look(path); !first.Same(again) {
		t.Error("the same version is another")
	}
	if longer := write("ab", old); longer.Same(first) {
		t.Error("another size is the same version")
	}
	if later := write("b", old.Add(time.Second)); later.Same(first) {
		t.Error("another time is the same version")
	}
	if err := os.WriteFile(path+".new", []byte("c"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil { // another inode
		t.Fatal(err)
	}
	if other := write("c", old); other.Same(first) {
		t.Error("another file is the same version")
	}
	if _, err := Look(path + ".none"); err == nil {
		t.Error("there is no such file")
	}
	if (Seen{}).Same(Seen{}) {
		t.Error("none is a version")
	}
}
