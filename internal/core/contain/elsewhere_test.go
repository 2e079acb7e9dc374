//go:build linux && (amd64 || arm64)

package contain

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/cgroup"
	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/lib/kernelfault"
	"github.com/tend-run/tend/internal/lib/newfs"
	"github.com/tend-run/tend/internal/support/proctest"
)

// canHere names a state directory. The test program says then what containers can have where it
// runs, and does nothing else.
const canHere = "TEND_TEST_CAN_HERE"

// insideHere is a line of the shell. The test program runs it in a container where it runs, whose state directory
// canHere names, and prints what it says.
const insideHere = "TEND_TEST_INSIDE_HERE"

func runInside(state, line string) error {
	w, err := NewMaker(state, &cgroup.Tree{})
	if err != nil {
		return err
	}
	if err := errors.Join(w.Force(os.Getenv(container.WayVariable)), w.find()); err != nil {
		return err
	}
	s := container.Spec{ID: "00000000-0000-4000-8000-000000000001", Dir: state + "/box", UIDBase: 100000, Volatile: true}
	if w.rootless {
		s.UIDBase = 0
	}
	if err := errors.Join(os.MkdirAll(s.Dir+"/up", 0o755), os.MkdirAll(s.Dir+"/wk", 0o755)); err != nil {
		return err
	}
	c, err := w.Make(&s)
	if err != nil {
		return err
	}
	who := []string{"-S", "0", "-G", "0"}
	if w.rootless {
		who = []string{"--preserve-credentials"} // it is root inside, and may change no groups
	}
	args := slices.Concat([]string{"-t", fmt.Sprint(c.PID), "-U", "-m", "-p"}, who, []string{"/bin/sh", "-c", line})
	out, err := exec.Command("nsenter", args...).CombinedOutput()
	os.Stdout.Write(out)
	c.kill()
	return errors.Join(err, c.End(time.Now().Add(patience)))
}

