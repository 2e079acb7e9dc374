//go:build linux && (amd64 || arm64)

package shadow

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/cgroup"
	"github.com/tend-run/tend/internal/core/contain"
	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/lib/kernelfault"
	"github.com/tend-run/tend/internal/lib/owner"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// line makes the test binary a shell in a shadow.
const line = "shadow-line"

// makes makes the test binary one that makes a shadow.
const makes = "shadow-make"

// holds makes the test binary one that makes a shadow, and holds it until it is killed.
const holds = "shadow-hold"

func TestMain(m *testing.M) {
	kernelfault.Main(os.Environ())
	if len(os.Args) > 2 && os.Args[1] == line {
		cmd := exec.Command("/bin/sh", "-c", os.Args[2])
		cmd.Stdout, cmd.Stderr = os.NewFile(3, "out"), os.NewFile(3, "out")
		if err := cmd.Run(); err != nil {
			fmt.Fprintln(cmd.Stdout, err)
		}
		os.Exit(cmd.ProcessState.ExitCode())
	}
	if len(os.Args) > 2 && os.Args[1] == makes {
		_, err := Make(os.Args[2], filepath.Join(os.Args[2], "scratch"), id, blank)
		fmt.Println(err, errors.Is(err, process.ErrUnsupported))
		os.Exit(0)
	}
	if len(os.Args) > 3 && os.Args[1] == holds {
		s, err := Make(os.Args[2], os.Args[3], id, blank)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(s.container.PID)
		time.Sleep(time.Hour) // select {} would be a deadlock to a runtime without cgo
	}
	os.Exit(m.Run())
}

// TestAProgramWithALoaderIsRefused: that would be a file of the container, which its programs can
// replace.
func TestAProgramWithALoaderIsRefused(t *testing.T) {
	if err := alone(proctest.Value(unix.Auxv())(t)); err != nil {
		t.Errorf("this program, which has none: %v", err)
	}
	var auxv [][2]uintptr
	told := proctest.Value(exec.Command("/bin/cat", "/proc/self/auxv").Output())(t)
	for at := 0; at+16 <= len(told); at += 16 {
		auxv = append(auxv, [2]uintptr{uintptr(binary.NativeEndian.Uint64(told[at:])), uintptr(binary.NativeEndian.Uint64(told[at+8:]))})
	}
	if err := alone(auxv); !errors.Is(err, process.ErrUnsupported) {
		t.Errorf("cat: %v", err)
	}
}

// blank is what tend makes disks with, but for its options.
func blank(path string, bytes int64) error {
	err := errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, bytes))
	if out, merr := exec.Command("mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", path).CombinedOutput(); merr != nil {
		err = errors.Join(err, fmt.Errorf("%w: %s", merr, out))
	}
	return err
}

// world is a container with files in each of its layers.
type world struct {
	state     string
	container *contain.Container
	spec      container.Spec
}

const id = "00000000-0000-4000-8000-000000000001"

func newWorld(t *testing.T, onDisk bool) *world {
	t.Helper()
	return newWorldOf(t, onDisk, 1)
}

