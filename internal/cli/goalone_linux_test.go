package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

// TestATendBuiltByGoAloneKeepsItsPromise: without the small binary inside or
// beside it, as after `go install`, tend plays the roles itself. Each role may
// die, and the file may be gone, as after `go run`.
func TestATendBuiltByGoAloneKeepsItsPromise(t *testing.T) {
	dir := t.TempDir()
	state := filepath.Join(dir, "state")
	output := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Env = append(os.Environ(), "TEND_STATE_DIR="+state)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s %s: %v", name, strings.Join(args, " "), err)
		}
		return string(out)
	}
	t.Cleanup(func() { endDaemon(t, state) })
	// The daemon that this starts outlives the program, which is removed as go run does it.
	gone := filepath.Join(dir, "tend")
	proctest.Must(t, os.Link(bare, gone))
	if got := output(gone, "run", "--", "echo", "hi"); got != "hi\n" {
		t.Fatalf("tend run -- echo hi printed %q", got)
	}
	proctest.Must(t, os.Remove(gone))
	tend := filepath.Join(binaries, "tend")
	// One line for each line of input, and a status of its own at its end.
	output(tend, "run", "-d", "-i", "--name", "echo", "--", "sh", "-c", "while read line; do echo $line; done; exit 7")
	want := ""
	for _, role := range []string{"server", "keeper", "anchor", "server", "keeper", "anchor"} {
		pid := roles(state, "")[role]
		if pid == 0 {
			t.Fatalf("the daemon has no %s: %v", role, roles(state, ""))
		}
		proctest.Must(t, kill(pid))
		proctest.Eventually(t, "another "+role+" comes", func() bool {
			now := roles(state, "")[role]
			return now != 0 && now != pid
		})
		line := exec.CommandContext(t.Context(), tend, "--state-dir", state, "input", "echo")
		line.Stdin = strings.NewReader(role + "\n")
		if out, err := line.CombinedOutput(); err != nil {
			t.Fatalf("input after the death of the %s: %v\n%s", role, err, out)
		}
		want += role + "\n"
	}
	output(tend, "input", "--eof", "--no-newline", "echo", "")
	ended := exec.CommandContext(t.Context(), tend, "--state-dir", state, "wait", "echo")
	if _, err := ended.Output(); err == nil || ended.ProcessState.ExitCode() != 7 {
		t.Errorf("tend wait ends with %v, want the status 7", err)
	}
	if got := output(tend, "logs", "echo"); got != want {
		t.Errorf("the output is %q, want %q", got, want)
	}
}

func kill(pid int) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Kill()
}
