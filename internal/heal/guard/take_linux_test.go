package guard

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/tend-run/tend/internal/lib/exchange"
	"github.com/tend-run/tend/internal/support/proctest"
)

// TestWhatIsTakenOverOfACommand: no path, kind or mode of it gets past a rule.
func TestWhatIsTakenOverOfACommand(t *testing.T) {
	g, root := project(t)
	for name, to := range map[string]string{"link.js": "src/a.js", "dirlink": "src", "out": "../outside", "e": ".env"} {
		proctest.Must(t, os.Symlink(to, filepath.Join(root, name)))
	}
	proctest.Must(t, os.Link(filepath.Join(root, "engine/core.js"), filepath.Join(root, "src/core.js")))
	before := map[string]string{}
	for _, name := range []string{".env", "config/.env.local", ".git/config", "sub/.git", ".tend/state", "id_rsa", "cert.pem", ".npmrc", ".gitattributes", "tend.yaml", "data/orders.json", "engine/core.js", "src/a.js", "../outside/secret.txt"} {
		before[name] = string(proctest.Value(os.ReadFile(filepath.Join(root, name)))(t))
	}
	for _, name := range []string{
		".env", "config/.env.local", ".ENV", ".git/config", ".git/hooks/post-commit", "sub/.git", ".tend/state", ".tend/playbooks/x.yaml", "id_rsa", "new.pem", ".npmrc", ".gitattributes", "tend.yaml",
		"data/orders.json", "data/new.json", "engine/core.js", "ENGINE/core.js", "src/core.js", "link.js", "dirlink/a.js", "out/secret.txt", "../outside/secret.txt", "/etc/tend-was-here", "src", ".", "", "e", "src/../../outside/x", "a\x00b",
	} {
		was := ""
		if data, err := os.ReadFile(filepath.Join(root, name)); err == nil {
			was = sumOf(data)
		}
		for what, do := range map[string]func(string) error{
			"take":   func(n string) error { return g.Replace(n, []byte("x"), 0o644, was) },
			"remove": func(n string) error { return g.Remove(n, was) },
			"make":   g.MakeDir,
		} {
			err := do(name)
			if what == "make" && (name == "src" || name == "." || err == nil && name == "dirlink") {
				continue // it is there
			}
			if err == nil && what == "remove" { // of nothing
				if _, lerr := os.Lstat(filepath.Join(root, name)); errors.Is(lerr, fs.ErrNotExist) {
					continue
				}
			}
			if err == nil {
				t.Errorf("%s %q: no error", what, name)
			}
		}
	}
	for name, text := range before {
		if got, err := os.ReadFile(filepath.Join(root, name)); err != nil || string(got) != text {
			t.Errorf("%s is %q, %v", name, got, err)
		}
	}
	for _, name := range []string{"link.js", "dirlink", "out", "e"} {
		if _, err := os.Readlink(filepath.Join(root, name)); err != nil {
			t.Error(err)
		}
	}
	// What no rule is about.
	big := make([]byte, MaxFile+1)
	proctest.Must(t, g.Replace("gen/deep/big", big, 0o755|fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky, ""))
	if info := proctest.Value(os.Stat(filepath.Join(root, "gen/deep/big")))(t); info.Mode() != 0o755 || info.Size() != int64(len(big)) {
		t.Errorf("%v %d", info.Mode(), info.Size())
	}
	proctest.Must(t, g.MakeDir("gen/empty/one"))
	proctest.Must(t, g.Remove("gen/empty/one", ""))
	if err := g.Remove("gen/deep", ""); err == nil {
		t.Error("a directory with something in it was removed")
	}
	for what, err := range map[string]error{
		"replace":              g.Replace("gen/deep/big", nil, 0, sumOf(nil)),
		"remove":               g.Remove("gen/deep/big", sumOf(nil)),
		"replace what is new":  g.Replace("gen/deep/big", nil, 0, ""),
		"replace what is gone": g.Replace("gen/deep/gone", nil, 0, sumOf(nil)),
	} {
		if !errors.Is(err, exchange.ErrChanged) {
			t.Errorf("%s: %v", what, err)
		}
	}
	proctest.Must(t, g.Remove("gen/deep/big", sumOf(big)))
	proctest.Must(t, g.Remove("gen/deep", ""))
	proctest.Must(t, g.Remove("not/there", ""))
}
