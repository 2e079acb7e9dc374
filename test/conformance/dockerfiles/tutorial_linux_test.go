//go:build linux

package dockerfiles

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1"

	"github.com/tend-run/tend/internal/sandbox/oci/ocitest"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testdaemon"
)

var shell = regexp.MustCompile("(?s)\n```sh\n(.*?)```")

// The commands of docs/dockerfile.md are run in their order, with a mirror in the place of docker.io.
func TestTheTutorialRuns(t *testing.T) {
	proctest.Root(t)
	hub := ocitest.NewRegistry(t)
	hub.Push("hub/library/debian", "stable-slim", &ocitest.Image{Config: v1.Config{Env: []string{"PATH=/usr/local/bin:/bin"}, Cmd: []string{"sh"}},
		Layers: [][]byte{ocitest.Layer(t, append(ocitest.Programs(t, "sh", "cat", "sleep"), ocitest.File{Name: "etc/passwd",
			Text: "root:x:0:0::/root:/bin/sh\n"}, ocitest.File{Name: "tmp/", Mode: 0o1777})...)}})
	d := proctest.Value(testdaemon.Start(testdaemon.Config{Command: []string{tend}, Dir: filepath.Join(t.TempDir(), "daemon"),
		Flags: []string{"--image-mirror", "docker.io=http://" + hub.Host + "/hub"}}))(t)
	t.Cleanup(func() { proctest.Must(t, d.Stop()) })
	text := string(proctest.Value(os.ReadFile("../../../docs/dockerfile.md"))(t))
	script := "set -eux\n"
	for _, block := range shell.FindAllStringSubmatch(text, -1) {
		script += block[1]
	}
	programs := t.TempDir()
	proctest.Must(t, os.Symlink(tend, filepath.Join(programs, "tend")))
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "TEND_URL="+d.URL, "PATH="+programs+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"hello you, built with 1", "hello me, built with 1", "good morning you, built with 1", "good morning you, built with 2",
		"\nhello you\n", "debian:stable-slim", "#!/bin/sh", "clock", "taken from the cache"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("it printed no %q:\n%s", want, out)
		}
	}
	if left := run(t, []string{"TEND_URL=" + d.URL}, tend, "sandbox", "ls", "-q") + run(t, []string{"TEND_URL=" + d.URL}, tend, "image", "ls", "-q"); left != "" {
		t.Errorf("it leaves %s", left)
	}
}