// newWorldOf has so many layers; those below the first are empty.
func newWorldOf(t *testing.T, onDisk bool, layers int) *world {
	t.Helper()
	proctest.Root(t)
	w := &world{state: proctest.Value(os.MkdirTemp("", "tend-shadow-"))(t)}
	t.Cleanup(func() { os.RemoveAll(w.state) })
	proctest.Must(t, os.MkdirAll(w.state+"/run", 0o700))
	share := filepath.Join(w.state, "share")
	w.spec = container.Spec{
		ID: id, UIDBase: 100000, Volatile: true, Dir: filepath.Join(w.state, "box"), Layers: []string{filepath.Join(w.state, "layer")},
		Binds: []container.Bind{{Source: share, Target: "/srv/share"}}, Harden: container.Harden{Caps: 5, Seccomp: true}, Net: container.NetNone,
	}
	for i := 1; i < layers; i++ {
		w.spec.Layers = append(w.spec.Layers, filepath.Join(w.state, fmt.Sprint("layer", i)))
		proctest.Must(t, os.Mkdir(w.spec.Layers[i], 0o755))
	}
	for _, dir := range []string{"up/app/src", "up/app/made", "wk"} {
		proctest.Must(t, os.MkdirAll(filepath.Join(w.spec.Dir, dir), 0o755))
	}
	proctest.Must(t, os.MkdirAll(filepath.Join(w.spec.Layers[0], "app/old"), 0o755))
	proctest.Must(t, os.MkdirAll(share, 0o755))
	for path, text := range map[string]string{
		w.spec.Dir + "/up/app/src/a": "a\n", w.spec.Dir + "/up/app/b": "upper\n", w.spec.Layers[0] + "/app/b": "lower\n",
		w.spec.Layers[0] + "/app/old/c": "c\n", share + "/s": "shared\n",
	} {
		proctest.Must(t, os.WriteFile(path, []byte(text), 0o644))
	}
	if onDisk { // with the same in it, and nothing beside it
		w.spec.Disk = filepath.Join(w.state, "disk.img")
		proctest.Must(t, os.WriteFile(w.spec.Disk, nil, 0o600))
		proctest.Must(t, os.Truncate(w.spec.Disk, 16<<20))
		if out, err := exec.Command("mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-d", w.spec.Dir, w.spec.Disk).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		proctest.Must(t, os.RemoveAll(filepath.Join(w.spec.Dir, "up/app")))
	}
	m := proctest.Value(contain.NewMaker(w.state, &cgroup.Tree{}))(t)
	w.container = proctest.Value(m.Make(&w.spec))(t)
	t.Cleanup(func() {
		proctest.Must(t, w.container.Kill())
		proctest.Must(t, w.container.End(time.Now().Add(time.Minute)))
	})
	return w
}

func (w *world) shadow(t *testing.T) *Shadow {
	t.Helper()
	closed := t.TempDir() // as a daemon's directories are, and without rights in it for who has no powers
	proctest.Must(t, errors.Join(os.Chown(closed, owner.NoSandbox, 0), os.Chmod(closed, 0o700)))
	s := proctest.Value(Make(w.state, filepath.Join(closed, "scratch"), id, blank))(t)
	t.Cleanup(func() { proctest.Must(t, s.Close()) })
	return s
}

// shell runs a line, and returns what it has written.
func shell(t *testing.T, s *Shadow, text string) (string, int) {
	t.Helper()
	out := proctest.Value(os.Create(filepath.Join(t.TempDir(), "out")))(t)
	defer out.Close()
	status, err := s.Run(Program{Argv: []string{"tend", line, text}, Env: []string{"PATH=" + os.Getenv("PATH")}, Dir: "/app", File: out})
	proctest.Must(t, err)
	_, err = out.Seek(0, io.SeekStart)
	proctest.Must(t, err)
	return string(proctest.Value(io.ReadAll(out))(t)), status
}

// tree is what there is in a directory, with whiteouts as "-".
func tree(t *testing.T, dir string) (all []string) {
	t.Helper()
	proctest.Must(t, filepath.Walk(dir, func(path string, fi os.FileInfo, err error) error {
		switch {
		case err != nil || path == dir:
		case fi.Mode()&os.ModeCharDevice != 0:
			all = append(all, "-"+path[len(dir):])
		case fi.Mode().IsRegular():
			all = append(all, path[len(dir):]+" "+strings.TrimSpace(string(proctest.Value(os.ReadFile(path))(t))))
		default:
			all = append(all, path[len(dir):])
		}
		return err
	}))
	return all
}

