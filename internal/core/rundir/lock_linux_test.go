//go:build linux && (amd64 || arm64)

package rundir_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/rundir"
	"github.com/tend-run/tend/internal/core/spawn"
	"github.com/tend-run/tend/internal/support/proctest"
)

// Variables that make this test the program that holds a lock: the state directory, and
// behind the exec the descriptor of the lock.
const (
	lockDir = "RUNDIR_TEST_LOCK_DIR"
	lockFD  = "RUNDIR_TEST_LOCK_FD"
)

// The lock stays behind with a child that shares the table of descriptors. Once that has
// ended, the program behind the exec holds it again, and others see who does.
func TestALockIsHeldOnBehindAnExec(t *testing.T) {
	if dir := os.Getenv(lockDir); dir != "" {
		fmt.Println(holds(proctest.Value(rundir.Open(dir))(t), os.Getenv(lockFD)))
		io.Copy(io.Discard, os.Stdin)
		return
	}
	dir := t.TempDir()
	d := proctest.Value(rundir.Open(dir))(t)
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestALockIsHeldOnBehindAnExec$")
	cmd.Env = append(os.Environ(), lockDir+"="+dir)
	stdin := proctest.Value(cmd.StdinPipe())(t)
	stdout := proctest.Value(cmd.StdoutPipe())(t)
	cmd.Stderr = os.Stderr
	proctest.Must(t, cmd.Start())
	line, _ := bufio.NewReader(stdout).ReadString('\n')
	if want := "it stayed behind, and is held again\n"; line != want {
		t.Errorf("it says %q; want %q", line, want)
	}
	if got := d.Holder("some"); got != cmd.Process.Pid {
		t.Errorf("pid %d holds it; want %d", got, cmd.Process.Pid)
	}
	stdin.Close()
	io.Copy(io.Discard, stdout)
	proctest.Must(t, cmd.Wait())
}

// holds takes the lock and executes itself while a child sleeps; with a descriptor it is the
// program behind that.
func holds(d *rundir.Dir, lock string) any {
	if lock == "" {
		fd, err := d.Hold("some")
		if err != nil {
			return err
		}
		l, err := spawn.NewSharingList(2, 64)
		if err != nil {
			return err
		}
		second := unix.NsecToTimespec(int64(time.Second))
		l.Call("sleep", unix.SYS_NANOSLEEP, l.Bytes(unsafe.Slice((*byte)(unsafe.Pointer(&second)), unsafe.Sizeof(second))))
		go l.Run(-1)
		for !hasChild() {
			time.Sleep(time.Millisecond)
		}
		unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0)
		return syscall.Exec("/proc/self/exe", os.Args, append(os.Environ(), fmt.Sprintf("%s=%d", lockFD, fd)))
	}
	fd, err := strconv.Atoi(lock)
	if err != nil {
		return err
	}
	var held *rundir.HeldError
	if err := d.HoldOn("some", fd); !errors.As(err, &held) {
		return fmt.Errorf("it did not stay behind: %v", err)
	}
	for errors.As(d.HoldOn("some", fd), &held) {
		time.Sleep(time.Millisecond)
	}
	return "it stayed behind, and is held again"
}

func hasChild() bool {
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	return slices.ContainsFunc(lists, func(list string) bool {
		text, err := os.ReadFile(list)
		return err == nil && len(text) > 0
	})
}
