package sockdiag

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/tend-run/tend/internal/lib/netns"
	"github.com/tend-run/tend/internal/support/proctest"
)

// TestListenersOfAnotherNamespaceAreFound: they are found there and not here, and no thread
// that others use is left there.
func TestListenersOfAnotherNamespaceAreFound(t *testing.T) {
	proctest.Root(t)
	holder := exec.Command("sleep", "1000")
	holder.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	proctest.Must(t, holder.Start())
	t.Cleanup(func() {
		_ = holder.Process.Kill()
		_ = holder.Wait() // it was killed
	})
	path := fmt.Sprintf("/proc/%d/ns/net", holder.Process.Pid)
	ns := proctest.Value(os.Open(path))(t)
	defer ns.Close()
	var l net.Listener
	proctest.Must(t, netns.Do(ns, func() (err error) {
		l, err = net.Listen("tcp", "0.0.0.0:0")
		return err
	}))
	defer l.Close()
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	there := proctest.Value(os.Readlink(path))(t)

	for range 20 {
		c := proctest.Value(OpenIn(path))(t)
		all := proctest.Value(c.Listening(0))(t)
		if len(all) != 1 || all[0].Local.Port() != port || all[0].State != Listen || all[0].Inode == 0 {
			t.Errorf("%+v listen there; want port %d alone", all, port)
		}
		proctest.Must(t, c.Close())
	}
	here := proctest.Value(open(t).Listening(port))(t)
	if slices.ContainsFunc(here, func(s Socket) bool { return s.Local.Addr().IsUnspecified() && s.Local.Addr().Is4() }) {
		t.Errorf("what listens there is found here: %+v", here)
	}
	for _, task := range proctest.Value(filepath.Glob("/proc/self/task/*/ns/net"))(t) {
		if at, err := os.Readlink(task); err == nil && at == there {
			t.Errorf("%s is still there", task)
		}
	}
	if _, err := OpenIn("/proc/self/ns/nothing"); err == nil {
		t.Error("a namespace that is not there was entered")
	}
}
