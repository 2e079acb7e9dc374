//go:build linux

package main

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The bare limit: what the kernel and fork+exec cost with nothing between.
// Raw descriptors and blocking calls, as the runtime's poller costs too.

// child is a bare process.
type child struct {
	pid int
	// Our ends; -1 if there is none.
	in, out, err int
}

// spawn starts argv with pipes. Without stdin it reads /dev/null.
func spawn(stdin bool, argv ...string) (*child, error) {
	var in, out, errs [2]int
	for _, p := range []*[2]int{&out, &errs} {
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
			return nil, err
		}
	}
	c := &child{in: -1, out: out[0], err: errs[0]}
	if stdin {
		if err := unix.Pipe2(in[:], unix.O_CLOEXEC); err != nil {
			return nil, err
		}
		c.in = in[1]
	} else {
		fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		in[0] = fd
	}
	pid, err := syscall.ForkExec(argv[0], argv, &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: []uintptr{uintptr(in[0]), uintptr(out[1]), uintptr(errs[1])},
	})
	unix.Close(in[0])
	unix.Close(out[1])
	unix.Close(errs[1])
	if err != nil {
		c.close()
		return nil, fmt.Errorf("%s: %w", argv[0], err)
	}
	c.pid = pid
	return c, nil
}

func (c *child) close() {
	for _, fd := range []*int{&c.in, &c.out, &c.err} {
		if *fd >= 0 {
			unix.Close(*fd)
			*fd = -1
		}
	}
}

// wait reaps the process, which must have ended well.
func (c *child) wait() error {
	c.close()
	var status unix.WaitStatus
	for {
		_, err := unix.Wait4(c.pid, &status, 0, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		if status != 0 {
			return fmt.Errorf("the bare workload ended with status %#x", int(status))
		}
		return nil
	}
}

// drain reads fd to its end and returns the number of bytes.
func drain(fd int, buf []byte) (total int64, err error) {
	for {
		n, err := unix.Read(fd, buf)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return total, err
		case n == 0:
			return total, nil
		default:
			total += int64(n)
		}
	}
}

// bareRun is a process from its start to its end with all output read.
func bareRun(buf []byte, argv ...string) (total int64, took time.Duration, err error) {
	start := time.Now()
	c, err := spawn(false, argv...)
	if err != nil {
		return 0, 0, err
	}
	total, err = drain(c.out, buf)
	if err == nil {
		_, err = drain(c.err, buf)
	}
	if werr := c.wait(); err == nil {
		err = werr
	}
	return total, time.Since(start), err
}

// bareFeed writes total bytes in pieces to the stdin of wc, which counts them.
func bareFeed(total int64, piece []byte) (took time.Duration, err error) {
	start := time.Now()
	c, err := spawn(true, wcPath, "-c")
	if err != nil {
		return 0, err
	}
	for left := total; left > 0 && err == nil; {
		var n int
		n, err = unix.Write(c.in, piece[:min(left, int64(len(piece)))])
		left -= int64(max(n, 0))
		if err == unix.EINTR {
			err = nil
		}
	}
	unix.Close(c.in)
	c.in = -1
	var text [64]byte
	n := 0
	if err == nil {
		n, err = unix.Read(c.out, text[:])
	}
	if werr := c.wait(); err == nil {
		err = werr
	}
	if err != nil {
		return 0, err
	}
	took = time.Since(start)
	count, err := parseCount(string(text[:n]))
	if err != nil {
		return 0, err
	}
	return took, expect(count, total)
}

// barePTY is an echo in a terminal.
type barePTY struct {
	master int
	pid    int
}

func openPTY(argv ...string) (*barePTY, error) {
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("/dev/ptmx: %w", err)
	}
	p := &barePTY{master: master}
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return nil, err
	}
	n, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err != nil {
		return nil, err
	}
	slave, err := unix.Open(fmt.Sprintf("/dev/pts/%d", n), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(slave)
	fd := uintptr(slave)
	p.pid, err = syscall.ForkExec(argv[0], argv, &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{fd, fd, fd},
		Sys: &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0},
	})
	return p, err
}

// read returns when at least n bytes came.
func (p *barePTY) read(n int) error {
	var buf [4096]byte
	for n > 0 {
		m, err := unix.Read(p.master, buf[:])
		if err != nil && err != unix.EINTR {
			return err
		}
		n -= max(m, 0)
	}
	return nil
}

func (p *barePTY) roundTrip(line []byte) (time.Duration, error) {
	start := time.Now()
	if _, err := unix.Write(p.master, line); err != nil {
		return 0, err
	}
	err := p.read(len(line))
	return time.Since(start), err
}

// close hangs up, which ends the process.
func (p *barePTY) close() {
	unix.Close(p.master)
	if p.pid > 0 {
		unix.Kill(p.pid, unix.SIGKILL)
		unix.Wait4(p.pid, nil, 0, nil)
	}
}
