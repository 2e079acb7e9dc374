//go:build linux

package limits

import (
	"encoding/json"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testdaemon"
)

// TestNoSandboxSeesTheDaemonsFiles: wherever the flags put them, behind links, too.
func TestNoSandboxSeesTheDaemonsFiles(t *testing.T) {
	proctest.Root(t)
	dir := proctest.Value(os.MkdirTemp("/opt", "tend-hidden-"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	proctest.Must(t, os.Chmod(dir, 0o755))
	const token = "of-the-daemon"
	for name, mode := range map[string]os.FileMode{"token": 0o600, "open": 0o644} {
		proctest.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(token), mode))
	}
	link := filepath.Join(dir, "link")
	proctest.Must(t, os.Symlink("token", link))
	d := testdaemon.Serve(t, testdaemon.Config{Command: []string{bin}, Dir: t.TempDir(),
		Flags: []string{"--base-path", dir, "--token-file", link, "--socket", filepath.Join(dir, "socket")}})
	status, text := d.Ask(t, "POST", "/sandboxes", `{"templateID":"base"}`, "X-Api-Key", token, "Content-Type", "application/json")
	var made struct{ SandboxID string }
	if err := json.Unmarshal([]byte(text), &made); err != nil || status != 201 {
		t.Fatalf("a sandbox: %d %s", status, text)
	}
	read := func(path string) (int, string) {
		return d.Ask(t, "GET", "/files?"+url.Values{"path": {path}, "username": {"root"}}.Encode(), "",
			"X-Access-Token", token, "E2b-Sandbox-Id", made.SandboxID, "E2b-Sandbox-Port", "49983")
	}
	for _, name := range []string{"token", "link"} {
		if status, text := read(filepath.Join(dir, name)); status != 404 {
			t.Errorf("%s inside: %d %q", name, status, text)
		}
	}
	if status, text := read(filepath.Join(dir, "open")); status != 200 || text != token {
		t.Errorf("a file that is not the daemon's: %d %q", status, text)
	}
	status, text = d.Ask(t, "POST", "/filesystem.Filesystem/ListDir", `{"path":"`+dir+`"}`, "Content-Type", "application/json",
		"X-Access-Token", token, "E2b-Sandbox-Id", made.SandboxID, "E2b-Sandbox-Port", "49983")
	if status != 200 || strings.Contains(text, `"socket"`) || !strings.Contains(text, `"open"`) {
		t.Errorf("the directory inside: %d %s", status, text)
	}
}

// TestAStateDirectoryThatSandboxesWouldSee: of a daemon whose state directory is in a directory that sandboxes see there
// are none, with what to do; and no flag shows it, by whatever path.
func TestAStateDirectoryThatSandboxesWouldSee(t *testing.T) {
	proctest.Root(t)
	dir := proctest.Value(os.MkdirTemp("/usr/local", "tend-hidden-"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	d := testdaemon.Serve(t, testdaemon.Config{Command: []string{bin}, Dir: dir})
	status, text := d.Ask(t, "POST", "/sandboxes", `{"templateID":"base"}`, "X-Api-Key", "x", "Content-Type", "application/json")
	if status < 400 || !strings.Contains(text, "use tend serve --state-dir DIR") {
		t.Errorf("a sandbox: %d %s", status, text)
	}
	seen, other := twice(t)
	links := proctest.Value(os.MkdirTemp("/opt", "tend-links-"))(t)
	t.Cleanup(func() { os.RemoveAll(links) })
	link := filepath.Join(links, "link")
	proctest.Must(t, os.Symlink(seen, link))
	state := testdaemon.StateDir(other)
	proctest.Must(t, os.Mkdir(state, 0o700))
	for _, path := range []string{seen, testdaemon.StateDir(seen), other, state, link, link + "/state"} {
		out, err := exec.Command(bin, "serve", "--state-dir", state, "--listen", "none", "--base-path", path).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "--base-path") || !strings.Contains(string(out), "state directory") {
			t.Errorf("--base-path %s: %v, %s", path, err, out)
		}
	}
}
