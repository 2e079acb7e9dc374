package files

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/kernelfault"
	"github.com/tend-run/tend/internal/support/proctest"
)

// init is instead of a call in TestMain, which other systems have, too.
func init() { kernelfault.Main(os.Environ()) }

// A file system in user space may answer EINTR to any call while a signal is pending, and
// Go's runtime sends signals at any time.
func TestCallsThatASignalInterruptsAreRepeated(t *testing.T) {
	proctest.Root(t)
	var world kernelfault.World
	for _, call := range []uintptr{
		unix.SYS_UNLINKAT, unix.SYS_LINKAT, unix.SYS_OPENAT2, unix.SYS_FSTATFS, unix.SYS_UTIMENSAT, unix.SYS_STATX, unix.SYS_INOTIFY_ADD_WATCH,
		unix.SYS_FSETXATTR, unix.SYS_FREMOVEXATTR, unix.SYS_FLISTXATTR, unix.SYS_LLISTXATTR, unix.SYS_LGETXATTR, unix.SYS_LISTXATTR, unix.SYS_GETXATTR,
	} {
		world.Rules = append(world.Rules, kernelfault.Rule{Call: call, Arg: -1})
	}
	cmd := proctest.Value(kernelfault.Command(world, proctest.Value(os.Executable())(t), "-test.timeout=5m",
		"-test.run=^(TestArchive|TestCompose|TestMetadataIsReplacedWithEachWrite|TestReplaceFollowsLinksAndRefusesWhatIsNoFile|TestLinksOfProcAreNotFollowed|TestWatchInside|TestNoPathLeadsOutOfARoot)$"))(t)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	l := proctest.Value(kernelfault.Listen(cmd, cmd.Start))(t)
	interrupted := map[string]int{}
	listened := make(chan struct{})
	go func() {
		defer close(listened)
		calls := 0
		l.Each(func(c *kernelfault.Call) (held bool) {
			key := fmt.Sprint(c.PID, " ", c.Call)
			if interrupted[key]++; interrupted[key]%2 == 0 {
				return false
			}
			calls++
			l.Fail(c, unix.EINTR)
			return true
		})
		t.Logf("%d calls were interrupted", calls)
	}()
	err := cmd.Wait()
	<-listened
	l.Close()
	if err != nil {
		t.Errorf("%v\n%s", err, &out)
	}
}
