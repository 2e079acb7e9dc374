package image

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/disk"
	"github.com/tend-run/tend/internal/support/proctest"
)

func made(t *testing.T, bytes int64) string {
	t.Helper()
	proctest.Root(t)
	path := filepath.Join(t.TempDir(), "disk.img")
	proctest.Must(t, Make(t.Context(), path, bytes))
	return path
}

// TestADiskHasTheRoomThatWasAskedFor: not less, and not much more; and takes little itself.
func TestADiskHasTheRoomThatWasAskedFor(t *testing.T) {
	for _, bytes := range []int64{Least, 100<<20 + 1, 1 << 30, 10 << 30, 1 << 40} {
		path := made(t, bytes)
		if used := Used(path); used == 0 || used > max(1<<20, bytes/2000) {
			t.Errorf("a new one of %d MiB takes %d KiB", bytes>>20, used>>10)
		}
		m := proctest.Value(disk.Open(path))(t)
		var st unix.Statfs_t
		proctest.Must(t, unix.Statfs(m.Path(), &st))
		proctest.Must(t, m.Close())
		room := int64(st.Bavail) * int64(st.Bsize)
		if room < bytes || room > bytes+bytes/16+1<<20 {
			t.Errorf("one of %d KiB has room for %d KiB", bytes>>10, room>>10)
		}
		if st.Files < uint64(Files(bytes)) || st.Files > uint64(Files(bytes)*9/8)+rounded {
			t.Errorf("one of %d MiB has %d inodes, want %d", bytes>>20, st.Files, Files(bytes))
		}
	}
}

// rounded is how many inodes there may be more, because each group has equally many.
const rounded = 8192

// TestADiskThatWasCutOffIsRepaired: of a machine that lost its power; one that was left as it
// should be, and one that is in use, are not touched.
func TestADiskThatWasCutOffIsRepaired(t *testing.T) {
	path := made(t, Least)
	if repaired, err := Repair(t.Context(), path, 0); repaired || err != nil {
		t.Errorf("a new one is repaired: %v", err)
	}
	m := proctest.Value(disk.Open(path))(t)
	proctest.Must(t, os.MkdirAll(m.Path()+"/a/b/c", 0o755))
	proctest.Must(t, os.WriteFile(m.Path()+"/a/file", []byte("text"), 0o600))
	root := proctest.Value(os.Open(m.Path()))(t)
	proctest.Must(t, unix.Syncfs(int(root.Fd())))
	proctest.Must(t, root.Close())
	if repaired, err := Repair(t.Context(), path, 0); repaired || err != nil {
		t.Errorf("one in use is repaired: %v", err)
	}
	// What the machine's disk had at that moment.
	cut := filepath.Join(t.TempDir(), "cut")
	proctest.Must(t, os.WriteFile(cut, proctest.Value(os.ReadFile(path))(t), 0o600))
	proctest.Must(t, m.Close())
	if repaired, err := Repair(t.Context(), cut, 0); !repaired || err != nil {
		t.Fatalf("it is repaired: %v, %v", repaired, err)
	}
	if repaired, err := Repair(t.Context(), cut, 0); repaired || err != nil {
		t.Errorf("it is repaired again: %v", err)
	}
	again := proctest.Value(disk.Open(cut))(t)
	defer again.Close()
	if text, err := os.ReadFile(again.Path() + "/a/file"); string(text) != "text" {
		t.Errorf("its file has %q, %v", text, err)
	}
}

// TestADamagedDiskIsRepairedOrRefused: never mounted as it is.
func TestADamagedDiskIsRepairedOrRefused(t *testing.T) {
	path := made(t, Least)
	m := proctest.Value(disk.Open(path))(t)
	for _, name := range []string{"/a", "/b", "/c"} {
		proctest.Must(t, os.MkdirAll(m.Path()+name+"/d/e", 0o755))
	}
	root := proctest.Value(os.Open(m.Path()))(t)
	proctest.Must(t, unix.Syncfs(int(root.Fd())))
	proctest.Must(t, root.Close())
	b := proctest.Value(os.ReadFile(path))(t)
	proctest.Must(t, m.Close())
	torn := filepath.Join(t.TempDir(), "torn")
	for at := 4096 * 2; at < 4096*24; at += 512 { // bitmaps and inodes
		for i := range 64 {
			b[at+i] ^= 0x5a
		}
	}
	proctest.Must(t, os.WriteFile(torn, b, 0o600))
	if repaired, err := Repair(t.Context(), torn, 0); !repaired {
		t.Errorf("it is not looked at: %v", err)
	} else if err == nil {
		again := proctest.Value(disk.Open(torn))(t)
		proctest.Must(t, os.WriteFile(again.Path()+"/new", nil, 0o600))
		proctest.Must(t, again.Close())
	}
	proctest.Must(t, os.WriteFile(torn, make([]byte, 1<<20), 0o600))
	if _, err := Repair(t.Context(), torn, 0); err == nil {
		t.Error("a file of zeros is a disk")
	}
}

