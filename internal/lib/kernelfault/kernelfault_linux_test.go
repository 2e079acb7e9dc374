package kernelfault_test

import (
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/kernelfault"
	"github.com/tend-run/tend/internal/support/proctest"
)

func TestMain(m *testing.M) {
	kernelfault.Main(os.Environ())
	os.Exit(m.Run())
}

// A program outlives the test that listened to it. The next listener gets the same
// descriptor, and its calls are nobody else's.
func TestAClosedListenerTakesNoCallOfTheNextOne(t *testing.T) {
	for range 2 {
		cmd := proctest.Value(kernelfault.Command(kernelfault.World{Rules: []kernelfault.Rule{{Call: unix.SYS_CHDIR, Arg: -1}}}, "/bin/sh", "-c", "cd /tmp; exec sleep 1000"))(t)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		l := proctest.Value(kernelfault.Listen(cmd, cmd.Start))(t)
		t.Cleanup(func() {
			cmd.Process.Kill()
			cmd.Wait()
		})
		went, over := make(chan string, 1), make(chan bool)
		go func() {
			defer close(over)
			l.Each(func(call *kernelfault.Call) (held bool) {
				went <- call.Path(0)
				return false
			})
		}()
		if got := <-went; got != "/tmp" {
			t.Errorf("the call is for %q", got)
		}
		l.Close()
		<-over // though the program lives on
	}
}
