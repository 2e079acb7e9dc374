//go:build linux

package orphan

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/procfs"
	"github.com/tend-run/tend/internal/scene"
)

func TestAnExitStatusIsFoundByPidAndBySlot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "orphans")
	before := procfs.BootTime()
	for _, r := range []struct {
		pid, slot int
		status    unix.WaitStatus
	}{{100, 7, 3 << 8}, {200, -1, 9}, {100, 8, 4 << 8}} {
		scene.Must(t, Append(path, r.pid, r.slot, r.status, 0, &unix.Rusage{}))
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
	if pid, _, ok := FindSlot(path, 7, before); !ok || pid != 100 {
		t.Errorf("slot 7: %d, %v", pid, ok)
	}
	if _, _, ok := FindSlot(path, 9, before); ok {
		t.Error("slot 9 was found")
	}
}

// Whatever lies in place of the file, no role waits for it: it makes way.
func TestAStatusIsKeptWhateverLiesInPlaceOfTheFile(t *testing.T) {
	victim := filepath.Join(t.TempDir(), "victim")
	scene.Must(t, os.WriteFile(victim, []byte("kept"), 0o600))
	for name, put := range map[string]func(path string) error{
		"fifo": func(path string) error { return unix.Mkfifo(path, 0o600) },
		"dir":  func(path string) error { return os.Mkdir(path, 0o700) },
		"link": func(path string) error { return os.Symlink(victim, path) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "orphans")
			scene.Must(t, errors.Join(put(path), put(former(path))))
			since := procfs.BootTime()
			if e := Find(path, 100, since); e != nil {
				t.Errorf("%+v", e)
			}
			scene.Must(t, Append(path, 100, 7, 3<<8, 0, &unix.Rusage{}))
			if e := Find(path, 100, since); e == nil || e.Code != 3 {
				t.Errorf("%+v; want code 3", e)
			}
			scene.Must(t, errors.Join(os.Remove(path), put(path), Reserve(path)))
		})
	}
	if b, err := os.ReadFile(victim); err != nil || string(b) != "kept" {
		t.Errorf("what the link leads to holds %q, %v", b, err)
	}
	path := filepath.Join(t.TempDir(), "orphans")
	scene.Must(t, errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<40)))
	if e := Find(path, 100, 0); e != nil {
		t.Errorf("%+v", e)
	}
}

func TestTheFirstThatStartedInASlotIsFound(t *testing.T) {
	reserved := procfs.BootTime() - int64(time.Second)
	after := func(ms int) int64 { return (reserved/tick + 1 + int64(ms)/10) * tick }
	type one struct {
		pid     int
		started int64 // 0: not known
	}
	for name, c := range map[string]struct {
		collected []one
		want      one
	}{
		"a descendant collected before it":          {[]one{{301, after(20)}, {300, after(0)}}, one{300, after(0)}},
		"a descendant of the same moment":           {[]one{{301, after(0)}, {300, after(0)}}, one{300, after(0)}},
		"one of the former owner, collected late":   {[]one{{200, reserved - 2*tick}, {300, after(0)}}, one{300, after(0)}},
		"in the tick of the reservation":            {[]one{{300, reserved / tick * tick}}, one{300, reserved / tick * tick}},
		"one of the former owner alone":             {[]one{{200, reserved - 2*tick}}, one{}},
		"one that was there for longer than counts": {[]one{{200, procfs.BootTime() - 70000*tick}}, one{}},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "orphans")
			for _, o := range c.collected {
				scene.Must(t, Append(path, o.pid, 7, 5<<8, o.started, &unix.Rusage{}))
			}
			pid, started, ok := FindSlot(path, 7, reserved)
			if got := (one{pid, started}); got != c.want || ok != (c.want.pid != 0) {
				t.Errorf("%+v, %v; want %+v", got, ok, c.want)
			}
			if e := Find(path, c.collected[0].pid, reserved); e == nil || e.Code != 5 || e.Signal != 0 {
				t.Errorf("its exit is %+v", e)
			}
		})
	}
}

func TestADamagedFileHoldsNoStatus(t *testing.T) {
	path := filepath.Join(t.TempDir(), "orphans")
	scene.Must(t, Append(path, 1, 1, 0, 0, &unix.Rusage{}))
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := range b {
		scene.Must(t, os.WriteFile(path, b[:n], 0o600))
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
		scene.Must(t, unix.Waitid(unix.P_PID, p.Pid, &info, unix.WEXITED|unix.WNOWAIT, nil))
		if pidOf(&info) != p.Pid {
			t.Errorf("%s: pid %d, want %d", c.command, pidOf(&info), p.Pid)
		}
		var ws unix.WaitStatus
		if _, err := unix.Wait4(p.Pid, &ws, 0, nil); err != nil {
			t.Fatal(err)
		}
		if got := statusOf(&info); got != ws {
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
	scene.Must(t, Reserve(path))
	for pid := range maxBytes/size + 3 { // the last two are in a new file
		scene.Must(t, Append(path, pid+1, pid, unix.WaitStatus(pid%100<<8), 0, &unix.Rusage{}))
	}
	if fi, err := os.Stat(path); err != nil || fi.Size() > 10*size {
		t.Errorf("%v, %v; want a new file", fi, err)
	}
	for _, pid := range []int{1, 2, maxBytes / size, maxBytes/size + 3} {
		if e := Find(path, pid, 0); e == nil || e.Code != (pid-1)%100 {
			t.Errorf("pid %d ended with %+v; want %d", pid, e, (pid-1)%100)
		}
		if got, _, ok := FindSlot(path, uint32(pid-1), 0); !ok || got != pid {
			t.Errorf("slot %d had pid %d, %v; want %d", pid-1, got, ok, pid)
		}
	}
	scene.Must(t, Reserve(path))
	if e := Find(path, 1, 0); e != nil {
		t.Errorf("a status of a daemon before: %+v", e)
	}
}
