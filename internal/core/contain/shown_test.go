//go:build linux && (amd64 || arm64)

package contain

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
)

// TestAHiddenPid1IsWaitedFor: as an ordinary user, to whom /proc hides what is not dumpable.
func TestAHiddenPid1IsWaitedFor(t *testing.T) {
	if !testkeeper.IsRootless() {
		testkeeper.Rootless(t, "^TestAHiddenPid1IsWaitedFor$")
		return
	}
	p := exec.CommandContext(t.Context(), "perl", "-e", fmt.Sprintf(`$| = 1; sub dumpable { syscall(%d, %d, shift, 0, 0, 0) == 0 or die $! }
dumpable(0); print "hidden\n"; <STDIN>; dumpable(1); sleep 1000`, unix.SYS_PRCTL, unix.PR_SET_DUMPABLE))
	in, out := proctest.Value(p.StdinPipe())(t), proctest.Value(p.StdoutPipe())(t)
	proctest.Must(t, p.Start())
	defer p.Wait()
	defer p.Process.Kill()
	proctest.Value(bufio.NewReader(out).ReadString('\n'))(t)
	root := procfs.Path(p.Process.Pid, "root")
	if _, err := os.Readlink(root); !errors.Is(err, os.ErrPermission) {
		t.Fatalf("it is not hidden: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- shown(p.Process.Pid) }()
	select {
	case err := <-done:
		t.Fatalf("a hidden one is not waited for: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	proctest.Value(io.WriteString(in, "\n"))(t)
	proctest.Must(t, <-done)
	proctest.Value(os.Readlink(root))(t)
}
