//go:build linux

package reaplog

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/internal/support/proctest"
)

func TestAnExitStatusIsFoundByPid(t *testing.T) {
	path := filepath.Join(t.TempDir(), "orphans")
	before := procfs.BootTime()
	for _, r := range []struct {
		pid    int
		status unix.WaitStatus
	}{{100, 3 << 8}, {200, 9}, {100, 4 << 8}} {
		proctest.Must(t, Append(path, r.pid, r.status, &unix.Rusage{}))
	}
	if e := Find(path, 100, before); e == nil || e.Code != 4 {
		t.Errorf("pid 100: %+v; want the newest, code 4", e)
	}
	if e := Find(path, 200, before); e == nil || e.Signal != 9 {
		t.Errorf("pid 200: %+v; want signal 9", e)
	}
	if e := Find(path, 100, procfs.BootTime()+int64(time.Hour)); e != nil {
		t.Errorf("a record from before the start was taken: %+v", e)
	}
}

// Whatever lies in place of the file, no role waits for it: it makes way.
func TestAStatusIsKeptWhateverLiesInPlaceOfTheFile(t *testing.T) {
	victim := filepath.Join(t.TempDir(), "victim")
	proctest.Must(t, os.WriteFile(victim, []byte("kept"), 0o600))
	for name, put := range map[string]func(path string) error{
		"fifo": func(path string) error { return unix.Mkfifo(path, 0o600) },
		"dir":  func(path string) error { return os.Mkdir(path, 0o700) },
		"link": func(path string) error { return os.Symlink(victim, path) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "orphans")
			proctest.Must(t, errors.Join(put(path), put(former(path))))
			since := procfs.BootTime()
			if e := Find(path, 100, since); e != nil {
				t.Errorf("%+v", e)
			}
			proctest.Must(t, Append(path, 100, 3<<8, &unix.Rusage{}))
			if e := Find(path, 100, since); e == nil || e.Code != 3 {
				t.Errorf("%+v; want code 3", e)
			}
			proctest.Must(t, errors.Join(os.Remove(path), put(path), Reserve(path)))
		})
	}
	if b, err := os.ReadFile(victim); err != nil || string(b) != "kept" {
		t.Errorf("what the link leads to holds %q, %v", b, err)
	}
	path := filepath.Join(t.TempDir(), "orphans")
	proctest.Must(t, errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<40)))
	if e := Find(path, 100, 0); e != nil {
		t.Errorf("%+v", e)
	}
}

func TestADamagedFileHoldsNoStatus(t *testing.T) {
	path := filepath.Join(t.TempDir(), "orphans")
	proctest.Must(t, Append(path, 1, 0, &unix.Rusage{}))
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := range b {
		proctest.Must(t, os.WriteFile(path, b[:n], 0o600))
		if e := Find(path, 1, 0); e != nil {
			t.Fatalf("a record cut to %d bytes was taken: %+v", n, e)
		}
	}
}

func TestAWaitStatusIsMadeAsTheKernelMakesIt(t *testing.T) {
	for _, c := range []struct {
		command string
		code    int
		signal  unix.Signal
	}{{"exit 0", 0, 0}, {"exit 255", 255, 0}, {"kill -9 $$", 0, unix.SIGKILL}, {"kill -15 $$", 0, unix.SIGTERM}} {
		p, err := os.StartProcess("/bin/sh", []string{"sh", "-c", c.command}, &os.ProcAttr{})
		if err != nil {
			t.Fatal(err)
		}
		var info unix.Siginfo
		proctest.Must(t, unix.Waitid(unix.P_PID, p.Pid, &info, unix.WEXITED|unix.WNOWAIT, nil))
		if pidOf(&info) != p.Pid {
			t.Errorf("%s: pid %d, want %d", c.command, pidOf(&info), p.Pid)
		}
		var ws unix.WaitStatus
		if _, err := unix.Wait4(p.Pid, &ws, 0, nil); err != nil {
			t.Fatal(err)
		}
		if got := StatusOf(&info); got != ws {
			t.Errorf("%s: status %#x, want %#x", c.command, got, ws)
		}
		if e := FromStatus(ws); e.Code != c.code || e.Signal != int(c.signal) {
			t.Errorf("%s: %+v", c.command, e)
		}
		p.Release()
	}
}

// No status is forgotten while its keeper may still look for it: thousands follow
// before it is.
func TestAFileThatStartsAnewKeepsTheOneBefore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "orphans")
	proctest.Must(t, Reserve(path))
	for pid := range maxBytes/size + 3 { // the last two are in a new file
		proctest.Must(t, Append(path, pid+1, unix.WaitStatus(pid%100<<8), &unix.Rusage{}))
	}
	if fi, err := os.Stat(path); err != nil || fi.Size() > 10*size {
		t.Errorf("%v, %v; want a new file", fi, err)
	}
	for _, pid := range []int{1, 2, maxBytes / size, maxBytes/size + 3} {
		if e := Find(path, pid, 0); e == nil || e.Code != (pid-1)%100 {
			t.Errorf("pid %d ended with %+v; want %d", pid, e, (pid-1)%100)
		}
	}
	proctest.Must(t, Reserve(path))
	if e := Find(path, 1, 0); e != nil {
		t.Errorf("a status of a daemon before: %+v", e)
	}
}