// TestARepairThatIsCutShortIsNone: what e2fsck did not look at to the end is not mounted.
func TestARepairThatIsCutShortIsNone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk.img")
	proctest.Must(t, os.WriteFile(path, make([]byte, 1<<20), 0o600)) // its superblock is not clean
	bin := t.TempDir()
	proctest.Must(t, os.WriteFile(filepath.Join(bin, "e2fsck"), []byte("#!/bin/sh\nkill -9 $$\n"), 0o755))
	t.Setenv("PATH", bin)
	if _, err := Repair(t.Context(), path, 0); err == nil {
		t.Error("a disk whose repair was killed counts as repaired")
	}
}

// TestAMakingThatIsCutShortLeavesNoDisk: a file has its name when it is whole.
func TestAMakingThatIsCutShortLeavesNoDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk.img")
	proctest.Must(t, os.WriteFile(path+".new", []byte("half of one"), 0o600))
	proctest.Must(t, Make(t.Context(), path, Least))
	if _, err := os.Stat(path + ".new"); err == nil {
		t.Error("the half is left")
	}
	t.Setenv("PATH", t.TempDir())
	if err := Able(); err != nil {
		t.Errorf("with a PATH that has no programs of root: %v", err)
	}
}

// acts is how the test program makes or repairs a disk, and is killed at it.
const acts = "TEND_TEST_ACTS"

func TestMain(m *testing.M) {
	path := os.Getenv("TEND_TEST_PATH")
	switch os.Getenv(acts) {
	case "":
		os.Exit(m.Run())
	case mkfs:
		fmt.Println(Make(context.Background(), path, Least))
	case fsck:
		fmt.Println(Repair(context.Background(), path, 0))
	}
	os.Exit(1)
}

// hangs puts programs into PATH that write their pid to the file "pid" beside them and hang.
// with is in front of what they become.
func hangs(t *testing.T, with string) (pidFile string) {
	t.Helper()
	bin := t.TempDir()
	pidFile = filepath.Join(bin, "pid")
	for _, name := range []string{mkfs, fsck} {
		text := "#!/bin/sh\necho $$ > " + pidFile + ".new; mv " + pidFile + ".new " + pidFile + "; exec " + with + " sleep 1000\n"
		proctest.Must(t, os.WriteFile(filepath.Join(bin, name), []byte(text), 0o755))
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	return pidFile
}

// TestAProgramEndsWithTheServer: if not, it would write into the file that the next server's
// program looks at. As long as it does live nobody else has the file.
func TestAProgramEndsWithTheServer(t *testing.T) {
	for _, name := range []string{mkfs, fsck} {
		for what, with := range map[string]string{"at once": "", "later": "setpriv --pdeathsig clear"} {
			t.Run(name+" "+what, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "disk.img")
				pidFile := hangs(t, with)
				in := path
				if name == mkfs {
					in += ".new"
				} else {
					proctest.Must(t, os.WriteFile(path, make([]byte, 1<<20), 0o600)) // its superblock is not clean
				}
				server := exec.Command(proctest.Value(os.Executable())(t))
				server.Env = append(os.Environ(), acts+"="+name, "TEND_TEST_PATH="+path)
				proctest.Must(t, server.Start())
				var pid int
				proctest.Eventually(t, "the program runs", func() bool {
					text, _ := os.ReadFile(pidFile)
					pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
					comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
					return string(comm) == "sleep\n"
				})
				program := proctest.Value(unix.PidfdOpen(pid, 0))(t)
				defer unix.Close(program)
				proctest.Must(t, server.Process.Kill())
				_ = server.Wait()
				if what == "later" {
					if _, free, err := disk.Lock(in); free || err != nil {
						t.Errorf("the file that it writes to can be locked: %v, %v", free, err)
					}
					proctest.Must(t, unix.PidfdSendSignal(program, unix.SIGKILL, nil, 0))
				}
				proctest.Eventually(t, "the program ends", func() bool {
					n, _ := unix.Poll([]unix.PollFd{{Fd: int32(program), Events: unix.POLLIN}}, 0)
					return n == 1
				})
			})
		}
	}
}

// TestAProgramThatHangsIsKilled: and the error says what it was.
func TestAProgramThatHangsIsKilled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk.img")
	proctest.Must(t, os.WriteFile(path, nil, 0o600))
	f, _, err := disk.Lock(path)
	proctest.Must(t, err)
	defer f.Close()
	hangs(t, "")
	if code, err := run(t.Context(), f, time.Millisecond, fsck, path); code != -1 || err == nil || !strings.Contains(err.Error(), "has not ended in 1ms") {
		t.Errorf("it ends with %d, %v", code, err)
	}
}