// TestAProgramInAShadowChangesNothingOfTheContainer: it sees the files of the container as they are, and
// what it writes is found afterwards, and is nowhere else.
func TestAProgramInAShadowChangesNothingOfTheContainer(t *testing.T) {
	w := newWorld(t, false)
	before := slices.Concat(tree(t, w.spec.Dir), tree(t, w.spec.Layers[0]))
	s := w.shadow(t)
	out, status := shell(t, s, "pwd; cat src/a b old/c /srv/share/s; id -u; cat /proc/self/uid_map; ls -A /home; test -x /usr/bin/env && echo programs; exit 7")
	if want := "/app\na\nupper\nc\nshared\n0\n         0     100000      65536\nuser\nprograms\nexit status 7\n"; out != want || status != 7 {
		t.Errorf("it sees, and ends with %d:\n%s", status, out)
	}
	out, _ = shell(t, s, "rm -r src; mkdir src; echo new > src/n; echo more >> b; rm old/c; echo x > /usr/x; echo x > /srv/share/s; kill -9 $$")
	if !strings.Contains(out, "Read-only") {
		t.Errorf("what the container shares can be written: %s", out)
	}
	if _, _, err := s.Changed("/app"); !errors.Is(err, process.ErrUnavailable) {
		t.Errorf("it is looked at while it lives: %v", err)
	}
	proctest.Must(t, s.End())
	fd, first, err := s.Changed("/app")
	proctest.Must(t, err)
	defer unix.Close(fd)
	if got, want := tree(t, fmt.Sprintf("/proc/self/fd/%d/", fd)), []string{"b upper\nmore", "old", "-old/c", "src", "src/n new"}; !slices.Equal(got, want) {
		t.Errorf("changed is %q, want %q", got, want)
	}
	var st unix.Stat_t
	if err := unix.Fstatat(fd, "src/n", &st, 0); err != nil || st.Uid != first || st.Gid != first {
		t.Errorf("a file of root inside is of %d and %d (%v), want %d", st.Uid, st.Gid, err, first)
	}
	if fd, _, err := s.Changed("/home"); fd != -1 || err != nil {
		t.Error("something was changed in /home")
	}
	if got := slices.Concat(tree(t, w.spec.Dir), tree(t, w.spec.Layers[0])); !slices.Equal(got, before) {
		t.Errorf("the container has now %q, and had %q", got, before)
	}
}

// TestShadowsOnAnOlderKernel: Linux 6.1, of Debian 12, where what is written goes to a disk.
func TestShadowsOnAnOlderKernel(t *testing.T) {
	proctest.Root(t)
	const tests = "^(TestAProgramInAShadowChangesNothingOfTheContainer|TestAContainerWithAllLayersHasAShadow|TestTheShadowOfAContainerWithADiskShowsWhatIsOnIt|TestAShadowIsAlone|TestAShadowEndsWithItsMaker|TestWhatAnOldShadowHasLeftIsEnded)$"
	out, err := kernelfault.Linux61.Tests(os.Environ(), "-test.v", "-test.run="+tests)
	if ran := strings.Count(out, "\n--- PASS"); err != nil || ran != strings.Count(tests, "Test") {
		t.Errorf("%d tests have passed, %v:\n%s", ran, err, out)
	}
}

// TestAContainerWithAllLayersHasAShadow: and in it what the container has written is over them.
func TestAContainerWithAllLayersHasAShadow(t *testing.T) {
	s := newWorldOf(t, false, container.MaxLayers).shadow(t)
	if out, status := shell(t, s, "cat src/a b old/c"); out != "a\nupper\nc\n" || status != 0 {
		t.Errorf("it sees, and ends with %d:\n%s", status, out)
	}
}

// TestTheShadowOfAContainerWithADiskShowsWhatIsOnIt: and changes nothing of it.
func TestTheShadowOfAContainerWithADiskShowsWhatIsOnIt(t *testing.T) {
	w := newWorld(t, true)
	for range 2 {
		s := w.shadow(t)
		if out, status := shell(t, s, "cat src/a b old/c; rm -r src; echo more >b"); out != "a\nupper\nc\n" || status != 0 {
			t.Errorf("it sees, and ends with %d:\n%s", status, out)
		}
		proctest.Must(t, s.Close())
	}
}

// TestAShadowIsAlone: nothing in it is the container's but the files, and its room is bounded.
func TestAShadowIsAlone(t *testing.T) {
	w := newWorld(t, false)
	s := w.shadow(t)
	// There are pid 1, this program and the shell, and as much room as was given.
	out, _ := shell(t, s, "set -- /proc/[0-9]*; test $# -le 4 && echo alone; tail -n +3 /proc/net/dev | cut -d: -f1; hostname; stat -f -c '%b %S' /app")
	f := strings.Fields(out)
	if len(f) != 5 || f[0] != "alone" || f[1] != "lo" || f[2] != "sandbox" {
		t.Fatalf("in it is %q", out)
	}
	// A disk needs some itself.
	if room := proctest.Value(strconv.Atoi(f[3]))(t) * proctest.Value(strconv.Atoi(f[4]))(t); room > 1<<30 || room < 9<<30/10 {
		t.Errorf("there is room for %d bytes", room)
	}
	if caps, filter := s.Harden(); caps != 5 || !filter {
		t.Errorf("programs of the container have %x, %v", caps, filter)
	}
	if !s.Covers("/app") || s.Covers("/srv/share") || s.Covers("/srv/share/x") || !s.Covers("/srv/shared") {
		t.Error("it covers what it does not, or not what it does")
	}
	scratch := s.scratch
	pid := s.container.PID
	proctest.Must(t, s.Close())
	if _, err := os.Lstat(scratch); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory is left: %v", err)
	}
	if err := unix.Kill(pid, 0); err != unix.ESRCH {
		t.Errorf("its pid 1 is left: %v", err)
	}
}

