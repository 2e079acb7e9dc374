package sockets

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// firstFD is the descriptor of the first socket (SD_LISTEN_FDS_START).
const firstFD = 3

// become turns this process into a command that has the sockets of a holder. It returns
// only with an error, and the exit status for it.
func become(name, holder string, argv, environ []string) (int, error) {
	pid, err := strconv.Atoi(holder)
	if err != nil {
		return NoSockets, fmt.Errorf("%q is no pid", holder)
	}
	r, fds, err := ask(name, pid, request{Give: true})
	switch {
	case err != nil:
		return NoSockets,
			fmt.Errorf("pid %d, which holds the sockets of the service, could not be asked (kill -KILL %[1]d closes them, and the next start opens them anew): %w", pid, err)
	case len(fds) != len(r.Names):
		return NoSockets, fmt.Errorf("the process that holds the sockets of the service has sent %d of %d", len(fds), len(r.Names))
	}
	path, err := exec.LookPath(argv[0])
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return NoProgram, err
	}
	var env []string
	for _, v := range environ {
		if !strings.HasPrefix(v, "LISTEN_FDS=") && !strings.HasPrefix(v, "LISTEN_PID=") && !strings.HasPrefix(v, "LISTEN_FDNAMES=") {
			env = append(env, v)
		}
	}
	env = append(env, "LISTEN_FDS="+strconv.Itoa(len(fds)), "LISTEN_PID="+strconv.Itoa(os.Getpid()), "LISTEN_FDNAMES="+
		strings.Join(r.Names, ":"))
	runtime.LockOSThread()
	if err := moveToFirst(fds); err != nil {
		return NoSockets, fmt.Errorf("descriptors for the sockets: %w", err)
	}
	return NoProgram, fmt.Errorf("%s: %w", path, syscall.Exec(path, argv, env))
}

// moveToFirst puts descriptors at firstFD and after, open over an exec.
func moveToFirst(fds []int) error {
	// The runtime may have a descriptor there that its other threads use. So this
	// thread, which becomes the program, gets a table of its own: close_range closes
	// nothing here. Where neither call is allowed there is only a moment until the exec
	// in which another thread could miss what is replaced.
	if unix.CloseRange(math.MaxInt32-1, math.MaxInt32, unix.CLOSE_RANGE_UNSHARE) != nil {
		_ = unix.Unshare(unix.CLONE_FILES)
	}
	high := make([]int, len(fds))
	for i, fd := range fds { // out of the way first
		to, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, firstFD+len(fds))
		if err != nil {
			return err
		}
		high[i] = to
	}
	for i, fd := range high {
		if err := unix.Dup3(fd, firstFD+i, 0); err != nil {
			return err
		}
	}
	return nil
}
