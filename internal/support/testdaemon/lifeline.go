//go:build linux

package testdaemon

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// lifeline ends a daemon with the process that started it, even if that one is
// killed: a shell of its own waits for the end of a pipe. (PR_SET_PDEATHSIG does
// not survive that the daemon's program executes another one from a thread.)
// release is to be called when the daemon has ended by itself.
func lifeline(pid int) (release func(), err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	cmd := exec.Command("/bin/sh", "-c", fmt.Sprintf("read x; kill -CONT %d; kill -TERM %d", pid, pid))
	cmd.Stdin, cmd.SysProcAttr = r, &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		w.Close()
		return nil, err
	}
	return func() {
		cmd.Process.Kill()
		cmd.Wait()
		w.Close()
	}, nil
}
