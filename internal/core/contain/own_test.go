//go:build linux && (amd64 || arm64)

package contain

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/lib/kernelfault"
	"github.com/tend-run/tend/internal/support/proctest"
)

// TestContainersWithIDsOfTheirOwnShareFiles: the machine's, the skeleton's and a layer's are root's in each, and what a
// container writes is plain on the disk. The user namespace belongs to the container's first id.
func TestContainersWithIDsOfTheirOwnShareFiles(t *testing.T) {
	w := newWorld(t)
	layer := w.state + "/layer"
	proctest.Must(t, os.Mkdir(layer, 0o755))
	proctest.Must(t, os.WriteFile(layer+"/of-the-layer", nil, 0o644))
	proctest.Must(t, os.Chown(layer+"/of-the-layer", 0, 33))
	for i := range 3 {
		s := w.spec(t)
		s.UIDBase, s.Layers = uint32(0x70000000+i*container.IDs), []string{layer}
		c := w.container(t, s)
		const line = `stat -c '%u:%g' /usr/bin/env /etc/passwd /of-the-layer /dev/null /dev/tty /root / | tr '\n' ' '; touch /mine && chown 5:6 /mine; rm /of-the-layer`
		if got, want := inside(t, c, line), "0:0 0:0 0:33 0:0 0:5 0:0 0:0"; got != want {
			t.Errorf("container %d: %q; want %q", i, got, want)
		}
		var st unix.Stat_t
		if err := unix.Stat(s.Dir+"/up/mine", &st); err != nil || st.Uid != 5 || st.Gid != 6 {
			t.Errorf("on the disk: %d:%d, %v", st.Uid, st.Gid, err)
		}
		ns := proctest.Value(os.Open(fmt.Sprintf("/proc/%d/ns/user", c.PID)))(t)
		defer ns.Close()
		if owner, err := unix.IoctlGetInt(int(ns.Fd()), unix.NS_GET_OWNER_UID); err != nil || uint32(owner) != s.UIDBase {
			t.Errorf("the owner of its user namespace is %d, %v", owner, err)
		}
		if err := unix.Stat(fmt.Sprintf("/proc/%d", c.PID), &st); err != nil || st.Uid != s.UIDBase {
			t.Errorf("its pid 1 belongs to %d, %v", st.Uid, err)
		}
	}
	want := 1
	if !shiftsMemory(t) {
		want = 3 // one for each
	}
	if n := len(w.parts.stages); n != want {
		t.Errorf("they share %d skeletons; want %d", n, want)
	}
}

// shiftsMemory reports whether the kernel shows other ids of files in memory, by its version.
func shiftsMemory(t *testing.T) bool {
	t.Helper()
	var name unix.Utsname
	proctest.Must(t, unix.Uname(&name))
	var major, minor int
	proctest.Value(fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor))(t)
	return major > 6 || major == 6 && minor >= 3
}

// TestEachContainerHasItsOwnDevices: opens of one container's are no event of another's.
func TestEachContainerHasItsOwnDevices(t *testing.T) {
	w := newWorld(t)
	at := func(c *Container) string { return fmt.Sprintf("/proc/%d/root/dev/null", c.PID) }
	one, other := at(w.container(t, w.spec(t))), at(w.container(t, w.spec(t))) // with the same ids
	watch := proctest.Value(unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC))(t)
	defer unix.Close(watch)
	proctest.Value(unix.InotifyAddWatch(watch, one, unix.IN_OPEN))(t)
	var events [4096]byte
	for _, c := range []struct {
		path string
		seen bool
	}{{other, false}, {"/dev/null", false}, {one, true}} {
		f := proctest.Value(os.Open(c.path))(t)
		f.Close()
		if n, _ := unix.Read(watch, events[:]); n > 0 != c.seen {
			t.Errorf("an open of %s: %d bytes of events", c.path, n)
		}
	}
}

// TestOwnIDsTakeAKernelThatShiftsMemory: before Linux 6.3 the reason why all containers have the same ids is said.
func TestOwnIDsTakeAKernelThatShiftsMemory(t *testing.T) {
	if can := elsewhere(t, canHere+`="$1/state" exec "$1/test"`); slices.Contains(can.Layers, container.LayerIDs) != shiftsMemory(t) {
		t.Errorf("here: %+v", can)
	}
	can := canOn(t, kernelfault.Linux61, "", "exec")
	if slices.Contains(can.Layers, container.LayerIDs) || !slices.ContainsFunc(can.Missing, func(m container.Missing) bool {
		return m.Layer == container.LayerIDs && strings.Contains(m.Reason, "Linux 6.3")
	}) {
		t.Errorf("on 6.1: %+v", can)
	}
}