func TestMain(m *testing.M) {
	kernelfault.Main(os.Environ())
	if line := os.Getenv(insideHere); line != "" {
		if err := runInside(os.Getenv(canHere), line); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	state := os.Getenv(canHere)
	if state == "" {
		os.Exit(m.Run())
	}
	w, err := NewMaker(state, &cgroup.Tree{})
	if err == nil {
		err = w.Force(os.Getenv(container.WayVariable))
	}
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(w.Can())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// elsewhere runs a line of the shell that makes a place and executes "$0" there, and
// returns what containers can have in it. $1 is a directory that is the line's alone, as are its
// mounts.
func elsewhere(t *testing.T, line string) (can container.Can) {
	t.Helper()
	out := saidElsewhere(t, line)
	if err := json.Unmarshal(out, &can); err != nil {
		t.Fatalf("%v, %q", err, out)
	}
	return can
}

// saidElsewhere is elsewhere for what is executed there to say.
func saidElsewhere(t *testing.T, line string) []byte {
	t.Helper()
	proctest.Root(t)
	test := proctest.Value(os.Executable())(t)
	cmd := exec.Command("/bin/sh", "-ec", `mount --bind "$2" "$1"; cp "$0" "$1/test"; mkdir -m 777 "$1/state"; `+line, test, "/mnt", t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v, %q, %s", err, out, problems.String())
	}
	return out
}

// ordinary executes what follows as an ordinary user.
const ordinary = `exec setpriv --reuid 65534 --regid 65534 --clear-groups --`

// overlayRoot goes to a directory that is a root as in a container: an overlay, with $1 at /srv.
const overlayRoot = `cd "$1"; mkdir up wk m; mount -t overlay none -o lowerdir=/,upperdir=up,workdir=wk m; cd m
	mount --rbind /proc proc; mount --rbind /dev dev; mount --rbind /sys sys; mount --rbind "$1" srv; mkdir -p old; pivot_root . old
	`

// ownersOverAnOverlay are those of the machine's files where / is an overlay: Linux 7.3 has an overlay show other ids, and 7.2 does not.
func ownersOverAnOverlay(t *testing.T) string {
	t.Helper()
	proctest.Root(t)
	first := exec.Command("sleep", "infinity")
	ids := []syscall.SysProcIDMap{{HostID: 100000, Size: 65536}}
	first.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids}
	proctest.Must(t, first.Start())
	defer func() { _, _ = first.Process.Kill(), first.Wait() }()
	ns := proctest.Value(os.Open(fmt.Sprintf("/proc/%d/ns/user", first.Process.Pid)))(t)
	defer ns.Close()
	overlay := proctest.Value(newfs.Mount("overlay", 0, "lowerdir=/usr:/etc"))(t)
	defer unix.Close(overlay)
	switch err := mapIDs(overlay, int(ns.Fd()), 0); err {
	case nil:
		return ownersIDMap
	case unix.EINVAL:
		return ownersNobody
	default:
		t.Fatal(err)
		return ""
	}
}

// TestARootThatIsAnOverlay: as in a container, with a state directory on a volume. Root and an ordinary user have all layers.
func TestARootThatIsAnOverlay(t *testing.T) {
	for name, line := range map[string]string{
		"root":             canHere + `=/srv/state exec chroot . /srv/test`,
		"an ordinary user": `export ` + canHere + `=/srv/state; cd /; umount -l /old; ` + ordinary + ` /srv/test`,
	} {
		t.Run(name, func(t *testing.T) {
			if can := elsewhere(t, overlayRoot+line); !slices.Contains(can.Layers, container.LayerBase) {
				t.Errorf("%+v", can)
			}
		})
	}
}

// TestFilesOverARootThatIsAnOverlay: where the machine's are nobody's, they can yet be replaced and removed, with their directories.
func TestFilesOverARootThatIsAnOverlay(t *testing.T) {
	const line = `cd /usr/share/base-files && stat -c %u profile && sed -i s/PATH/PUTH/ profile && grep -q PUTH profile && rm motd && ls motd 2>/dev/null
		echo new > /usr/bin/new && rm /usr/bin/env && chmod 600 /usr/bin/new && stat -c "%u %a" /usr/bin/new
		(echo more >> dot.bashrc) 2>/dev/null || echo refused; echo me > /etc/own && cat /etc/own; id -u; ls /opt; cat /srv/secret 2>/dev/null
		mkdir -p /tmp/p/DEBIAN /tmp/p/usr/share/new-package; echo x > /tmp/p/usr/share/new-package/file
		printf "Package: new-package\nVersion: 1\nArchitecture: all\nMaintainer: A <a@b.c>\nDescription: d\n" > /tmp/p/DEBIAN/control
		dpkg-deb --build /tmp/p /tmp/p.deb >/dev/null && dpkg -i /tmp/p.deb >/tmp/log 2>&1 || cat /tmp/log; cat /usr/share/new-package/file; dpkg -s new-package | grep Status`
	const end = "me\n0\nx\nStatus: install ok installed\n"
	want := map[string]string{ownersNobody: "65534\n0 600\nrefused\n" + end, ownersIDMap: "0\n0 600\n" + end}
	for forced, owners := range map[string]string{"": ownersOverAnOverlay(t), "owners=nobody": ownersNobody} {
		got := string(saidElsewhere(t, overlayRoot+`echo secret > /mnt/secret; export `+container.WayVariable+`=`+forced+` `+
			insideHere+`='`+line+`'; `+canHere+`=/srv/state exec chroot . /srv/test`))
		if got != want[owners] {
			t.Errorf("forced to %q: %q; want %q", forced, got, want[owners])
		}
	}
}

// TestDevicesOfAKeeperThatMakesNone are the machine's.
func TestDevicesOfAKeeperThatMakesNone(t *testing.T) {
	const line = `head -c 3 /dev/urandom | wc -c; echo x >/dev/null && (echo x >/dev/full) 2>/dev/null || echo full; touch /dev/x 2>/dev/null || echo closed; stat -c %t:%T /dev/zero`
	got := string(saidElsewhere(t, "export "+insideHere+"='"+line+"'; "+canHere+`="$1/state" exec setpriv --bounding-set=-mknod "$1/test"`))
	if want := "3\nfull\nclosed\n1:5\n"; got != want {
		t.Errorf("%q; want %q", got, want)
	}
}

// TestRootThatMayNotMount has containers with ids of nobody outside all the same, in which the machine's files are nobody's.
func TestRootThatMayNotMount(t *testing.T) {
	const line = `id -u; stat -c %u /usr/bin/env /etc/passwd /etc; chown 33:33 /tmp && stat -c %u:%g /tmp; rm /usr/bin/yes && echo new >/usr/bin/new && cat /usr/bin/new
		mkdir /usr/share/new && (echo x >>/usr/bin/env) 2>/dev/null || echo kept; cat /etc/shadow | head -c 7; head -c 3 /dev/zero | wc -c; id -u nobody; cat /srv/state/x /var/lib/dpkg/lock 2>/dev/null; su nobody -s /bin/sh -c "id -u"`
	const may = ` setpriv --bounding-set=-sys_admin,-sys_ptrace,-mknod,-net_admin `
	for name, line := range map[string]string{
		"on the machine":  "export " + insideHere + "='" + line + "'; " + canHere + `="$1/state" exec` + may + `"$1/test"`,
		"/ is an overlay": overlayRoot + "cd /; umount -l /old; export " + insideHere + "='" + line + "'; " + canHere + `=/srv/state exec` + may + `/srv/test`,
	} {
		got := string(saidElsewhere(t, line))
		if want := "0\n65534\n0\n0\n33:33\nnew\nkept\nroot:*:3\n65534\n65534\n"; got != want {
			t.Errorf("%s: %q; want %q", name, got, want)
		}
	}
}

// TestNothingOfTheMachineIsGivenAway where a program inside has put a link in the place of a directory.
func TestNothingOfTheMachineIsGivenAway(t *testing.T) {
	proctest.Root(t)
	s, theirs := container.Spec{Dir: t.TempDir(), UIDBase: 100000}, t.TempDir()
	proctest.Must(t, errors.Join(os.MkdirAll(s.Dir+"/up/usr", 0o755), os.WriteFile(theirs+"/hosts", nil, 0o644), os.Symlink(theirs, s.Dir+"/up/etc")))
	proctest.Must(t, giveAway(&s, []piece{{path: "/usr"}, {path: "/etc/hosts"}}))
	for path, want := range map[string]uint32{theirs + "/hosts": 0, theirs: 0, s.Dir + "/up/usr": 100000, s.Dir + "/up": 100000} {
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil || st.Uid != want {
			t.Errorf("%s belongs to %d, %v; want %d", path, st.Uid, err, want)
		}
	}
}

// masked hides a part of /proc, as engines of containers do.
const masked = `mount -t tmpfs none /proc/irq; `

// TestWherePartsOfProcAreHidden: root's containers have a /proc of their own all the same, and others have that of tend, which shows
// processes by name, and nothing else of them.
func TestWherePartsOfProcAreHidden(t *testing.T) {
	const line = `cat /proc/self/comm; ls /proc | grep -x "[0-9]*" | wc -l | grep -cx "[1-9]"; (echo 1 >/proc/sys/kernel/pid_max) 2>/dev/null || echo refused`
	for name, c := range map[string]struct{ before, run, more, want string }{
		"root":                        {"", `exec "$1/test"`, "; grep -c tend-sand /proc/1/comm", "cat\n1\nrefused\n1\n"},
		"root, where / is an overlay": {overlayRoot, `exec chroot . /srv/test`, "; grep -c tend-sand /proc/1/comm", "cat\n1\nrefused\n1\n"},
		"root, who has tend's":        {"export " + container.WayVariable + "=proc=shared; ", `exec "$1/test"`, looks, "cat\n0\nrefused\nname\n"},
		"an ordinary user":            {"", ordinary + ` "$1/test"`, looks, "cat\n0\nrefused\nname\n"},
		"root of a user namespace":    {"", `exec unshare --user --map-root-user "$1/test"`, looks, "cat\n0\nrefused\nname\n"},
	} {
		state := "$1/state"
		if c.before == overlayRoot {
			state = "/srv/state"
		}
		out := string(saidElsewhere(t, masked+c.before+"export "+insideHere+"='"+line+c.more+"'; export "+canHere+`="`+state+`"; `+c.run))
		if out != c.want {
			t.Errorf("%s: %q; want %q", name, out, c.want)
		}
	}
}

// looks at pid 1 of the machine.
const looks = `; test -n "$(cat /proc/1/comm)" && echo name
	for f in environ mem root/etc/passwd cwd/etc/passwd exe fd/0; do cat /proc/1/$f >/dev/null 2>&1 && echo reads $f; done; true`

// TestWhereContainersCannotBeHadTheReasonSaysWhatToDo: a machine, or a place on it, that lacks
// what they take.
func TestWhereContainersCannotBeHadTheReasonSaysWhatToDo(t *testing.T) {
	for name, c := range map[string]struct{ line, layer, want string }{
		"an ordinary user": {`export ` + canHere + `="$1/state"; ` + ordinary + ` "$1/test"`, container.LayerUser, "as root"},
		"an ordinary user without cgroups of its own":          {`export ` + canHere + `="$1/state"; ` + ordinary + ` "$1/test"`, container.LayerMemory, "cgroup"},
		"an ordinary user in a chroot":                         {`mkdir "$1/r"; mount --rbind / "$1/r"; export ` + canHere + `="$1/state"; exec chroot --userspec 65534:65534 --groups= "$1/r" "$1/test"`, "", "chroot"},
		"an ordinary user from whom parts of /proc are hidden": {masked + `export ` + container.WayVariable + `=proc=inside; export ` + canHere + `="$1/state"; ` + ordinary + ` "$1/test"`, "", "--sandbox-proc shared"},
		// Ubuntu's kernel makes the namespace, and refuses what is done in it.
		"an ordinary user whom AppArmor restricts": {`mount -t tmpfs none /proc/sys/kernel; echo 1 >/proc/sys/kernel/apparmor_restrict_unprivileged_userns; export ` + canHere + `="$1/state"; ` + ordinary +
			fmt.Sprintf(` "$1/test" kernelfault-exec '{"Rules": [{"Call": %d, "Arg": -1, "Errno": %d}]}' "$1/test"`, unix.SYS_MOUNT, unix.EPERM), "", "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"},
		"a chroot":                        {`mkdir "$1/r"; mount --rbind / "$1/r"; ` + canHere + `="$1/state" exec chroot "$1/r" "$1/test"`, "", "chroot"},
		"root of a user namespace":        {canHere + `="$1/state" exec unshare --user --map-root-user "$1/test"`, container.LayerUser, "root of the machine"},
		"a state directory on an overlay": {overlayRoot + `mkdir /state; ` + canHere + `=/state exec chroot . /srv/test`, "", "docker run -v"},
	} {
		t.Run(name, func(t *testing.T) {
			can := elsewhere(t, c.line)
			i := slices.IndexFunc(can.Missing, func(m container.Missing) bool { return m.Layer == c.layer })
			if i < 0 || !strings.Contains(can.Missing[i].Reason, c.want) {
				t.Errorf("%+v; want the layer %q to be missing for %q", can, c.layer, c.want)
			}
			if made := can.Mode != 0; made != (c.layer != "") {
				t.Errorf("containers can be made: %v, %+v", made, can)
			}
		})
	}
}

// TestContainersOnAnOlderKernel: Linux 6.1, of Debian 12, has all that containers take.
func TestContainersOnAnOlderKernel(t *testing.T) {
	proctest.Root(t)
	const tests = "^(TestNothingOfTheMachineIsReachedInside|TestLayersLieOverEachOther|TestBindsShowWhatTheyShouldAndNoMore|TestAContainerComesBackOnItsFiles|TestManyContainersLeaveNothing|TestStagesThatFallOutLeaveNothing)$"
	out, err := kernelfault.Linux61.Tests(os.Environ(), "-test.v", "-test.run="+tests)
	if ran := strings.Count(out, "\n--- PASS"); err != nil || ran != strings.Count(tests, "Test") {
		t.Errorf("%d tests have passed, %v:\n%s", ran, err, out)
	}
}

// canOn is what containers can have on an older kernel, after a line of the shell. above is where the
// state directory is.
func canOn(t *testing.T, kernel kernelfault.Older, above, line string) (can container.Can) {
	t.Helper()
	// Where an ordinary user finds it, too.
	dir := proctest.Value(os.MkdirTemp(above, "tend-cell-"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	proctest.Must(t, os.Chmod(dir, 0o777))
	test := proctest.Value(os.ReadFile("/proc/self/exe"))(t)
	proctest.Must(t, os.WriteFile(dir+"/test", test, 0o755))
	out, err := kernel.Output(append(os.Environ(), canHere+"="+dir+"/state"), "/bin/sh", "-ec", line+` "$0"`, dir+"/test")
	if err == nil {
		err = json.Unmarshal([]byte(out), &can)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return can
}

// TestAnOrdinaryUserHasContainersOnAnOlderKernel: also where nothing in memory has attributes.
func TestAnOrdinaryUserHasContainersOnAnOlderKernel(t *testing.T) {
	proctest.Root(t)
	if can := canOn(t, kernelfault.Linux61, "", ordinary); can.Mode != container.ModeRootless || !slices.Contains(can.Layers, container.LayerBase) {
		t.Errorf("%+v", can)
	}
}

// TestAStateDirectoryInMemoryOnAnOlderKernel: containers in it would have directories that no program
// can replace.
func TestAStateDirectoryInMemoryOnAnOlderKernel(t *testing.T) {
	proctest.Root(t)
	for _, line := range []string{"exec", ordinary} {
		can := canOn(t, kernelfault.Linux61, "/dev/shm", line)
		if len(can.Missing) != 1 || can.Missing[0].Layer != "" || !strings.Contains(can.Missing[0].Reason, "--state-dir") {
			t.Errorf("%s: %+v", line, can)
		}
	}
}

// TestAKernelThatIsTooOldIsNamed: the reason says which one there must be.
func TestAKernelThatIsTooOldIsNamed(t *testing.T) {
	proctest.Root(t)
	for name, c := range map[string]struct {
		kernel     kernelfault.Older
		line, want string
	}{
		"root on 5.15":             {kernelfault.Linux515, "exec", "Linux 5.19"},
		"root on 5.10":             {kernelfault.Linux510, "exec", "Linux 5.19"},
		"an ordinary user on 5.10": {kernelfault.Linux510, ordinary, "Linux 5.11"},
	} {
		can := canOn(t, c.kernel, "", c.line)
		if len(can.Missing) != 1 || can.Missing[0].Layer != "" || !strings.Contains(can.Missing[0].Reason, c.want) {
			t.Errorf("%s: %+v; want all to be missing for %s", name, can, c.want)
		}
	}
	if can := canOn(t, kernelfault.Linux515, "", ordinary); can.Mode != container.ModeRootless {
		t.Errorf("an ordinary user on 5.15: %+v", can)
	}
}

// TestTheSettingOfUserNamespacesIsNamed: to change it for a test would change it for all.
func TestTheSettingOfUserNamespacesIsNamed(t *testing.T) {
	if why := whyNoUsers(syscall.ENOSPC); !strings.Contains(why, "user.max_user_namespaces") {
		t.Errorf("%q", why)
	}
}
