//go:build linux

package memfd

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/support/proctest"
)

// What is sealed is tried through /proc, as somebody would who is given the path.
func TestSealsHoldWhoeverOpensTheFileAnew(t *testing.T) {
	for name, c := range map[string]struct {
		seals                   int
		cut, grow, write, punch bool // that still work
	}{
		"fixed size": {FixedSize, false, false, true, true},
		"grow only":  {GrowOnly, false, true, true, true},
		"constant":   {Constant, false, false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			fd, err := Create("test", 0)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(fd)
			proctest.Must(t, unix.Ftruncate(fd, 1<<20))
			Seal(fd, c.seals)
			path := fmt.Sprintf("/proc/self/fd/%d", fd)
			check := func(what string, works bool, err error) {
				t.Helper()
				if works != (err == nil) {
					t.Errorf("%s: %v", what, err)
				}
				if err != nil && !errors.Is(err, unix.EPERM) {
					t.Errorf("%s is refused with %v", what, err)
				}
			}
			check("cut", c.cut, os.Truncate(path, 0))
			if f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0); err == nil {
				f.Close()
				t.Error("it was opened and cut")
			}
			check("grow", c.grow, os.Truncate(path, 2<<20))
			_, err = unix.Pwrite(fd, []byte("x"), 10)
			check("write", c.write, err)
			check("punch", c.punch, unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 4096))
			if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); err == nil {
				t.Error("another seal was added")
			}
		})
	}
}
