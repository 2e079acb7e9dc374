package work

import (
	"archive/zip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/heal/view"
	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/sdk/go"
)

const module = "example.com/x"

// proxyOf makes a directory that go downloads a module from, and returns the path of its
// archive, without which it cannot.
func proxyOf(t *testing.T) (url, archive string) {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, module, "@v")
	proctest.Must(t, os.MkdirAll(dir, 0o755))
	mod := []byte("module " + module + "\n")
	archive = filepath.Join(dir, "v1.0.0.zip")
	f := proctest.Value(os.Create(archive))(t)
	z := zip.NewWriter(f)
	proctest.Value(proctest.Value(z.Create(module + "@v1.0.0/go.mod"))(t).Write(mod))(t)
	proctest.Must(t, z.Close())
	proctest.Must(t, f.Close())
	proctest.Must(t, os.WriteFile(filepath.Join(dir, "v1.0.0.mod"), mod, 0o644))
	proctest.Must(t, os.WriteFile(filepath.Join(dir, "v1.0.0.info"), []byte(`{"Version":"v1.0.0"}`), 0o644))
	return "file://" + root, archive
}

// What an attempt declares is installed by a rule, with the network that no view has: once in an
// attempt, only if that has changed a manifest and the service fails in a view, and it is taken back
// with the attempt. Of an attempt that declares nothing new nothing is the project's before its end.
func TestAnAttemptInstallsOnce(t *testing.T) {
	url, archive := proxyOf(t)
	g := newGround(t, 0)
	w := g.w
	w.order.Service = "web"
	w.order.Rules.Env = map[string]string{"GOPROXY": url, "GOPATH": t.TempDir(), "GOCACHE": t.TempDir(), "GOFLAGS": "-modcacherw", "GOSUMDB": "off", "GOTOOLCHAIN": "local"}
	w.order.Rules.Command.Argv, w.order.Rules.Startup = []string{"sh", "run.sh"}, &config.Probe{Log: "it is up"}
	var notes []string
	w.says = func(text string) { notes = append(notes, text) }
	const run = `
grep -qs '^` + module + ` v1.0.0 h1:' go.sum || { echo 'go: ` + module + `@v1.0.0: missing go.sum entry for go.mod file'; exit 1; }
echo 'it is up'
exec sleep 1000
`
	g.write("run.sh", run)
	proctest.Must(t, w.client.ApplyServices(t.Context(), tend.ServiceFile{Dir: g.root, Env: map[string]string{"PATH": w.path}, Text: []byte(
		"services:\n  web: {command: [sh, run.sh], restart: {max: 0}, startup: {log: it is up}}\n")}))
	proctest.Must(t, w.client.StartServices(t.Context()))
	manifest := "module m\n\nrequire " + module + " v1.0.0\n"
	g.write("go.mod", manifest) // of the user

	restart := func(what string, h *hands, healthy bool, says string, installed int) {
		t.Helper()
		r, err := h.Restart(t.Context())
		if err != nil || r.Healthy != healthy || !strings.Contains(r.Message, says) || len(notes) != installed {
			t.Fatalf("%s: %+v, %v; notes %q", what, r, err, notes)
		}
	}
	attempt := func() *hands { return &hands{ctx: t.Context(), w: w, try: 1, set: &view.Set{}} }

	h := attempt()
	proctest.Must(t, h.WriteFile("lib.js", []byte("mended\n")))
	restart("only a program was changed", h, false, "", 0)
	if err := h.settle(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "missing go.sum entry") {
		t.Errorf("at its end: %v", err)
	}
	if got := g.read("lib.js"); got == "mended\n" {
		t.Error("what did not help is in the project")
	}
	chat := &hands{ctx: t.Context(), w: w}
	proctest.Must(t, chat.WriteFile("go.mod", []byte(manifest+"\n")))
	restart("in a chat", chat, false, "", 0)

	h = attempt()
	proctest.Must(t, h.WriteFile("go.mod", []byte(manifest)))
	proctest.Must(t, os.Rename(archive, archive+".away"))
	restart("it cannot be installed", h, false, "go-modules has not succeeded", 1)
	restart("and is not again", h, false, "go-modules has not succeeded", 1)
	if err := h.settle(t.Context(), ""); err == nil {
		t.Error("an attempt whose packages cannot be installed has not failed")
	}

	proctest.Must(t, os.Rename(archive+".away", archive))
	h = attempt()
	proctest.Must(t, h.WriteFile("go.mod", []byte(manifest+"\n\n")))
	restart("it is installed", h, true, "go-modules", 2)
	proctest.Must(t, os.Remove(filepath.Join(g.root, "go.sum")))
	restart("it was installed once", h, false, "", 2)

	h = attempt()
	proctest.Must(t, h.WriteFile("go.mod", []byte(manifest)))
	proctest.Must(t, h.WriteFile("package.json", []byte(`{"scripts": {"postinstall": "touch pwned"}}`)))
	if r, err := h.Restart(t.Context()); err == nil || !strings.Contains(err.Error(), "its script postinstall is new") || len(notes) != 2 {
		t.Errorf("with a script of its own: %+v, %v; notes %q", r, err, notes)
	}

	h = attempt()
	proctest.Must(t, h.WriteFile("package-lock.json", []byte(`{"packages": {"node_modules/x": {"resolved": "https://thief.example/x.tgz"}}}`)))
	if r, err := h.Restart(t.Context()); err == nil || !strings.Contains(err.Error(), "its address thief.example:443 is new") ||
		len(notes) != 2 {
		t.Errorf("from an address of its own: %+v, %v; notes %q", r, err, notes)
	}

	h = attempt()
	proctest.Must(t, h.WriteFile("go.mod", []byte(manifest)))
	proctest.Must(t, h.WriteFile("clean.js", []byte("mended\n")))
	proctest.Must(t, h.WriteFile("run.sh", []byte(strings.Replace(run, "grep",
		"[ -e "+g.root+"/.git ] || exit 9; echo x > "+g.root+"/ran; grep", 1))))
	restart("in a view", h, true, "go-modules", 3)
	if g.read("clean.js") == "mended\n" || g.read("ran") != "none" {
		t.Error("what is not proved is the project's, or ran there")
	}
	proctest.Must(t, os.Remove(filepath.Join(g.root, "go.sum")))

	h = attempt()
	proctest.Must(t, h.WriteFile("go.mod", []byte(manifest)))
	proctest.Must(t, h.settle(t.Context(), ""))
	if !strings.Contains(h.said, "go mod download "+module) || len(notes) != 4 {
		t.Errorf("at the end it says %q; notes %q", h.said, notes)
	}
	restart("it was installed at the end", h, true, "", 4)

	proctest.Value(w.project.Rollback(t.Context(), 1, true))(t)
	if _, err := os.Stat(filepath.Join(g.root, "go.sum")); err == nil {
		t.Error("what was installed was not taken back")
	}
}
