//go:build linux

package keeper

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/wire"
	"github.com/tend-run/tend/process"
)

// openStreams makes the pipes or the terminal and returns the child's ends of
// stdin, stdout and stderr, which the caller closes, all but k.null.
func (k *Keeper) openStreams(p *proc, spec *process.Spec, req *wire.Spawn) ([]int, *wire.Error) {
	if spec.PTY != nil {
		return k.openTerminal(p, *spec.PTY, req)
	}
	var child []int
	fail := func(err error) ([]int, *wire.Error) { return child, resourceError("pipes", err) }
	var pipe [2]int
	if spec.Stdin == process.StdinPipe {
		if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
			return fail(err)
		}
		child, p.stdin.fd, p.stdin.open = append(child, pipe[0]), pipe[1], true
		k.give(p, pipe[0], req)
	} else {
		child = append(child, k.null)
	}
	for i := range p.out {
		// Neither end is non-blocking: the program expects that, and splice
		// has a flag for it.
		if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
			return fail(err)
		}
		p.out[i].fd, p.out[i].eof, child = pipe[0], false, append(child, pipe[1])
		k.give(p, pipe[1], req)
	}
	return child, nil
}

// openTerminal opens a pseudo-terminal. The slave is opened through the master
// (TIOCGPTPEER), so /dev/pts of another mount namespace cannot mislead us, and
// given to the user, so that the program can open it by name.
func (k *Keeper) openTerminal(p *proc, size process.Size, req *wire.Spawn) ([]int, *wire.Error) {
	fail := func(err error) ([]int, *wire.Error) {
		return nil, wire.StartError(process.StartPTY, errno(err), "terminal: "+err.Error())
	}
	master, err := p.openMaster()
	if err != nil {
		return fail(err)
	}
	s := &p.out[0]
	s.fd, s.eof, p.stdin.open = master, false, true
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return fail(err)
	}
	if err := setSize(master, size); err != nil {
		return fail(err)
	}
	slave, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if e != 0 {
		return fail(e)
	}
	fd := int(slave)
	k.give(p, fd, req)
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		unix.Close(fd)
		return fail(err)
	}
	s.stageR, s.stageW = pipe[0], pipe[1]
	return []int{fd, fd, fd}, nil
}

// give makes a pipe or terminal the user's, as a login does: a program opens it again
// by the names /dev/stdin, /dev/stdout and /dev/stderr.
func (k *Keeper) give(p *proc, fd int, req *wire.Spawn) {
	if !req.Cred {
		return
	}
	if err := unix.Fchown(fd, p.outerID(req.UID), -1); err != nil {
		k.logf("process %s: its streams stay with uid %d: %v", p.id, os.Getuid(), err)
	}
}

func getSize(fd int) (process.Size, error) {
	w, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
	if err != nil {
		return process.Size{}, err
	}
	return process.Size{Cols: w.Col, Rows: w.Row}, nil
}

func setSize(fd int, size process.Size) error {
	return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: size.Cols, Row: size.Rows})
}

// lastFiles is how many descriptors no start may take: a child needs some
// before it runs its program, and processes must be killed, reaped and written
// down when there are no others.
const lastFiles = 12

// isLast reports whether a descriptor, which is the lowest that was free, is of
// the last ones.
func (k *Keeper) isLast(fd int) bool {
	return k.stats.files > 0 && uint64(fd)+lastFiles >= k.stats.files
}
