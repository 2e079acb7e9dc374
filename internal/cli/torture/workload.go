//go:build linux

package torture

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Exit statuses of a workload that saw what must never happen.
const (
	statusBroken = 98 // a pipe or terminal broke
	statusUsage  = 99
)

// Work is the program that is run under torture. It does not return:
//
//	write N PAUSE CODE   N bytes of the pattern to stdout and to stderr, pausing sixteen times
//	once FILE CODE       one byte to the end of FILE
//	signal N             ends itself by signal N
//	sleep                until it is killed
//	terminal N           raw mode, "R", echoes N bytes, prints the terminal's size
func Work(args []string) {
	fail := func() { os.Exit(statusUsage) }
	number := func(i int) int64 {
		if i >= len(args) {
			fail()
		}
		n, err := strconv.ParseInt(args[i], 10, 64)
		if err != nil {
			fail()
		}
		return n
	}
	if len(args) == 0 {
		fail()
	}
	switch args[0] {
	case "write":
		if len(args) != 4 {
			fail()
		}
		pause, err := time.ParseDuration(args[2])
		if err != nil {
			fail()
		}
		writeBoth(number(1), pause)
		os.Exit(int(number(3)))
	case "once":
		f, err := os.OpenFile(args[1], os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		if err != nil {
			fail()
		}
		if _, err := f.Write([]byte{'1'}); err != nil {
			fail()
		}
		os.Exit(int(number(2)))
	case "signal":
		if syscall.Kill(os.Getpid(), syscall.Signal(number(1))) != nil {
			fail()
		}
		// No empty select: the signal may arrive on another thread, and the runtime
		// ends a program in which no goroutine can wake up with status 2.
		for {
			time.Sleep(time.Hour)
		}
	case "sleep":
		for {
			time.Sleep(time.Hour)
		}
	case "terminal":
		echoTerminal(number(1))
		os.Exit(0)
	}
	fail()
}

func writeBoth(n int64, pause time.Duration) {
	const pauses = 16
	step := max(n/pauses, 1)
	buf := make([]byte, 32<<10)
	for at := int64(0); at < n; {
		b := buf[:min(int64(len(buf)), n-at, step-at%step)]
		fill(b, at)
		for _, f := range []*os.File{os.Stdout, os.Stderr} {
			if _, err := f.Write(b); err != nil {
				os.Exit(statusBroken)
			}
		}
		if at += int64(len(b)); at%step == 0 {
			time.Sleep(pause)
		}
	}
}

// echoTerminal switches its terminal to raw mode, and relies on the mode and
// the terminal being there to the end.
func echoTerminal(n int64) {
	t, err := unix.IoctlGetTermios(0, unix.TCGETS)
	if err != nil {
		os.Exit(statusUsage)
	}
	t.Iflag, t.Oflag, t.Lflag = 0, 0, 0
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(0, unix.TCSETS, t); err != nil {
		os.Exit(statusUsage)
	}
	say := func(b []byte) {
		if _, err := os.Stdout.Write(b); err != nil {
			os.Exit(statusBroken)
		}
	}
	say([]byte("R"))
	buf := make([]byte, 1024)
	for at := int64(0); at < n; {
		m, err := os.Stdin.Read(buf[:min(int64(len(buf)), n-at)])
		if err != nil && err != io.EOF || m == 0 {
			os.Exit(statusBroken)
		}
		say(buf[:m])
		at += int64(m)
	}
	size, err := unix.IoctlGetWinsize(0, unix.TIOCGWINSZ)
	if err != nil {
		os.Exit(statusBroken)
	}
	say(fmt.Appendf(nil, "%dx%d", size.Col, size.Row))
}
