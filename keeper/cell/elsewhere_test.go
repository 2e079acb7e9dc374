//go:build linux && (amd64 || arm64)

package cell

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/poorkernel"
	"github.com/tend-run/tend/internal/scene"
	"github.com/tend-run/tend/keeper/cgroup"
	"github.com/tend-run/tend/process/box"
)

// canHere names a state directory. The test program says then what boxes can have where it
// runs, and does nothing else.
const canHere = "TEND_TEST_CAN_HERE"

func TestMain(m *testing.M) {
	poorkernel.Main(os.Environ())
	state := os.Getenv(canHere)
	if state == "" {
		os.Exit(m.Run())
	}
	w, err := NewMaker(state, &cgroup.Tree{})
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(w.Can())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// elsewhere runs a line of the shell that makes a place and executes "$0" there, and
// returns what boxes can have in it. $1 is a directory on a filesystem in memory, which is
// the line's alone, as are its mounts.
func elsewhere(t *testing.T, line string) (can box.Can) {
	t.Helper()
	scene.Root(t)
	test := scene.Value(os.Executable())(t)
	cmd := exec.Command("/bin/sh", "-ec", `mount -t tmpfs -o mode=755 none "$1"; cp "$0" "$1/test"; mkdir -m 777 "$1/state"; `+line, test, "/mnt")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &can)
	}
	if err != nil {
		t.Fatalf("%v, %q, %s", err, out, problems.String())
	}
	return can
}

// ordinary executes what follows as an ordinary user.
const ordinary = `exec setpriv --reuid 65534 --regid 65534 --clear-groups --`

// TestWhereBoxesCannotBeHadTheReasonSaysWhatToDo: a machine, or a place on it, that lacks
// what they take.
func TestWhereBoxesCannotBeHadTheReasonSaysWhatToDo(t *testing.T) {
	for name, c := range map[string]struct{ line, layer, want string }{
		"an ordinary user": {`export ` + canHere + `="$1/state"; ` + ordinary + ` "$1/test"`, box.LayerUser, "as root"},
		"an ordinary user without cgroups of its own":          {`export ` + canHere + `="$1/state"; ` + ordinary + ` "$1/test"`, box.LayerMemory, "cgroup"},
		"an ordinary user in a chroot":                         {`mkdir "$1/r"; mount --rbind / "$1/r"; export ` + canHere + `="$1/state"; exec chroot --userspec 65534:65534 --groups= "$1/r" "$1/test"`, "", "chroot"},
		"an ordinary user from whom parts of /proc are hidden": {`mount -t tmpfs none /proc/irq; export ` + canHere + `="$1/state"; ` + ordinary + ` "$1/test"`, "", "/proc are hidden"},
		"a chroot":                 {`mkdir "$1/r"; mount --rbind / "$1/r"; ` + canHere + `="$1/state" exec chroot "$1/r" "$1/test"`, "", "chroot"},
		"root of a user namespace": {canHere + `="$1/state" exec unshare --user --map-root-user "$1/test"`, "", "user namespace"},
		// As in a container: all but what is stacked on the machine's own root.
		"a root that is an overlay": {`cd "$1"; mkdir up wk m; mount -t overlay none -o lowerdir=/,upperdir=up,workdir=wk m; cd m
			mount --rbind /proc proc; mount --rbind /dev dev; mount --rbind /sys sys; mount --rbind "$1" srv; mkdir -p old; pivot_root . old
			` + canHere + `=/srv/state exec chroot . /srv/test`, box.LayerBase, "overlay"},
	} {
		t.Run(name, func(t *testing.T) {
			can := elsewhere(t, c.line)
			i := slices.IndexFunc(can.Missing, func(m box.Missing) bool { return m.Layer == c.layer })
			if i < 0 || !strings.Contains(can.Missing[i].Reason, c.want) {
				t.Errorf("%+v; want the layer %q to be missing for %q", can, c.layer, c.want)
			}
			if made := can.Mode != 0; made != (c.layer != "") {
				t.Errorf("boxes can be made: %v, %+v", made, can)
			}
		})
	}
}

// TestAnOlderKernelIsNamed: the reason says which one there must be. Before Linux 6.15
// nothing copies a detached mount.
func TestAnOlderKernelIsNamed(t *testing.T) {
	scene.Root(t)
	cmd := scene.Value(poorkernel.Command(poorkernel.World{Rules: []poorkernel.Rule{
		{Call: unix.SYS_OPEN_TREE, Arg: 2, Value: unix.AT_EMPTY_PATH | unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC, Errno: unix.EINVAL},
	}}, scene.Value(os.Executable())(t)))(t)
	cmd.Env = append(os.Environ(), canHere+"="+t.TempDir())
	cmd.Stderr = os.Stderr
	var can box.Can
	scene.Must(t, json.Unmarshal(scene.Value(cmd.Output())(t), &can))
	if len(can.Missing) != 1 || can.Missing[0].Layer != "" || !strings.Contains(can.Missing[0].Reason, "Linux 6.15") {
		t.Errorf("%+v; want all to be missing for Linux 6.15", can)
	}
}

// TestTheSettingOfUserNamespacesIsNamed: to change it for a test would change it for all.
func TestTheSettingOfUserNamespacesIsNamed(t *testing.T) {
	if why := whyNoUsers(syscall.ENOSPC); !strings.Contains(why, "user.max_user_namespaces") {
		t.Errorf("%q", why)
	}
}
