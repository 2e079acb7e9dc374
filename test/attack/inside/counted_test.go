//go:build linux

package inside

import (
	"fmt"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/support/proctest"
)

// The kernel counts many things for a user. For a user inside of a user namespace it counts them for the owner of that namespace,
// too, and up to the same limit. If the owner were the machine's root, a program without any right could take all 128 inotify
// instances of root's from systemd, udev and tend; its POSIX queues; its queued signals, without which root makes no timer.
var counted = []attempt{
	{"takes all inotify instances, as root inside", true, takes("0:0", `
n = 0
while n < 300 and call(SYS_inotify_init1, 0) != "EMFILE": n += 1
holds(n)`, rootWatches)},
	{"takes all inotify instances, as somebody else inside", true, takes("1000:1000", `
n = 0
while n < 300 and call(SYS_inotify_init1, 0) != "EMFILE": n += 1
holds(n)`, rootWatches)},
	{"takes all fanotify groups", true, takes("1000:1000", `
n = 0
while n < 300 and not isinstance(call(SYS_fanotify_init, 0x200, 0), str): n += 1
holds(n)`, func(t *testing.T) {
		fd, err := unix.FanotifyInit(unix.FAN_CLASS_NOTIF|unix.FAN_CLOEXEC, 0)
		proctest.Must(t, err)
		proctest.Must(t, unix.Close(fd))
	})},
	{"takes all room for POSIX queues", true, takes("0:0", `
n = 0
while n < 300 and not isinstance(call(SYS_mq_open, b"q%d" % n, os.O_CREAT | os.O_RDWR, 0o600, 0), str): n += 1
holds(n)`, func(t *testing.T) {
		name := proctest.Value(unix.BytePtrFromString(fmt.Sprintf("tend-attack-%d", unix.Getpid())))(t)
		fd, _, errno := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(name)), unix.O_CREAT|unix.O_RDWR, 0o600, 0, 0, 0)
		if errno != 0 {
			t.Fatalf("root makes no POSIX queue: %v", errno)
		}
		unix.Syscall(unix.SYS_MQ_UNLINK, uintptr(unsafe.Pointer(name)), 0, 0)
		proctest.Must(t, unix.Close(int(fd)))
	})},
	{"queues as many signals as root may have", true, takes("1000:1000", `
signal.pthread_sigmask(signal.SIG_BLOCK, [40])
info, n = (ctypes.c_int * 32)(40, 0, -1), 0
while n < 200000 and libc.syscall(ctypes.c_long(SYS_rt_sigqueueinfo), os.getpid(), 40, info) == 0: n += 1
holds(n)`, func(t *testing.T) {
		var timer int32
		if _, _, errno := unix.Syscall(unix.SYS_TIMER_CREATE, unix.CLOCK_MONOTONIC, 0, uintptr(unsafe.Pointer(&timer))); errno != 0 {
			t.Fatalf("root makes no timer: %v", errno)
		}
		unix.Syscall(unix.SYS_TIMER_DELETE, uintptr(timer), 0, 0)
	})},
}

// takes is an attempt to take all that there is of something: meanwhile the machine's root, which the test is, has some.
func takes(user, text string, root func(t *testing.T)) func(t *testing.T, w *world) {
	return func(t *testing.T, w *world) {
		p, n := hold(t, w.sandbox(t), user, text)
		if n == "0" {
			t.Error("there was nothing to take")
		}
		root(t)
		w.goesOn(t)
		proctest.Kill(t, p)
	}
}

// rootWatches fails unless root makes an inotify instance.
func rootWatches(t *testing.T) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	proctest.Must(t, err)
	proctest.Must(t, unix.Close(fd))
}
