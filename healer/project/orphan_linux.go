package project

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/pace"
	"github.com/tend-run/tend/internal/procfs"
	"github.com/tend-run/tend/observe"
)

// orphanTime is how long an orphan may take to end before it is killed.
const orphanTime = 2 * time.Second

// EndHolder ends what listens on a port of the service, if it is what an earlier run of it
// has left, or, with others, whatever it is. What is in spared is left alone.
func (l *Local) EndHolder(ctx context.Context, port int, spared []int, others bool) (string, error) {
	spared = trees(spared)
	held := ""
	for _, host := range []string{"127.0.0.1", "::1"} {
		a, err := observe.Answering(os.Getpid(), 0, netip.AddrPortFrom(netip.MustParseAddr(host), uint16(port)))
		if err != nil {
			return "", err
		}
		if !a.Listening {
			continue
		}
		if a.PID == 0 {
			return "", fmt.Errorf("port %d is held by a process that cannot be found", port)
		}
		if slices.Contains(spared, a.PID) {
			return "", fmt.Errorf("port %d is held by pid %d (%s), which is a process of this daemon", port, a.PID, a.Name)
		}
		if !l.isOrphan(a.PID) && !others {
			return "", fmt.Errorf("port %d is held by pid %d (%s), which is not of this service (healer.end_port_holders: true ends it all the same)", port, a.PID, a.Name)
		}
		if err := endTree(ctx, a.PID, spared); err != nil {
			return "", err
		}
		held = fmt.Sprintf("ended pid %d (%s), which held port %d", a.PID, a.Name, port)
	}
	return held, nil
}

// EndOrphans ends all that earlier runs of the service have left, but for what is in spared.
func (l *Local) EndOrphans(ctx context.Context, spared []int) (string, error) {
	spared = trees(spared)
	pids, err := procfs.PIDs()
	if err != nil {
		return "", err
	}
	var ended []string
	for _, pid := range pids {
		if slices.Contains(spared, pid) || !l.isOrphan(pid) {
			continue
		}
		if err := endTree(ctx, pid, spared); err != nil {
			return "", err
		}
		ended = append(ended, fmt.Sprint(pid))
	}
	if len(ended) == 0 {
		return "", nil
	}
	return "ended what was left of earlier runs: " + strings.Join(ended, ", "), nil
}

// trees are these processes with all that they have started, and this one.
func trees(pids []int) []int {
	all := append([]int{os.Getpid()}, pids...)
	for _, pid := range pids {
		all = append(all, observe.Tree(pid, 0)...)
	}
	return all
}

// isOrphan reports whether a process that nobody looks after was started as the service
// is: the same user, directory and command.
func (l *Local) isOrphan(pid int) bool {
	st, err := os.Stat(procfs.Path(pid, ""))
	if err != nil {
		return false
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); !ok || int(sys.Uid) != os.Geteuid() {
		return false
	}
	cwd, err := os.Readlink(procfs.Path(pid, "cwd"))
	if err != nil {
		return false
	}
	want, err := filepath.EvalSymlinks(l.c.Cwd)
	if err != nil || cwd != want {
		return false
	}
	line, err := procfs.Read(pid, "cmdline")
	if err != nil {
		return false
	}
	argv := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
	mine := l.c.Argv
	if text := l.c.Line; text != "" {
		// The shell may have become the program, or be its parent.
		mine = []string{"/bin/sh", "-c", text}
		if slices.Equal(argv, strings.Fields(text)) || slices.Equal(argv, strings.Fields(strings.TrimPrefix(text, "exec "))) {
			return true
		}
	}
	return sameArgv(argv, mine)
}

// sameArgv compares two commands; a program that was found in PATH may have its path.
func sameArgv(a, b []string) bool {
	return len(a) == len(b) && len(a) > 0 && filepath.Base(a[0]) == filepath.Base(b[0]) && slices.Equal(a[1:], b[1:])
}

// endTree ends a process and its descendants, and returns when they are gone. What is in
// spared is left alone.
func endTree(ctx context.Context, pid int, spared []int) error {
	var fds []int
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	for _, one := range append(observe.Tree(pid, 0), pid) {
		if slices.Contains(spared, one) {
			continue
		}
		if fd, err := unix.PidfdOpen(one, 0); err == nil {
			fds = append(fds, fd)
		}
	}
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		for _, fd := range fds {
			_ = unix.PidfdSendSignal(fd, sig, nil, 0) // one that has ended takes none
		}
		for end := time.Now().Add(orphanTime); time.Now().Before(end); {
			alive := false
			for _, fd := range fds {
				p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
				if n, err := unix.Poll(p, 0); err != nil || n == 0 {
					alive = true
				}
			}
			if !alive {
				return nil
			}
			if !pace.Wait(ctx, 20*time.Millisecond) {
				return ctx.Err()
			}
		}
	}
	return fmt.Errorf("pid %d does not end", pid)
}
