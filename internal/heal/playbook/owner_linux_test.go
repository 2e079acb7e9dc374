package playbook

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

// TestPlaybooksOfOthersAreRefused: what a playbook says is done with the rights of who loads it.
func TestPlaybooksOfOthersAreRefused(t *testing.T) {
	proctest.Root(t)
	const another = 65534
	for what, c := range map[string]struct {
		spoil func(dir, file string) error
		why   string
	}{
		"root's":                    {func(string, string) error { return nil }, ""},
		"another's":                 {func(_, file string) error { return os.Chown(file, another, another) }, "belongs to uid 65534"},
		"that all may write":        {func(_, file string) error { return os.Chmod(file, 0o666) }, "everybody"},
		"in a directory of another": {func(dir, _ string) error { return os.Chown(dir, another, another) }, "belongs to uid 65534"},
		"in another's project":      {func(dir, _ string) error { return os.Chown(filepath.Dir(filepath.Dir(dir)), another, another) }, "belongs to uid 65534"},
		"where all may put one":     {func(dir, _ string) error { return os.Chmod(dir, 0o777|os.ModeSticky) }, "everybody"},
		"by a link to one of another's": {func(_, file string) error {
			other := filepath.Join(filepath.Dir(filepath.Dir(file)), "other.yaml")
			if err := os.Rename(file, other); err != nil {
				return err
			}
			if err := os.Chown(other, another, another); err != nil {
				return err
			}
			return os.Symlink(other, file)
		}, "belongs to uid 65534"},
	} {
		dir := filepath.Join(proctest.Value(filepath.EvalSymlinks(t.TempDir()))(t), "app", ".tend", "playbooks")
		proctest.Must(t, os.MkdirAll(dir, 0o755))
		file := filepath.Join(dir, "fix.yaml")
		proctest.Must(t, os.WriteFile(file, []byte("why: x\nwhen: {signal: [exit]}\ndo:\n  - run: [touch, ran]\n"), 0o644))
		proctest.Must(t, c.spoil(dir, file))
		_, err := Load(dir)
		if (err == nil) != (c.why == "") || err != nil && !strings.Contains(err.Error(), c.why) {
			t.Errorf("a playbook %s: %v; want %q", what, err, c.why)
		}
	}
}
