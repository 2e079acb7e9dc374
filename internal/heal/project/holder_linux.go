package project

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/backoff"
	"github.com/tend-run/tend/internal/lib/pidfd"
	"github.com/tend-run/tend/internal/observe"
)

// holderTime is how long a process may take to end before it is killed.
const holderTime = 2 * time.Second

// EndHolder ends what listens on a port of the service, if anything may be ended there: that
// the program and its directory are the service's does not prove that nobody else started it.
// What is in spared is left alone.
func (l *Local) EndHolder(ctx context.Context, port int, spared []int, anything bool) (string, error) {
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
		switch {
		case a.Ours:
			return "", fmt.Errorf("port %d is held by a process of this daemon", port)
		case a.PID == 0:
			return "", fmt.Errorf("port %d is held by a process that cannot be found", port)
		}
		if slices.Contains(spared, a.PID) {
			return "", fmt.Errorf("port %d is held by pid %d (%s), which is a process of this daemon", port, a.PID, a.Name)
		}
		if !anything {
			return "", fmt.Errorf("port %d is held by pid %d (%s), which no run of this service has started "+
				"(healer.end_port_holders: true ends it all the same)", port, a.PID, a.Name)
		}
		if err := endTree(ctx, a.PID, spared); err != nil {
			return "", err
		}
		held = fmt.Sprintf("ended pid %d (%s), which held port %d", a.PID, a.Name, port)
	}
	return held, nil
}

// trees are these processes with all that they have started, and this one.
func trees(pids []int) []int {
	all := append([]int{os.Getpid()}, pids...)
	for _, pid := range pids {
		all = append(all, observe.Tree(pid, 0)...)
	}
	return all
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
		for end := time.Now().Add(holderTime); time.Now().Before(end); {
			alive := false
			for _, fd := range fds {
				alive = alive || !pidfd.Ended(fd, 0)
			}
			if !alive {
				return nil
			}
			if !backoff.Wait(ctx, 20*time.Millisecond) {
				return ctx.Err()
			}
		}
	}
	return fmt.Errorf("pid %d does not end", pid)
}
