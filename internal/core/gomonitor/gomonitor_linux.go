package gomonitor

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// slack of the monitor in ns. More gains little, and threads wait for as long
// where they block each other.
const slack = 200_000

// natural is the slack that all threads had; 0: Monitor changed nothing.
var natural atomic.Uint64

// Monitor calms the monitor of this program, and gives it extra processors, but not
// more than it has: for a program most of whose threads block in system calls. To
// others they cost more wake-ups than they save. Call it once, from main; without
// CAP_SYS_NICE it changes nothing and returns the reason.
func Monitor(extra int) error {
	was, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil || was <= 0 {
		return fmt.Errorf("the timer slack is %d (%v)", was, err)
	}
	// The kernel lists threads in the order of their birth. The first that a Go
	// program makes is its monitor, which never ends.
	dir, err := os.Open("/proc/self/task")
	if err != nil {
		return err
	}
	names, err := dir.Readdirnames(2)
	dir.Close()
	if err != nil || len(names) < 2 || names[0] != strconv.Itoa(os.Getpid()) {
		return fmt.Errorf("the monitor is not found among the threads %v (%v)", names, err)
	}
	makeThreads()
	natural.Store(uint64(was))
	if err := os.WriteFile("/proc/"+names[1]+"/timerslack_ns", strconv.AppendInt(nil, slack, 10), 0); err != nil {
		natural.Store(0)
		return err
	}
	n := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(n + min(n, extra))
	return nil
}

// threads that a role has at ease.
const threads = 10

// makeThreads lets Go make threads, which it keeps, before the monitor is calm:
// those that the monitor makes are as calm, and so is what they make.
func makeThreads() {
	var made sync.WaitGroup
	made.Add(threads)
	release := make(chan struct{})
	for range threads {
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			made.Done()
			<-release
		}()
	}
	made.Wait()
	close(release)
}

// Thread gives the calling thread the slack that it would have without Monitor:
// one that the monitor made has the monitor's. The caller has locked the thread.
func Thread() {
	if was := natural.Load(); was != 0 {
		unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(was), 0, 0, 0)
	}
}
