package local

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/drivertest"
	"github.com/tend-run/tend/internal/sandbox/sandboxrecord"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// takers are loops that take what the kernel counts for a user, as long as there is more.
var takers = map[string]string{
	"inotify instances": fmt.Sprintf(`$n++ while syscall(%d, 0) >= 0;`, unix.SYS_INOTIFY_INIT1),
	"terminals":         `while (open my $f, "+<", "/dev/ptmx") { push @f, $f; $n++ }`,
	"pages of pipes":    fmt.Sprintf(`while (pipe my $r, my $w) { push @f, $r, $w; last if !fcntl($w, %d, 1 << 20); $n++ }`, unix.F_SETPIPE_SZ),
	"message queues":    fmt.Sprintf(`$n++ while syscall(%d, "queue$n", %d, 0600, 0) >= 0;`, unix.SYS_MQ_OPEN, unix.O_CREAT|unix.O_RDWR),
	"processes": fmt.Sprintf(`syscall(%d, 0, %d, pack("QQ", 40, 40), 0); while ($n < 200) { my $p = fork; last if !defined $p; if (!$p) { sleep 600; exit } $n++ }`,
		unix.SYS_PRLIMIT64, unix.RLIMIT_NPROC),
}

// TestASandboxAtItsLimitsLeavesItsNeighbourItsOwn: what one has taken all of, the next has as much of.
func TestASandboxAtItsLimitsLeavesItsNeighbourItsOwn(t *testing.T) {
	d := openReal(t, real(t))
	if drivertest.Lacks(t, d, container.LayerIDs) {
		return
	}
	for what, take := range takers {
		t.Run(what, func(t *testing.T) {
			var before int
			for i := range 2 {
				s, _ := create(t, d, driver.Spec{})
				defer s.Destroy(t.Context())
				p := proctest.Start(t, s.Processes(), process.Spec{Shell: `exec perl -e '$| = 1; $n = 0; ` + take + ` print "$n\n"; sleep 600'`})
				n := proctest.Value(strconv.Atoi(proctest.Wait(t, p, process.Until{Match: `\d+`}).Match))(t)
				if n == 0 || i == 1 && n < before/2 {
					t.Errorf("sandbox %d gets %d; the one before has taken %d", i, n, before)
				}
				before = n
			}
		})
	}
}

// TestEachSandboxHasIDsOfItsOwn: they are in its record, and free again when it is gone; the next server knows them.
func TestEachSandboxHasIDsOfItsOwn(t *testing.T) {
	cfg := real(t)
	d := openReal(t, cfg)
	if drivertest.Lacks(t, d, container.LayerIDs) {
		return
	}
	uid := func(s *sandbox) uint32 {
		t.Helper()
		var st unix.Stat_t
		proctest.Must(t, unix.Stat(fmt.Sprintf("/proc/%d", s.container.PID), &st))
		var rec record
		proctest.Must(t, sandboxrecord.Read(s.dir(), &rec))
		if rec.UIDBase != st.Uid {
			t.Errorf("pid 1 belongs to %#x, and the record says %#x", st.Uid, rec.UIDBase)
		}
		return st.Uid
	}
	one, _ := create(t, d, driver.Spec{})
	other, _ := create(t, d, driver.Spec{})
	a, b := uid(one), uid(other)
	if a == b || a < firstIDs || b < firstIDs {
		t.Errorf("they have %#x and %#x", a, b)
	}
	proctest.Must(t, other.Stop(t.Context()))
	next := openReal(t, cfg)
	third, _ := create(t, next, driver.Spec{})
	if c := uid(third); c == a || c == b {
		t.Errorf("another server gives %#x, which a sandbox has", c)
	}
	gone := proctest.Value(next.get(t.Context(), string(one.id)))(t)
	proctest.Must(t, gone.Destroy(t.Context()))
	fourth, _ := create(t, next, driver.Spec{})
	if c := uid(fourth); c != a {
		t.Errorf("%#x was returned, and %#x is given", a, c)
	}
	if _, err := os.Stat(filepath.Join(cfg.Dir, string(one.id))); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestASandboxOfAnOlderVersionKeepsItsIDs: its record names the range that all had.
func TestASandboxOfAnOlderVersionKeepsItsIDs(t *testing.T) {
	cfg := real(t)
	d := openReal(t, cfg)
	if drivertest.Lacks(t, d, container.LayerIDs) {
		return
	}
	s, _ := create(t, d, driver.Spec{})
	if _, status := inShell(t, s, "", "echo kept > /root/file; chown 5:6 /root/file"); status != 0 {
		t.Fatal(status)
	}
	proctest.Must(t, s.Stop(t.Context()))
	var rec record
	proctest.Must(t, sandboxrecord.Read(s.dir(), &rec))
	rec.UIDBase = UIDBase
	proctest.Must(t, sandboxrecord.Write(s.dir(), &rec, true))
	old := proctest.Value(openReal(t, cfg).get(t.Context(), string(s.id)))(t)
	proctest.Must(t, old.Start(t.Context()))
	var st unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d", old.container.PID), &st); err != nil || st.Uid != UIDBase {
		t.Errorf("pid 1 belongs to %d, %v", st.Uid, err)
	}
	if out, _ := inShell(t, old, "", "cat /root/file; stat -c %u:%g /root/file"); out != "kept\n5:6" {
		t.Errorf("its file: %q", out)
	}
}
