package files

import (
	"errors"
	"io"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/support/proctest"
)

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestAFullDiskIsToldAndLeavesNothing(t *testing.T) {
	f := self(t)
	proctest.Root(t)
	if err := unix.Mount("tmpfs", f.User.Home, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(f.User.Home, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if _, err := f.Write("big", io.LimitReader(zeros{}, 4<<20), nil); !errors.Is(err, ErrNoSpace) || IsBodyError(err) {
		t.Errorf("got %v", err)
	}
	if _, err := f.Stat("big"); !errors.Is(err, ErrNotExist) {
		t.Errorf("the part is left: %v", err)
	}
	if _, err := f.Write("small", strings.NewReader("fits"), nil); err != nil {
		t.Errorf("after it: %v", err)
	}
	for _, name := range []string{"p1", "p2"} {
		if _, err := f.Write(name, io.LimitReader(zeros{}, 400<<10), nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.Compose(t.Context(), []string{"p1", "p2"}, "whole"); !errors.Is(err, ErrNoSpace) {
		t.Errorf("compose: %v", err)
	}
	list, err := f.List(t.Context(), "", 1)
	if err != nil || len(list) != 3 {
		t.Errorf("after a failed compose: %d entries, %v", len(list), err)
	}
	if _, err := f.Move("p1", "/var/tmp/never-there"); !errors.Is(err, ErrCrossDevice) {
		t.Errorf("move to another file system: %v", err)
	}
}
