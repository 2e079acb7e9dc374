package guard

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

// What a person may allow is said to be so, and nothing else is; and one who has allowed
// something gets neither keys nor what is tend's by it.
func TestWhatAPersonMayAllow(t *testing.T) {
	g, root := project(t)
	proctest.Must(t, os.Symlink("../outside", filepath.Join(root, "out")))
	proctest.Must(t, os.Symlink(".git/config", filepath.Join(root, "innocent.txt")))
	proctest.Must(t, os.Link(filepath.Join(root, "id_rsa"), filepath.Join(root, "src/key.txt")))
	hidden := filepath.Join(filepath.Dir(root), "state")
	proctest.Must(t, os.MkdirAll(filepath.Join(hidden, "deep"), 0o700))
	proctest.Must(t, os.WriteFile(filepath.Join(hidden, "deep", "key"), []byte("key"), 0o600))
	free := proctest.Value(Open(Config{Root: "/", Hidden: []string{"/proc", hidden}, Allowed: true}))(t)
	defer free.Close()
	for _, c := range []struct {
		path       string
		write, ask bool // it may be asked for
		free       bool // and is allowed then
	}{
		{"engine/core.js", true, true, true},
		{"tend.yaml", true, true, true},
		{".gitattributes", true, true, true},
		{"../outside/secret.txt", false, true, true},
		{"out/secret.txt", true, true, true},
		{"/etc/hostname", false, true, true},
		{"/proc/self/environ", false, true, false},
		{hidden + "/deep/key", false, true, false},
		{hidden, false, true, false},
		{".git/config", false, false, false},
		{"innocent.txt", false, false, false},
		{".tend/state", true, false, false},
		{"cert.pem", false, false, false},
		{"id_rsa", true, false, false},
		{".env", true, false, true}, // its names are shown; to write is refused elsewhere
		{"src/key.txt", false, false, false},
	} {
		_, err := g.Check(c.path, c.write)
		if err == nil || errors.Is(err, ErrAsk) != c.ask {
			t.Errorf("%s: %v", c.path, err)
		}
		if _, ok := errors.AsType[*DeniedError](err); !ok {
			t.Errorf("%s: %T is no DeniedError", c.path, err)
		}
		full := c.path
		if !filepath.IsAbs(full) {
			full = filepath.Join(root, full)
		}
		if _, err := free.Check(full, false); (err == nil) != c.free {
			t.Errorf("%s, once it is allowed: %v", full, err)
		}
	}
	if err := free.WriteFile(filepath.Join(root, ".env"), []byte("x")); err == nil {
		t.Error("values of variables can be replaced")
	}
	// A link that was put in the way since leads to what nobody has allowed.
	for _, name := range []string{"out/secret.txt", "out/new.txt"} {
		if data, _, err := free.ReadFile(filepath.Join(root, name), 0, 100); err == nil {
			t.Errorf("through a link, %s is %q", name, data)
		}
		if err := free.WriteFile(filepath.Join(root, name), []byte("x")); err == nil {
			t.Errorf("%s is written through a link", name)
		}
	}
	if _, _, err := free.List(filepath.Join(root, "out"), 10); err == nil {
		t.Error("a directory is listed through a link")
	}
	if entries, _, err := free.List("/", 1000); err != nil || len(entries) == 0 {
		t.Errorf("the top has %d names, %v", len(entries), err)
	}
}
