package launch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

func TestAStateDirectoryThatOthersMayWriteToIsRefused(t *testing.T) {
	dir := func(mode os.FileMode, sub string) string {
		d := t.TempDir()
		at := filepath.Join(d, sub)
		proctest.Must(t, os.MkdirAll(at, 0o700))
		proctest.Must(t, os.Chmod(at, mode))
		return d
	}
	for name, c := range map[string]struct {
		dir  string
		says string
	}{
		"there is none":             {filepath.Join(t.TempDir(), "none"), ""},
		"one's own":                 {dir(0o700, ""), ""},
		"one that others may read":  {dir(0o755, ""), ""},
		"one for the group":         {dir(0o770, ""), "chmod go-w"},
		"one for everybody":         {dir(0o777, ""), "chmod go-w"},
		"its spool for everybody":   {dir(0o777, "spool"), "spool"},
		"its sockets for the group": {dir(0o770, "run"), "run"},
	} {
		err := Owned(c.dir)
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v; want %q", name, err, c.says)
		}
	}
	proctest.Root(t)
	for _, sub := range []string{"", "run", "spool"} {
		d := dir(0o700, sub)
		proctest.Must(t, os.Chown(filepath.Join(d, sub), 12345, -1))
		if err := Owned(d); err == nil || !strings.Contains(err.Error(), "belongs to uid 12345") || !strings.Contains(err.Error(), "--state-dir") {
			t.Errorf("%q of another user: %v", sub, err)
		}
		if err := Usable(d); err == nil {
			t.Errorf("%q of another user is used", sub)
		}
	}
	above := dir(0o700, "state")
	link := filepath.Join(above, "link")
	proctest.Must(t, os.Symlink(t.TempDir(), link))
	proctest.Must(t, os.Lchown(link, 12345, -1))
	if err := Owned(link); err == nil || !strings.Contains(err.Error(), "belongs to uid 12345") {
		t.Errorf("by a link of another user: %v", err)
	}
	proctest.Must(t, os.Chown(above, 12345, -1))
	if err := Owned(filepath.Join(above, "state")); err == nil || !strings.Contains(err.Error(), above+" belongs to uid 12345") {
		t.Errorf("below a directory of another user: %v", err)
	}
}
