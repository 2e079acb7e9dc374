package disk

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/support/proctest"
)

// file makes one with an empty filesystem.
func file(t *testing.T) string {
	t.Helper()
	proctest.Root(t)
	path := filepath.Join(t.TempDir(), "disk.img")
	proctest.Must(t, os.WriteFile(path, nil, 0o600))
	proctest.Must(t, os.Truncate(path, 16<<20))
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", "-O", "^has_journal", path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

func open(t *testing.T, path string) *Mount {
	t.Helper()
	m := proctest.Value(Open(path))(t)
	t.Cleanup(func() { m.Close() })
	return m
}

// loops of a file.
func loops(t *testing.T, path string) (n int) {
	t.Helper()
	all, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	proctest.Must(t, err)
	for _, f := range all {
		if b, err := os.ReadFile(f); err == nil && strings.Contains(string(b), path) {
			n++
		}
	}
	return n
}

func gone(t *testing.T, path string) {
	t.Helper()
	proctest.Eventually(t, "the loop device is cleared", func() bool { return loops(t, path) == 0 })
	proctest.Eventually(t, "the file is free", func() bool {
		f, ok, err := Lock(path)
		proctest.Must(t, err)
		if ok {
			f.Close()
		}
		return ok
	})
}

// TestAFileIsOneFilesystemHoweverOftenItIsMounted: and nothing is left once nobody has it.
func TestAFileIsOneFilesystemHoweverOftenItIsMounted(t *testing.T) {
	path := file(t)
	first := open(t, path)
	proctest.Must(t, os.WriteFile(first.Path()+"/a", []byte("of the first"), 0o600))
	second := open(t, path)
	if b, err := os.ReadFile(second.Path() + "/a"); string(b) != "of the first" {
		t.Errorf("the second sees %q, %v", b, err)
	}
	if n := loops(t, path); n != 1 {
		t.Errorf("there are %d loop devices", n)
	}
	if _, ok, err := Lock(path); ok || err != nil {
		t.Errorf("the file of a mounted disk can be locked: %v, %v", ok, err)
	}
	proctest.Must(t, first.Close())
	proctest.Must(t, os.WriteFile(second.Path()+"/b", []byte("of the second"), 0o600))
	proctest.Must(t, second.Close())
	// Now, while the kernel may not be done with the last one.
	third := open(t, path)
	for name, want := range map[string]string{"/a": "of the first", "/b": "of the second"} {
		if b, err := os.ReadFile(third.Path() + name); string(b) != want {
			t.Errorf("the third sees %s: %q, %v", name, b, err)
		}
	}
	proctest.Must(t, third.Close())
	gone(t, path)
	if b, err := os.ReadFile("/proc/self/mounts"); err != nil || strings.Contains(string(b), path) {
		t.Errorf("a mount is left: %v", err)
	}
}

// TestManyAtOnceShareOneDevice: whoever is first attaches it.
func TestManyAtOnceShareOneDevice(t *testing.T) {
	path := file(t)
	const many = 16
	mounts := make(chan *Mount, many)
	for range many {
		go func() {
			m, err := Open(path)
			if err != nil {
				t.Error(err)
			}
			mounts <- m
		}()
	}
	var all []*Mount
	for range many {
		all = append(all, <-mounts)
	}
	if n := loops(t, path); n != 1 {
		t.Errorf("there are %d loop devices", n)
	}
	for _, m := range all {
		if m != nil {
			proctest.Must(t, m.Close())
		}
	}
	gone(t, path)
}

// TestADeathLeavesNothing: of a process that has a disk mounted, and of one that has only its
// device.
func TestADeathLeavesNothing(t *testing.T) {
	for name, have := range map[string]string{"a mount": "mount", "a device": "device"} {
		t.Run(name, func(t *testing.T) {
			path := file(t)
			cmd := exec.Command(proctest.Value(os.Executable())(t))
			cmd.Env = append(os.Environ(), holds+"="+have, "TEND_TEST_PATH="+path)
			out := proctest.Value(cmd.StdoutPipe())(t)
			proctest.Must(t, cmd.Start())
			if b := make([]byte, 1); proctest.Value(out.Read(b))(t) != 1 || loops(t, path) != 1 {
				t.Errorf("it holds %d devices", loops(t, path))
			}
			proctest.Must(t, cmd.Process.Kill())
			_ = cmd.Wait()
			m := open(t, path)
			if b, err := os.ReadFile(m.Path() + "/written"); (have == "mount") != (err == nil && string(b) == "before the end") {
				t.Errorf("there is %q, %v", b, err)
			}
			proctest.Must(t, m.Close())
			gone(t, path)
		})
	}
}

// holds says what the test program is to hold until it is killed.
const holds = "TEND_TEST_HOLDS"

func TestMain(m *testing.M) {
	path := os.Getenv("TEND_TEST_PATH")
	switch os.Getenv(holds) {
	case "mount":
		d, err := Open(path)
		if err == nil {
			err = os.WriteFile(d.Path()+"/written", []byte("before the end"), 0o600)
		}
		stand(err)
	case "device":
		_, err := device(path)
		stand(err)
	case "open":
		if m, err := Open(path); err != nil {
			fmt.Print(err)
		} else {
			fmt.Print("opened")
			_ = m.Close()
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func stand(err error) {
	if err != nil {
		panic(err)
	}
	_, _ = os.Stdout.WriteString("1")
	time.Sleep(time.Hour)
}

// TestALoopDeviceThatHasNoNodeGetsOne: in a container /dev has none of those that came later,
// to attach one, or to share one that somebody else has attached. Where none may be made, the
// error says what the container needs.
func TestALoopDeviceThatHasNoNodeGetsOne(t *testing.T) {
	const noNodes, says = "setpriv --bounding-set -mknod --", "--device-cgroup-rule='b 7:* rmw'"
	for name, c := range map[string]struct {
		attached   bool
		with, want string
	}{
		"as root":                        {false, "", "opened"},
		"without the right to":           {false, noNodes, says},
		"attached, as root":              {true, "", "opened"},
		"attached, without the right to": {true, noNodes, says},
	} {
		t.Run(name, func(t *testing.T) {
			path := file(t)
			m := &Mount{-1}
			if c.attached {
				m = open(t, path)
			}
			line := `mount -t tmpfs none /mnt; : > /mnt/loop-control; mount --bind /dev/loop-control /mnt/loop-control; mount --move /mnt /dev; exec ` + c.with + ` "$0"`
			cmd := exec.Command("/bin/sh", "-ec", line, proctest.Value(os.Executable())(t))
			cmd.Env = append(os.Environ(), holds+"=open", "TEND_TEST_PATH="+path)
			cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
			if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), c.want) {
				t.Errorf("it says %q, %v; want %q", out, err, c.want)
			}
			proctest.Must(t, m.Close())
			gone(t, path)
		})
	}
}

// TestWhatIsNoDiskIsRefused: and keeps no device.
func TestWhatIsNoDiskIsRefused(t *testing.T) {
	proctest.Root(t)
	empty := filepath.Join(t.TempDir(), "empty")
	proctest.Must(t, os.WriteFile(empty, make([]byte, 1<<20), 0o600))
	link := filepath.Join(t.TempDir(), "link")
	proctest.Must(t, os.Symlink(file(t), link))
	for _, path := range []string{empty, link, filepath.Join(t.TempDir(), "none"), t.TempDir()} {
		if m, err := Open(path); err == nil {
			m.Close()
			t.Errorf("%s is a disk", path)
		}
		if n := loops(t, path); n != 0 {
			proctest.Eventually(t, "the loop device is cleared", func() bool { return loops(t, path) == 0 })
		}
	}
	if err := Able(); err != nil {
		t.Error(err)
	}
}

// TestWhatIsRemovedIsFreeInTheFileAgain: the machine's disk has room for others then.
func TestWhatIsRemovedIsFreeInTheFileAgain(t *testing.T) {
	path := file(t)
	used := func() int64 {
		var st unix.Stat_t
		proctest.Must(t, unix.Stat(path, &st))
		return st.Blocks * 512
	}
	m := open(t, path)
	before := used()
	proctest.Must(t, os.WriteFile(m.Path()+"/a", []byte(strings.Repeat("x", 8<<20)), 0o600))
	sync := func() {
		d := proctest.Value(os.Open(m.Path()))(t)
		defer d.Close()
		proctest.Must(t, unix.Syncfs(int(d.Fd())))
	}
	sync()
	if full := used(); full < 8<<20 {
		t.Errorf("8 MiB that were written take %d bytes", full-before)
	}
	proctest.Must(t, os.Remove(m.Path()+"/a"))
	proctest.Eventually(t, "the room is free again", func() bool { sync(); return used() < before+1<<20 })
}
