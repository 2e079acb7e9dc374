package work

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/tend-run/tend/internal/files/credentials"
	"github.com/tend-run/tend/internal/heal/project"
)

// isOther reports whether a user of a service is another one than that of this process.
func isOther(name string) (bool, error) {
	if name == "" {
		return false, nil
	}
	a, err := credentials.Lookup(name)
	if err != nil {
		return false, err
	}
	return a.Other, nil
}

// homeOf is the home of a user of a service.
func homeOf(name string) (string, error) {
	a, err := credentials.Lookup(cmp.Or(name, strconv.Itoa(os.Getuid())))
	return a.Home, err
}

// idsOf are the ids of a user of a service, as UID:GID, if that is another one; "": it is not.
func idsOf(name string) (string, error) {
	a, err := credentials.Lookup(name)
	if err != nil || !a.Other {
		return "", err
	}
	return fmt.Sprintf("%d:%d", a.UID, a.GID), nil
}

// startAs starts the process that works on the project as the user of the service. It is this
// program, which that user need not be able to find, and ends with this process.
func (w *worker) startAs(context.Context) (project.Conn, error) {
	a, err := credentials.Lookup(w.order.Rules.User)
	if err != nil {
		return nil, err
	}
	groups := make([]uint32, 0, len(a.Groups))
	for _, g := range a.Groups {
		groups = append(groups, uint32(g))
	}
	cmd := exec.Command("/proc/self/exe", Verb)
	cmd.Args[0] = "tend"
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + w.commandPath(), "HOME=" + a.Home, "GOMEMLIMIT=" + goMemory} // in the worker's tree, and so in its bounds
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(a.UID), Gid: uint32(a.GID), Groups: groups}}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	// A pipe of ours: that of the command would be closed while it is still read.
	out, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer to.Close()
	cmd.Stdout = to
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	return &child{cmd: cmd, in: in, out: out}, nil
}

// child is a process of another user.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *os.File
}

func (c *child) Read(to []byte) (int, error)    { return c.out.Read(to) }
func (c *child) Write(data []byte) (int, error) { return c.in.Write(data) }

// childTime is how long it may take to end by itself, as endTime is.
const childTime = endTime

// Close ends the process.
func (c *child) Close() error {
	_ = c.in.Close() // it ends then
	timer := time.AfterFunc(childTime, func() { _ = c.cmd.Process.Kill() })
	defer timer.Stop()
	_ = c.cmd.Wait() // how it ends says nothing
	return c.out.Close()
}
