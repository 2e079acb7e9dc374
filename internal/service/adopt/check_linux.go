package adopt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/files/credentials"
	"github.com/tend-run/tend/internal/lib/pidfd"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/internal/service/supervisor"
	"github.com/tend-run/tend/process"
)

// Check returns what a pid stands for, if that may be adopted.
//
// Errors: *RefusedError; process.ErrNotFound if there is no such process;
// process.ErrUnavailable if it could not be found out now; process.ErrUnsupported.
func Check(ctx context.Context, pid int, g *Guard) (*supervisor.Adopted, error) {
	if pid <= 0 {
		return nil, &process.InvalidError{Field: "pid", Reason: fmt.Sprintf("is %d; a pid is 1 or more", pid)}
	}
	fd, err := openPID(pid)
	if errors.Is(err, process.ErrExited) {
		return nil, fmt.Errorf("pid %d: %w", pid, process.ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	s, ok := procfs.ReadStat(pid)
	if !ok || pidfd.Ended(fd, 0) {
		return nil, fmt.Errorf("pid %d: %w", pid, process.ErrNotFound)
	}
	if err := g.check(ctx, pid); err != nil {
		return nil, err
	}
	// What was looked at is what the pidfd stands for.
	if pidfd.Ended(fd, 0) {
		return nil, fmt.Errorf("pid %d: %w", pid, process.ErrNotFound)
	}
	return &supervisor.Adopted{PID: pid, Start: s.Start, Leads: s.Session == pid}, nil
}

func (g *Guard) check(ctx context.Context, pid int) error {
	refuse := func(format string, args ...any) error {
		return &RefusedError{PID: pid, Why: fmt.Sprintf(format, args...)}
	}
	above := ancestors(pid)
	ours := append(ancestors(os.Getpid()), os.Getpid())
	switch {
	case pid == 1:
		return refuse("is the first process of the machine")
	case slices.Contains(g.Roles, pid) || pid == os.Getpid():
		return refuse("is tend itself")
	case slices.Contains(ours, pid):
		return refuse("is what tend was started by, and its end would be that of tend")
	case kernelThread(pid):
		return refuse("is a thread of the kernel")
	}
	if err := g.checkUser(pid); err != nil {
		return err
	}
	all, err := g.Manager.List(ctx, process.Filter{Live: true})
	if err != nil {
		return err
	}
	for i := range all {
		switch p := all[i].PID; {
		case p == pid:
			return refuse("is the process %s of tend already (%s)", all[i].ID, nameOf(&all[i]))
		case p > 0 && slices.Contains(above, p):
			return refuse("runs below pid %d, the process %s of tend (%s)", p, all[i].ID, nameOf(&all[i]))
		}
	}
	for _, role := range g.Roles {
		if role > 1 && slices.Contains(above, role) { // all orphans fall to pid 1
			return refuse("was started by tend, or by what tend has started")
		}
	}
	for name, a := range g.Others {
		switch {
		case a.PID == pid:
			return refuse("is the service %s already", name)
		case slices.Contains(above, a.PID):
			return refuse("runs below pid %d, which the service %s has adopted", a.PID, name)
		case slices.Contains(ancestors(a.PID), pid):
			return refuse("is above pid %d, which the service %s has adopted", a.PID, name)
		}
	}
	if procfs.InnerPID(pid) > 0 {
		return refuse("runs in a container or a sandbox; declare the service with that as its sandbox")
	}
	return nil
}

func nameOf(in *process.Info) string {
	switch {
	case in.Spec.Name != "":
		return in.Spec.Name
	case len(in.Spec.Argv) > 0:
		return fmt.Sprintf("%.40q", in.Spec.Argv[0])
	}
	return "a line of a shell"
}

// checkUser refuses a process that is another user's in any way: one that has changed its
// user may have rights that the service has not.
func (g *Guard) checkUser(pid int) error {
	want, err := credentials.Lookup(g.User)
	if err != nil {
		return err
	}
	status, err := procfs.Read(pid, "status")
	if err != nil {
		return &RefusedError{PID: pid, Why: "may not be looked at: " + err.Error()}
	}
	uids := uidsOf(status)
	for _, uid := range uids {
		if uid == want.UID {
			continue
		}
		why := fmt.Sprintf("is of uid %d, and the service of uid %d", uid, want.UID)
		if os.Geteuid() == 0 && g.User == "" {
			why += fmt.Sprintf("; give the service user: %d if that is meant", uid)
		}
		return &RefusedError{PID: pid, Why: why}
	}
	if len(uids) == 0 {
		return &RefusedError{PID: pid, Why: "is of a user that the kernel does not tell"}
	}
	return nil
}

// uidsOf reads the real, effective, saved and filesystem uid of /proc/PID/status; none if
// the text is not that.
func uidsOf(status []byte) (uids []int) {
	_, rest, ok := bytes.Cut(status, []byte("\nUid:"))
	line, _, whole := bytes.Cut(rest, []byte("\n"))
	if !ok || !whole {
		return nil
	}
	for _, f := range bytes.Fields(line) {
		uid, err := strconv.ParseUint(string(f), 10, 32)
		if err != nil {
			return nil
		}
		uids = append(uids, int(uid))
	}
	if len(uids) != 4 {
		return nil
	}
	return uids
}

// kernelThread reports whether a process has no program: a thread of the kernel has not,
// and no arguments either.
func kernelThread(pid int) bool {
	_, err := os.Readlink(procfs.Path(pid, "exe"))
	if !errors.Is(err, os.ErrNotExist) {
		return false
	}
	line, err := procfs.Read(pid, "cmdline")
	return err == nil && len(line) == 0
}

// maxAbove bounds a walk to the first process: parents change meanwhile.
const maxAbove = 10_000

// ancestors are the processes above one, the nearest first.
func ancestors(pid int) (all []int) {
	for range maxAbove {
		s, ok := procfs.ReadStat(pid)
		if !ok || s.PPID <= 0 {
			return all
		}
		pid = s.PPID
		all = append(all, pid)
	}
	return all
}
