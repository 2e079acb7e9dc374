package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

// TestADaemonOutlivesTheReaderOfItsLog: a log that nobody reads ends no role, whatever
// it has to say, and the processes begin with the default action of SIGPIPE all the same.
func TestADaemonOutlivesTheReaderOfItsLog(t *testing.T) {
	state := t.TempDir()
	daemon := exec.Command(filepath.Join(binaries, "tend"), "--state-dir", state, "serve", "--listen", "none")
	r, w, err := os.Pipe()
	proctest.Must(t, err)
	daemon.Stdout, daemon.Stderr = w, w
	proctest.Must(t, daemon.Start())
	r.Close()
	w.Close()
	defer endDaemon(t, state)
	var now map[string]int
	answers := func() bool {
		now = roles(state, "")
		return now["server"] > 0 && now["keeper"] > 0 && now["anchor"] > 0
	}
	proctest.Eventually(t, "a daemon without a reader of its log answers", answers)
	tendOn(t, state, "run", "-d", "-i", "--name", "held", "--", "cat")
	// The end of each is written into the log by the one that starts it again.
	for _, role := range []string{"server", "keeper", "anchor"} {
		was := now[role]
		proctest.Must(t, syscall.Kill(was, syscall.SIGKILL))
		proctest.Eventually(t, "there is another "+role, func() bool { return answers() && now[role] != was })
	}
	tendOn(t, state, "input", "held", "--eof", "still here")
	tendOn(t, state, "wait", "held")
	if out := tendOn(t, state, "logs", "held"); out != "still here\n" {
		t.Errorf("the process writes %q", out)
	}
	cmd := exec.Command(filepath.Join(binaries, "tend"), "--state-dir", state, "run", "--", "sh", "-c", "kill -s PIPE $$; echo it is ignored")
	if out, _ := cmd.Output(); cmd.ProcessState.ExitCode() != 128+int(syscall.SIGPIPE) {
		t.Errorf("a process that gets SIGPIPE ends with %d, and says %q", cmd.ProcessState.ExitCode(), out)
	}
	tendOn(t, state, "shutdown")
	proctest.Must(t, daemon.Wait())
}
