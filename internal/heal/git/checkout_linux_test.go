package git

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

// TestACheckOutRunsNoFilter: a file that needs none is restored, with its end of lines; one that
// needs a filter is refused. Nothing is asked of a remote that promised what is missing.
func TestACheckOutRunsNoFilter(t *testing.T) {
	root := proctest.Value(filepath.EvalSymlinks(t.TempDir()))(t)
	mark := filepath.Join(t.TempDir(), "ran")
	git := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-c", "user.name=x", "-c", "user.email=x@y"}, args...)...)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v: %s", args, err, out)
		}
	}
	git("init", "-q")
	for name, text := range map[string]string{"dir/a.txt": "a\n", "b.big": "b\n", "c.txt": "c\n", ".gitattributes": "*.big filter=big\n*.crlf eol=crlf\n", "d.crlf": "d\n"} {
		proctest.Must(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755))
		proctest.Must(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o644))
	}
	git("add", "-A")
	git("commit", "-q", "-m", "one")
	missing := exec.Command("git", "rev-parse", "HEAD:c.txt")
	missing.Dir = root
	oid := strings.TrimSpace(string(proctest.Value(missing.Output())(t)))
	program := "touch " + mark + "; cat"
	for _, kv := range [][2]string{
		{"filter.big.smudge", program}, {"filter.big.clean", program}, {"filter.big.process", program}, {"core.fsmonitor", program},
		{"extensions.partialClone", "origin"}, {"core.repositoryFormatVersion", "1"}, {"remote.origin.promisor", "true"}, {"remote.origin.url", "ext::sh -c touch% " + mark}, {"protocol.ext.allow", "always"},
	} {
		git("config", kv[0], kv[1])
	}
	proctest.Must(t, os.Remove(filepath.Join(root, ".git/objects", oid[:2], oid[2:])))
	proctest.Must(t, os.MkdirAll(filepath.Join(root, ".git/hooks"), 0o755))
	proctest.Must(t, os.WriteFile(filepath.Join(root, ".git/hooks/post-checkout"), []byte("#!/bin/sh\n"+program), 0o755))
	for _, name := range []string{"dir", "b.big", "c.txt", "d.crlf"} {
		proctest.Must(t, os.RemoveAll(filepath.Join(root, name)))
	}
	r := proctest.Value(Open(t.Context(), root))(t)
	for name, want := range map[string]string{"dir/a.txt": "a\n", "d.crlf": "d\r\n"} {
		proctest.Must(t, r.CheckOut(t.Context(), root, name))
		if text := proctest.Value(os.ReadFile(filepath.Join(root, name)))(t); string(text) != want {
			t.Errorf("%s is %q", name, text)
		}
	}
	for name, why := range map[string]string{"b.big": "filter big", "c.txt": oid} {
		if err := r.CheckOut(t.Context(), root, name); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := os.Lstat(mark); err == nil {
		t.Error("a program ran")
	}
}
