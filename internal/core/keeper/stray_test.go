//go:build linux

package keeper

import (
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/support/proctest"
)

func TestAnOpenListOfChildrenTellsOfAllThatCameSince(t *testing.T) {
	runtime.LockOSThread() // children are listed by the thread that forked them
	defer runtime.UnlockOSThread()
	fd, err := unix.Open("/proc/self/task/"+strconv.Itoa(unix.Gettid())+"/children", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("the kernel lists no children: %v", err)
	}
	l := &lineage{buf: make([]byte, 3)} // less than one number takes
	s := subreaper{pid: os.Getpid(), pidfd: -1, children: fd}
	defer unix.Close(fd)
	if text, err := l.read(nil, &s); err != nil || len(bytes.TrimSpace(text)) != 0 {
		t.Fatalf("before: %q, %v", text, err)
	}
	var want []byte
	for range 5 {
		cmd := exec.Command("sleep", "1000")
		proctest.Must(t, cmd.Start())
		defer func() {
			cmd.Process.Kill()
			cmd.Wait()
		}()
		want = strconv.AppendInt(want, int64(cmd.Process.Pid), 10)
		want = append(want, ' ')
		if text, err := l.read(nil, &s); err != nil || !bytes.Equal(text, want) {
			t.Fatalf("children %q, %v; want %q", text, err, want)
		}
	}
}

func TestASubreaperThatHasEndedIsNoticedThoughItsListIsOpen(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	proctest.Must(t, cmd.Start())
	l := &lineage{}
	l.add(cmd.Process.Pid)
	defer l.forget()
	if l.above[0].children < 0 || l.over() {
		t.Fatalf("of a living one: %+v, over %v", l.above[0], l.over())
	}
	cmd.Process.Kill()
	cmd.Wait()
	if text, err := l.read(nil, &l.above[0]); err == nil && len(text) > 0 {
		t.Errorf("the list of one that is gone: %q", text)
	}
	if !l.over() {
		t.Error("its end was not noticed: an empty list would be believed")
	}
}
