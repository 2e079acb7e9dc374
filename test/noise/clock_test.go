//go:build linux

package noise

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/kernelfault"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testbin"
	"github.com/tend-run/tend/internal/support/testdaemon"
)

// wallClock is that of the roles, of all that they start, and of nobody else: it is ahead of
// the machine's by as much as a test says.
//
// A Go program reads the clock from a page that the kernel maps for it, without a system call.
// The name by which it finds the function there is changed in copies of tend and of the
// tend-keeper beside it: so it asks the kernel, as it does where there is no such
// function. Each such call for CLOCK_REALTIME comes here, by seccomp, and is answered by the
// machine's clock and the difference. What the kernel itself notes, such as the times of
// files, is the machine's.
type wallClock struct {
	ahead atomic.Int64 // nanoseconds
	asked atomic.Int64 // how often the roles have read it
}

// daemon starts one under the clock.
func (w *wallClock) daemon(t *testing.T, dir string) *testdaemon.Daemon {
	t.Helper()
	function := []byte("__vdso_clock_gettime")
	if runtime.GOARCH == "arm64" {
		function = []byte("__kernel_clock_gettime")
	}
	own := filepath.Join(dir, "tend")
	for to, from := range map[string]string{
		own: testbin.Bare.Tend(programs), filepath.Join(dir, "tend-keeper"): testbin.Roles.Keeper(programs),
	} {
		data := proctest.Value(os.ReadFile(from))(t)
		if !bytes.Contains(data, function) {
			t.Fatalf("%s does not name the function that reads the clock", from)
		}
		proctest.Must(t, os.WriteFile(to, bytes.ReplaceAll(data, function, bytes.ToUpper(function)), 0o755))
	}
	world := kernelfault.World{Rules: []kernelfault.Rule{{Call: unix.SYS_CLOCK_GETTIME, Arg: 0, Value: unix.CLOCK_REALTIME}}}
	cmd := proctest.Value(kernelfault.Command(world, own))(t)
	var l *kernelfault.Listener
	start := func(cmd *exec.Cmd) (err error) {
		if l, err = kernelfault.Listen(cmd, cmd.Start); err == nil {
			go l.Each(func(c *kernelfault.Call) bool { return w.answer(l, c) }) // until Close
		}
		return err
	}
	t.Cleanup(func() { // after the daemon's own, which comes later
		if l != nil {
			l.Close()
		}
	})
	d := testdaemon.Serve(t, testdaemon.Config{Command: cmd.Args, Dir: dir, Start: start})
	if w.asked.Load() == 0 {
		t.Fatal("the roles do not read this clock")
	}
	return d
}

func (w *wallClock) answer(l *kernelfault.Listener, c *kernelfault.Call) (held bool) {
	w.asked.Add(1)
	ahead := w.ahead.Load()
	if ahead == 0 {
		return false
	}
	now := time.Now().Add(time.Duration(ahead))
	var b [16]byte
	binary.NativeEndian.PutUint64(b[:], uint64(now.Unix()))
	binary.NativeEndian.PutUint64(b[8:], uint64(now.Nanosecond()))
	if c.Write(1, b[:]) != nil {
		return false // it has died
	}
	l.Done(c)
	return true
}

// jump sets the clock ahead of the machine's, or behind it.
func (w *wallClock) jump(d time.Duration) { w.ahead.Store(int64(d)) }
