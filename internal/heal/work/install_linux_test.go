package work

import (
	"archive/zip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/scene"
	"github.com/tend-run/tend/sdk/go"
)

const module = "example.com/x"

// proxyOf makes a directory that go downloads a module from, and returns the path of its
// archive, without which it cannot.
func proxyOf(t *testing.T) (url, archive string) {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, module, "@v")
	scene.Must(t, os.MkdirAll(dir, 0o755))
	mod := []byte("module " + module + "\n")
	archive = filepath.Join(dir, "v1.0.0.zip")
	f := scene.Value(os.Create(archive))(t)
	z := zip.NewWriter(f)
	scene.Value(scene.Value(z.Create(module + "@v1.0.0/go.mod"))(t).Write(mod))(t)
	scene.Must(t, z.Close())
	scene.Must(t, f.Close())
	scene.Must(t, os.WriteFile(filepath.Join(dir, "v1.0.0.mod"), mod, 0o644))
	scene.Must(t, os.WriteFile(filepath.Join(dir, "v1.0.0.info"), []byte(`{"Version":"v1.0.0"}`), 0o644))
	return "file://" + root, archive
}

// What an attempt declares is installed by a rule, with the network that no command of a model
// has: once in an attempt, only if that has changed a manifest and the service fails, and it is
// taken back with the attempt. In a chat nothing is.
func TestAnAttemptInstallsOnce(t *testing.T) {
	url, archive := proxyOf(t)
	g := newGround(t, 0)
	w := g.w
	w.order.Service = "web"
	w.order.Rules.Env = map[string]string{"GOPROXY": url, "GOPATH": t.TempDir(), "GOCACHE": t.TempDir(), "GOFLAGS": "-modcacherw", "GOSUMDB": "off", "GOTOOLCHAIN": "local"}
	var notes []string
	w.says = func(text string) { notes = append(notes, text) }
	scene.Must(t, os.WriteFile(filepath.Join(g.root, "run.sh"), []byte(`
grep -qs '^`+module+` v1.0.0 h1:' go.sum || { echo 'go: `+module+`@v1.0.0: missing go.sum entry for go.mod file'; exit 1; }
echo 'it is up'
exec sleep 1000
`), 0o644))
	scene.Must(t, w.client.ApplyServices(t.Context(), tend.ServiceFile{Dir: g.root, Env: map[string]string{"PATH": w.path}, Text: []byte(
		"services:\n  web: {command: [sh, run.sh], restart: {max: 0}, startup: {log: it is up}}\n")}))
	scene.Must(t, w.client.StartServices(t.Context()))
	manifest := "module m\n\nrequire " + module + " v1.0.0\n"
	g.write("go.mod", manifest) // of the user

	restart := func(what string, h *hands, healthy bool, says string, installed int) {
		t.Helper()
		r, err := h.Restart(t.Context())
		if err != nil || r.Healthy != healthy || !strings.Contains(r.Message, says) || len(notes) != installed {
			t.Fatalf("%s: %+v, %v; notes %q", what, r, err, notes)
		}
	}
	attempt := func(n int) *hands { return &hands{ctx: t.Context(), w: w, try: n} }

	h := attempt(1)
	scene.Must(t, h.WriteFile("lib.js", []byte("mended\n")))
	restart("only a program was changed", h, false, "", 0)
	chat := attempt(0)
	scene.Must(t, chat.WriteFile("go.mod", []byte(manifest+"\n")))
	restart("in a chat", chat, false, "", 0)

	scene.Must(t, os.Rename(archive, archive+".away"))
	restart("it cannot be installed", h, false, "go-modules has not succeeded", 1)
	restart("and is not again", h, false, "go-modules has not succeeded", 1)
	if err := h.settle(t.Context(), []string{"go.mod"}); err == nil {
		t.Error("an attempt whose packages cannot be installed has not failed")
	}

	scene.Must(t, os.Rename(archive+".away", archive))
	h = attempt(1)
	restart("it is installed", h, true, "go-modules", 2)
	scene.Must(t, os.Remove(filepath.Join(g.root, "go.sum")))
	restart("it was installed once", h, false, "", 2)

	h = attempt(1)
	scene.Must(t, h.settle(t.Context(), []string{"lib.js"}))
	if len(notes) != 2 {
		t.Errorf("at the end of an attempt that has changed a program alone: %q", notes)
	}
	scene.Must(t, h.settle(t.Context(), []string{"go.mod"}))
	if !strings.Contains(h.said, "go mod download "+module) || len(notes) != 3 {
		t.Errorf("at the end it says %q; notes %q", h.said, notes)
	}
	restart("it was installed at the end", h, true, "", 3)

	scene.Value(w.project.Rollback(t.Context(), 1, true))(t)
	if _, err := os.Stat(filepath.Join(g.root, "go.sum")); err == nil {
		t.Error("what was installed was not taken back")
	}
}
