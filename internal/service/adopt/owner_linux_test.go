package adopt

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/support/proctest"
)

// TestAPIDFileOfAnotherIsNotObeyed: it would lead tend to end a process of root's that its writer
// may not end.
func TestAPIDFileOfAnotherIsNotObeyed(t *testing.T) {
	proctest.Root(t)
	const another = 65534
	g, pid := guard(t), sleeper(t)
	for what, c := range map[string]struct {
		spoil func(dir, file string) error
		why   string
	}{
		"root's":                              {func(string, string) error { return nil }, ""},
		"root's, in a directory such as /tmp": {func(dir, _ string) error { return os.Chmod(dir, 0o777|os.ModeSticky) }, ""},
		"another's":                           {func(_, file string) error { return os.Chown(file, another, another) }, "belongs to uid 65534"},
		"that all may write":                  {func(_, file string) error { return os.Chmod(file, 0o666) }, "everybody"},
		"in a directory of another":           {func(dir, _ string) error { return os.Chown(dir, another, another) }, "belongs to uid 65534"},
		"in a directory that all may write":   {func(dir, _ string) error { return os.Chmod(dir, 0o777) }, "everybody"},
		"by a link of another": {func(dir, file string) error {
			if err := os.Rename(file, filepath.Join(filepath.Dir(dir), "real")); err != nil {
				return err
			}
			if err := os.Symlink("../real", file); err != nil {
				return err
			}
			return os.Lchown(file, another, another)
		}, "belongs to uid 65534"},
	} {
		dir := filepath.Join(proctest.Value(filepath.EvalSymlinks(t.TempDir()))(t), "run")
		proctest.Must(t, os.Mkdir(dir, 0o755))
		file := filepath.Join(dir, "web.pid")
		proctest.Must(t, os.WriteFile(file, []byte(strconv.Itoa(pid)+"\n"), 0o644))
		proctest.Must(t, c.spoil(dir, file))
		a, err := Find(t.Context(), &config.Adopt{PIDFile: file}, g)
		switch {
		case c.why == "" && (err != nil || a == nil || a.PID != pid):
			t.Errorf("a pid file %s: %+v, %v", what, a, err)
		case c.why != "" && (a != nil || err == nil || !strings.Contains(err.Error(), c.why)):
			t.Errorf("a pid file %s: %+v, %v; want %q", what, a, err, c.why)
		}
	}
}
