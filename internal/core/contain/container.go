//go:build linux

package contain

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/cgroup"
	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/core/failpoint"
	"github.com/tend-run/tend/internal/lib/eintr"
	"github.com/tend-run/tend/internal/lib/nap"
	"github.com/tend-run/tend/internal/lib/pidfd"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/process"
)

// Container is an existing container. Its methods must not be called concurrently, except where they
// say so.
type Container struct {
	Spec    container.Spec
	PID     int
	Started int64        // of pid 1, clock ticks since boot
	Nest    *cgroup.Nest // its groups
	Active  []string     // words of package container

	dir       string // of the files
	nest      string // name of Nest
	pidfd     int    // of pid 1
	networked bool
}

// ProbeID is the ID of the container that Can creates.
const ProbeID container.ID = "00000000-0000-0000-0000-000000000000"

// Names of pid 1: its program, and the name (comm) that it has once it has a network
// namespace of its own. With a second argument it makes none.
const (
	firstName  = "tend-sandbox"
	firstNoNet = "-"
	networked  = "tend-networked"
)

// Namespaces are all those of a container.
const Namespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS |
	unix.CLONE_NEWNET | unix.CLONE_NEWCGROUP

func (c *Container) path() string { return filepath.Join(c.dir, string(c.Spec.ID)) }

// Unfiled reports whether the container has a group but no file, so that its origin is unknown.
func (c *Container) Unfiled() bool { return c.Spec.ID == "" }

// PIDFD is a descriptor of pid 1 that belongs to the container. It is open until End.
func (c *Container) PIDFD() int { return c.pidfd }

// Alive reports whether pid 1 runs. It may be called at any time before End.
func (c *Container) Alive() bool { return !pidfd.Ended(c.pidfd, 0) }

// Info of the container.
func (c *Container) Info() container.Info {
	return container.Info{ID: c.Spec.ID, PID: c.PID, Started: c.Started, Mode: modeOf(&c.Spec), Active: slices.Clone(c.Active),
		Group: c.Nest.Dir(), Frozen: c.Nest.Frozen(), Network: c.networked}
}

// Furnish creates what programs inside need and an idle container does not: groups of limits, and
// the network. Errors: as Network.
func (c *Container) Furnish() error {
	if err := c.Nest.Join(&c.Spec.Limits); err != nil {
		return err
	}
	failpoint.Hit(failpoint.ContainerFurnished)
	return c.Network()
}

// netWait bounds how long pid 1 may take to make its network. It takes a millisecond.
const netWait = 10 * time.Second

// Network makes pid 1 create its own network, unless it has one or uses the machine's.
// Errors: container.ErrEnded.
func (c *Container) Network() error {
	if c.networked || c.Spec.Net == container.NetHost {
		return nil
	}
	deadline := time.Now().Add(netWait)
	for pause, next := 50*time.Microsecond, time.Now(); ; pause = min(pause*9/8, time.Millisecond) {
		if c.comm() == networked {
			c.networked = true
			return nil
		}
		now := time.Now()
		if now.After(deadline) {
			return fmt.Errorf("pid %d of the sandbox made no network namespace; the machine may have no more of them (user.max_net_namespaces): %w",
				c.PID, process.ErrLimit)
		}
		if !now.Before(next) { // once more where the machine had none for a moment
			if err := unix.PidfdSendSignal(c.pidfd, unix.SIGUSR1, nil, 0); err == unix.ESRCH {
				return container.ErrEnded
			} else if err != nil {
				return err
			}
			next = now.Add(50 * time.Millisecond)
		}
		nap.For(pause)
	}
}

func (c *Container) comm() string {
	fd, err := unix.Open(procfs.Path(c.PID, "comm"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	var b [64]byte
	n, _ := unix.Read(fd, b[:])
	return strings.TrimSuffix(string(b[:max(n, 0)]), "\n")
}

// Limit changes the limits.
func (c *Container) Limit(l container.Limits) error {
	if err := c.Nest.Limit(&c.Spec.Limits, &l); err != nil {
		return err
	}
	c.Spec.Limits = l
	return rewrite(c.dir, &record{state: made, pid: c.PID, started: c.Started, boot: bootName(), nest: c.nest, spec: c.Spec})
}

// Kill begins the end: it notes it in the file and kills all processes. The caller reaps
// the ones that it started; pid 1 does not end before that.
func (c *Container) Kill() error {
	if !c.Unfiled() {
		if err := setState(c.path(), ending); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	failpoint.Hit(failpoint.ContainerEnding)
	c.kill()
	failpoint.Hit(failpoint.ContainerKilled)
	return nil
}

func (c *Container) kill() {
	c.Nest.Freeze(false, time.Now()) // a frozen v2 group can be killed; whoever waits for it to stand still must not
	c.Nest.Kill()
	if c.pidfd >= 0 {
		unix.PidfdSendSignal(c.pidfd, unix.SIGKILL, nil, 0)
	}
}

// End waits for the end of pid 1, until a time, and removes the rest. After an error it may
// be called again.
func (c *Container) End(until time.Time) error {
	if c.pidfd >= 0 {
		for !pidfd.Ended(c.pidfd, int(min(max(time.Until(until), 0), 100*time.Millisecond)/time.Millisecond)+1) {
			if !time.Now().Before(until) {
				return fmt.Errorf("pid %d of the sandbox was killed and has not ended yet: %w", c.PID, process.ErrUnavailable)
			}
			c.kill() // somebody was cloned into a group meanwhile
		}
		collect(c.PID) // or the subreaper has it
	}
	if err := c.Nest.Remove(until); err != nil {
		return err
	}
	c.emptyWork()
	failpoint.Hit(failpoint.ContainerUngrouped)
	if !c.Unfiled() {
		if err := os.Remove(c.path()); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	failpoint.Hit(failpoint.ContainerForgotten)
	if c.pidfd >= 0 {
		unix.Close(c.pidfd)
		c.pidfd = -1
	}
	return nil
}

// emptyWork removes what the kernel has left in the work directories of an ordinary user's
// container: it is closed even to that user.
func (c *Container) emptyWork() {
	if c.Unfiled() || c.Spec.UIDBase != 0 {
		return
	}
	work := filepath.Join(c.Spec.Dir, "wk")
	entries, _ := os.ReadDir(work)
	for _, e := range entries {
		removeAll(filepath.Join(work, e.Name()))
	}
}

// collect reaps a child of ours.
func collect(pid int) {
	_, _ = eintr.Get(func() (int, error) { return unix.Wait4(pid, nil, unix.WALL, nil) })
}

// started is the start time of a process in clock ticks since boot; 0: there is none.
func started(pid int) int64 {
	st, _ := procfs.ReadStat(pid)
	return st.Start
}

// isFirst reports whether a process is pid 1 of its pid namespace, and not of
// ours.
func isFirst(pid int) bool { return procfs.InnerPID(pid) == 1 }
