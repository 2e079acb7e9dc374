package launch

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

// The test binary plays the parent that starts a server, with the command line of the
// case, and the server, which says how it went.
const (
	parentVariable = "TEND_TEST_PARENT"
	serverVariable = "TEND_TEST_SERVER"
)

func TestMain(m *testing.M) {
	switch dir := os.Getenv(parentVariable); {
	case os.Getenv(serverVariable) != "":
		fmt.Print(HoldServer(dir))
		os.Exit(0)
	case dir != "":
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), serverVariable+"=1")
		out, err := cmd.CombinedOutput()
		fmt.Print(string(out))
		if err != nil {
			fmt.Print(err)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A server whose anchor was killed may come to its lock when all has ended.
func TestOnlyTheAnchorsChildBecomesTheServer(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	proctest.Must(t, os.Symlink(dir, link))
	for _, c := range []struct {
		parent string
		argv   []string
		served bool
	}{
		{"its anchor", []string{"tend-keeper", "anchor", "--state-dir", dir, "--listeners", "1"}, true},
		{"its anchor, which has another path", []string{"tend-keeper", "anchor", "--state-dir", link, "--listeners", "1"}, true},
		{"another daemon's anchor", []string{"tend-keeper", "anchor", "--state-dir", t.TempDir()}, false},
		{"its launcher", []string{"tend-keeper", "launcher", "--state-dir", dir}, false},
		{"anybody", []string{"init"}, false},
	} {
		t.Run(c.parent, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
			cmd.Args = c.argv
			cmd.Env = append(os.Environ(), parentVariable+"="+dir)
			if got := string(proctest.Value(cmd.Output())(t)); (got == "<nil>") != c.served {
				t.Errorf("it says %q", got)
			}
		})
	}
}
