package launch

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/rundir"
	"github.com/tend-run/tend/internal/support/proctest"
)

// TestALockIsWaitedForWhileItsOwnerEnds: tend shutdown returns when /proc shows the launcher's
// command line no more, and a tend serve that follows at once is not refused. A process that is
// no launcher stands for one whose files are closed a moment later.
func TestALockIsWaitedForWhileItsOwnerEnds(t *testing.T) {
	dir := t.TempDir()
	run := proctest.Value(rundir.Open(dir))(t)
	defer run.Close()
	owner := proctest.Value(os.OpenFile(run.Path(rundir.Lock), os.O_RDWR|os.O_CREATE, 0o600))(t)
	proctest.Must(t, unix.Flock(int(owner.Fd()), unix.LOCK_EX))
	time.AfterFunc(20*time.Millisecond, func() { owner.Close() })
	if err := lock(run, dir); err != nil {
		t.Errorf("its owner was no launcher, and has ended: %v", err)
	}
}
