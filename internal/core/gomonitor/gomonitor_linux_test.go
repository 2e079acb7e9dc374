package gomonitor

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/support/proctest"
)

// A program that is started from a thread of a calm program, whoever made the
// thread, has the timer slack that it would have anyway.
func TestProgramsDoNotInheritTheSlack(t *testing.T) {
	ordinary, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	procs := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(procs)
	if err := Monitor(1); err != nil {
		if os.Geteuid() == 0 {
			t.Fatal(err)
		}
		if n := runtime.GOMAXPROCS(0); n != procs || natural.Load() != 0 {
			t.Fatalf("it failed (%v), and changed the program all the same: %d processors", err, n)
		}
		natural.Store(uint64(ordinary)) // what Thread does is tested by everybody
		defer natural.Store(0)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	proctest.Must(t, unix.Prctl(unix.PR_SET_TIMERSLACK, slack, 0, 0, 0)) // as on a thread that the monitor made
	Thread()
	var pipe [2]int
	proctest.Must(t, unix.Pipe2(pipe[:], unix.O_CLOEXEC))
	out := os.NewFile(uintptr(pipe[0]), "out")
	defer out.Close()
	// From its own view: timerslack_ns of others needs rights.
	pid, err := syscall.ForkExec("/bin/cat", []string{"cat", "/proc/self/timerslack_ns"}, &syscall.ProcAttr{Files: []uintptr{0, uintptr(pipe[1]), 2}})
	unix.Close(pipe[1])
	if err != nil {
		t.Fatal(err)
	}
	text := make([]byte, 64)
	n, err := out.Read(text)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := syscall.Wait4(pid, nil, 0, nil); err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(string(text[:n])); got != strconv.Itoa(ordinary) {
		t.Errorf("the program has a timer slack of %s ns; want %d", got, ordinary)
	}
}
