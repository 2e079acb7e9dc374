package spool

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"go.uber.org/goleak"

	"github.com/tend-run/tend/process"
)

// TestMain fails when a test leaves a goroutine or a descriptor behind.
func TestMain(m *testing.M) {
	before := openFiles()
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		if after := openFiles(); len(after) > len(before) {
			fmt.Fprintf(os.Stderr, "descriptors left open: before %q, after %q\n", before, after)
			code = 1
		}
	}
	os.Exit(code)
}

// openFiles lists the open regular files of this process; the runtime's own
// descriptors (epoll, eventfd) come and go.
func openFiles() (names []string) {
	if runtime.GOOS != "linux" {
		return nil
	}
	fds, _ := os.ReadDir("/proc/self/fd")
	for _, fd := range fds {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && to[0] == '/' && to != "/dev/null" {
			names = append(names, to)
		}
	}
	return names
}

var outputs = []process.Stream{process.Stdout, process.Stderr}
