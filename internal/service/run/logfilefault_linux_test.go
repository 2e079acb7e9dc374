package run_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/service/supervisor"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
)

// TestTheFileOfAServiceThatCouldNotBeWritten has all runs from the first on, each line with its time, however
// many there are in a record.
func TestTheFileOfAServiceThatCouldNotBeWritten(t *testing.T) {
	m := testkeeper.New(t)
	dir, place := t.TempDir(), t.TempDir()
	out, flag := filepath.Join(place, "web.log"), filepath.Join(place, "flag")
	proctest.Must(t, os.Mkdir(out, 0o700))
	declared := fmt.Sprintf(`  web: {command: 'printf first; sleep 0.1; exit 1', restart: {max: 2, within: 1h, delay: 10ms}, log: {file: %[1]s, date: true}}
  many: {command: 'echo before; while ! [ -e %[2]s ]; do sleep 0.02; done; yes "" | head -n 200000; rm %[2]s; exec sleep 1000', log: {file: %[3]s, date: true, rotate: 0}}
`, out, flag, filepath.Join(place, "many.log"))
	l := live(t, m, dir)
	l.declare(declared)
	l.up()
	many := filepath.Join(place, "many.log")
	proctest.Eventually(t, "a line is there", func() bool { return strings.Contains(logged(t, many, 0), "before\n") })
	proctest.Must(t, os.Rename(many, many+".aside"))
	proctest.Must(t, os.Mkdir(many, 0o700))
	l.phase("web", supervisor.Failed)
	l.stop()
	proctest.Must(t, os.WriteFile(flag, nil, 0o600))
	proctest.Eventually(t, "all is said", func() bool { _, err := os.Stat(flag); return os.IsNotExist(err) })
	l, record := live(t, m, dir), filepath.Join(dir, "many.log")
	proctest.Eventually(t, "it has lines to write", func() bool {
		info, err := os.Stat(record)
		return err == nil && info.Size() > 1<<20
	})
	l.stop()
	proctest.Must(t, os.Remove(out))
	proctest.Must(t, os.Remove(many))
	proctest.Must(t, os.Rename(many+".aside", many))
	l = live(t, m, dir)
	proctest.Eventually(t, "all runs are there", func() bool { return strings.Count(logged(t, out, 0), "first\n") == 3 })
	if got := logged(t, out, 0); strings.Count(got, "\n") != 3 {
		t.Errorf("of three runs with a line each it has %q", got)
	}
	proctest.Eventually(t, "all lines are there", func() bool { return strings.Count(logged(t, many, 0), "\n") >= 200001 })
	if got := logged(t, many, 0); strings.Count(got, "\n") != 200001 || strings.Count(got, "before") != 1 {
		t.Errorf("it has %d lines of 200001, and %d times the first", strings.Count(got, "\n"), strings.Count(got, "before"))
	}
	l.end(m, "many")
}

// TestAFullFileIsRotated where it leads elsewhere, and where a rotation was cut short: what that has moved stays.
func TestAFullFileIsRotated(t *testing.T) {
	m := testkeeper.New(t)
	place := t.TempDir()
	out := filepath.Join(place, "web.log")
	proctest.Must(t, os.Symlink(filepath.Join(place, "far"), out))
	for name, text := range map[string]string{"far": strings.Repeat("x", 1000), "web.log.2": "newer", "web.log.3": "older"} {
		proctest.Must(t, os.WriteFile(filepath.Join(place, name), []byte(text), 0o600))
	}
	l := live(t, m, t.TempDir())
	l.declare(fmt.Sprintf("  web: {command: 'seq 50; exec sleep 1000', log: {file: %s, rotate: 1KiB, keep: 3}}\n", out))
	l.up()
	proctest.Eventually(t, "the last line is there", func() bool { return strings.HasSuffix(logged(t, out, 0), "\n50\n") })
	var lines strings.Builder
	for n := range 50 {
		fmt.Fprintln(&lines, n+1)
	}
	if got := logged(t, out, 0); got != lines.String() {
		t.Errorf("the newest has %q", got)
	}
	if got := logged(t, out, 3); got != "oldernewer"+strings.Repeat("x", 1000)+lines.String() {
		t.Errorf("of older, newer, 1000 and 50 lines they have %q", got)
	}
	l.end(m, "web")
}
