//go:build linux

package raw

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testbin"
	"github.com/tend-run/tend/internal/support/testdaemon"
)

// patience bounds waits for things that must happen; it is no measurement.
const patience = 2 * time.Minute

// bin is the tend under test, and shared the daemon of all tests that leave
// the roles alone.
var (
	bin    string
	shared *daemon
)

func TestMain(m *testing.M) {
	if os.Getenv("TEND_PLAIN_LOGIN") == "" {
		script := "../../../../scripts/plain-login"
		fmt.Fprintln(os.Stderr, syscall.Exec(script, append([]string{script}, os.Args...), os.Environ()))
		os.Exit(1)
	}
	bin = os.Getenv("TEND_BIN") // any tend can be under test
	var build []testbin.Variant
	if bin == "" {
		build = append(build, testbin.Released)
	}
	os.Exit(testbin.Main(func(dir string) int {
		if bin == "" {
			bin = testbin.Released.Tend(dir)
		}
		d, err := testdaemon.Start(config(filepath.Join(dir, "shared")))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		shared = &daemon{d}
		status := m.Run()
		if status != 0 {
			fmt.Fprintf(os.Stderr, "log of the shared daemon:\n%s", shared.Log())
		}
		if err := shared.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "the shared daemon:", err)
			return 1
		}
		return status
	}, build...))
}

type daemon struct{ *testdaemon.Daemon }

// own starts a daemon for one test. through is a command that starts the command
// in its arguments.
func own(t *testing.T, through ...string) *daemon {
	t.Helper()
	return &daemon{testdaemon.Serve(t, config(t.TempDir(), through...))}
}

func config(dir string, through ...string) testdaemon.Config {
	return testdaemon.Config{Command: append(through, bin), Dir: dir, Flags: []string{"--default-workdir", dir}}
}

// kill9 ends a role with SIGKILL and waits until another has its place.
func (d *daemon) kill9(t *testing.T, role string) {
	t.Helper()
	proctest.Must(t, d.Replace(t.Context(), role))
}

// get asks the daemon for a path.
func (d *daemon) get(t *testing.T, path string, header ...string) (int, string) {
	t.Helper()
	return d.Ask(t, http.MethodGet, path, "", header...)
}

// alive reports whether a process runs. A zombie does not.
func alive(pid int) bool {
	stat, ok := procfs.ReadStat(pid)
	return ok && !stat.Dead()
}

// file waits until a workload has written a file, and returns its text.
func file(t *testing.T, path string) string {
	t.Helper()
	var text []byte
	proctest.Eventually(t, path, func() bool {
		text, _ = os.ReadFile(path)
		return len(text) > 0
	})
	return strings.TrimSpace(string(text))
}