// ends waits for the end of a process, which it sees to itself if the test fails.
func ends(t *testing.T, pidfd int, what string) {
	t.Helper()
	t.Cleanup(func() {
		_ = unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0)
		unix.Close(pidfd)
	})
	proctest.Eventually(t, what, func() bool {
		n, _ := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 0)
		return n == 1
	})
}

// TestAShadowEndsWithItsMaker: also where there are no groups by which others could end it.
func TestAShadowEndsWithItsMaker(t *testing.T) {
	w := newWorld(t, false)
	maker := exec.Command("/proc/self/exe", holds, w.state, filepath.Join(t.TempDir(), "scratch"))
	out := proctest.Value(maker.StdoutPipe())(t)
	proctest.Must(t, maker.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	pid, perr := strconv.Atoi(strings.TrimSpace(line))
	if err == nil {
		err = perr
	}
	var fd int
	if err == nil {
		fd, err = unix.PidfdOpen(pid, 0)
	}
	proctest.Must(t, maker.Process.Kill())
	_ = maker.Wait()
	if err != nil {
		t.Fatalf("it says %q: %v", line, err)
	}
	ends(t, fd, "pid 1 of the shadow ends")
}

// TestWhatAnOldShadowHasLeftIsEnded: of a version whose shadows did not end with their maker.
func TestWhatAnOldShadowHasLeftIsEnded(t *testing.T) {
	w := newWorld(t, false)
	scratch := filepath.Join(t.TempDir(), "scratch")
	old := w.spec
	old.ID, old.Dir = "00000000-0000-4000-8000-000000000002", filepath.Join(w.state, "old")
	for _, dir := range []string{"up", "wk"} {
		proctest.Must(t, os.MkdirAll(filepath.Join(old.Dir, dir), 0o755))
	}
	left := proctest.Value(proctest.Value(contain.NewMaker(scratch, &cgroup.Tree{}))(t).Make(&old))(t)
	fd := proctest.Value(unix.FcntlInt(uintptr(left.PIDFD()), unix.F_DUPFD_CLOEXEC, 0))(t)
	s := proctest.Value(Make(w.state, scratch, id, blank))(t)
	defer s.Close()
	ends(t, fd, "what was left ends")
}

// TestThereIsNoShadowOfNothing: nor of a container that has ended.
func TestThereIsNoShadowOfNothing(t *testing.T) {
	w := newWorld(t, false)
	for _, id := range []container.ID{"../box", "00000000-0000-4000-8000-000000000002"} {
		if _, err := Make(w.state, filepath.Join(t.TempDir(), "scratch"), id, blank); err == nil {
			t.Errorf("%s has a shadow", id)
		}
	}
	proctest.Must(t, w.container.Kill())
	proctest.Must(t, w.container.End(time.Now().Add(time.Minute)))
	if _, err := Make(w.state, filepath.Join(t.TempDir(), "scratch"), id, blank); !errors.Is(err, container.ErrNotFound) {
		t.Errorf("a container that has ended: %v", err)
	}
}

// TestWhoIsNotRootIsToldWhatToDo: an ordinary user's container has no shadow.
func TestWhoIsNotRootIsToldWhatToDo(t *testing.T) {
	w := newWorld(t, false)
	proctest.Must(t, filepath.Walk(w.state, func(path string, _ os.FileInfo, err error) error {
		return errors.Join(err, os.Lchown(path, 65534, 65534))
	}))
	cmd := exec.Command("/proc/self/exe", makes, w.state)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if text := string(out); err != nil || !strings.Contains(text, "run tend as root") || !strings.HasSuffix(text, "true\n") {
		t.Errorf("it is told %q: %v", text, err)
	}
}
