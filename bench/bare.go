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
func spawn(stdin bool, argv ...string) *child {
	var in, out, errs [2]int
	check(unix.Pipe2(out[:], unix.O_CLOEXEC))
	check(unix.Pipe2(errs[:], unix.O_CLOEXEC))
	c := &child{in: -1, out: out[0], err: errs[0]}
	if stdin {
		check(unix.Pipe2(in[:], unix.O_CLOEXEC))
		c.in = in[1]
	} else {
		in[0] = must(unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0))
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
		fail("bare %s: %w", argv[0], err)
	}
	c.pid = pid
	return c
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
func (c *child) wait() {
	c.close()
	var status unix.WaitStatus
	for _, err := unix.Wait4(c.pid, &status, 0, nil); err != nil; _, err = unix.Wait4(c.pid, &status, 0, nil) {
		if err != unix.EINTR {
			fail("bare wait: %w", err)
		}
	}
	if status != 0 {
		fail("the bare workload ended with status %#x", int(status))
	}
}

// drain reads fd to its end and returns the number of bytes.
func drain(fd int, buf []byte) (total int64) {
	for {
		n, err := unix.Read(fd, buf)
		switch {
		case err == unix.EINTR:
		case err != nil:
			fail("bare pipe: %w", err)
		case n == 0:
			return total
		default:
			total += int64(n)
		}
	}
}

// bareRun is a process from its start to its end, with all output read, of which
// there must be want bytes.
func bareRun(buf []byte, want int64, argv ...string) time.Duration {
	return timed(func() {
		c := spawn(false, argv...)
		defer also(c.wait)
		expect(drain(c.out, buf), want)
		drain(c.err, buf)
	})
}

// bareFeed writes total bytes in pieces to the stdin of wc, which counts them.
func bareFeed(total int64, piece []byte) time.Duration {
	return timed(func() {
		c := spawn(true, wcPath, "-c")
		defer also(c.wait)
		for left := total; left > 0; {
			n, err := unix.Write(c.in, piece[:min(left, int64(len(piece)))])
			if err != nil && err != unix.EINTR {
				fail("bare pipe: %w", err)
			}
			left -= int64(max(n, 0))
		}
		unix.Close(c.in)
		c.in = -1
		var text [64]byte
		n := must(unix.Read(c.out, text[:]))
		expect(parseCount(string(text[:n])), total)
	})
}

// barePTY is an echo in a terminal.
type barePTY struct {
	master int
	pid    int
}

func openPTY(argv ...string) *barePTY {
	p := &barePTY{master: must(unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0))}
	check(unix.IoctlSetPointerInt(p.master, unix.TIOCSPTLCK, 0))
	n := must(unix.IoctlGetInt(p.master, unix.TIOCGPTN))
	slave := must(unix.Open(fmt.Sprintf("/dev/pts/%d", n), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0))
	defer unix.Close(slave)
	fd := uintptr(slave)
	p.pid = must(syscall.ForkExec(argv[0], argv, &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{fd, fd, fd},
		Sys: &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0},
	}))
	return p
}

// read returns when at least n bytes came.
func (p *barePTY) read(n int) {
	var buf [4096]byte
	for n > 0 {
		m, err := unix.Read(p.master, buf[:])
		if err != nil && err != unix.EINTR {
			fail("bare pty: %w", err)
		}
		n -= max(m, 0)
	}
}

func (p *barePTY) roundTrip(line []byte) time.Duration {
	return timed(func() {
		must(unix.Write(p.master, line))
		p.read(len(line))
	})
}

// close hangs up, which ends the process.
func (p *barePTY) close() {
	unix.Close(p.master)
	if p.pid > 0 {
		unix.Kill(p.pid, unix.SIGKILL)
		unix.Wait4(p.pid, nil, 0, nil)
	}
}
