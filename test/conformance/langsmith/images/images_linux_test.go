//go:build linux

// Package images has the unmodified Python SDK of LangSmith make snapshots of images, of a mirror
// of docker.io that the test makes.
package images

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1"

	"github.com/tend-run/tend/internal/sandbox/oci/ocitest"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testbin"
	"github.com/tend-run/tend/internal/support/testdaemon"
)

var tend string

func TestMain(m *testing.M) {
	os.Exit(testbin.Main(func(dir string) int {
		tend = testbin.Released.Tend(dir)
		return m.Run()
	}, testbin.Released))
}

func script(t *testing.T, env []string, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = proctest.Value(filepath.Abs("../../../.."))(t)
	cmd.Env = append(cmd.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

func TestTheSDKMakesSnapshotsOfImages(t *testing.T) {
	proctest.Root(t)
	hub, own := ocitest.NewRegistry(t), ocitest.NewRegistry(t)
	img := &ocitest.Image{Pack: ocitest.Zstd, Config: v1.Config{User: "web", WorkingDir: "/srv", Env: []string{"PATH=/usr/bin:/bin", "OF_IMAGE=yes"}},
		Layers: [][]byte{ocitest.Layer(t, append(ocitest.Programs(t, "sh", "bash", "cat", "id"),
			ocitest.File{Name: "etc/passwd", Text: "root:x:0:0::/root:/bin/sh\nweb:x:33:33::/srv:/bin/sh\n"})...)}}
	hub.Push("hub/library/python", "3.12-slim", img)
	hub.Push("hub/library/python", "3", img)
	own.Push("own", "1", img)
	d := proctest.Value(testdaemon.Start(testdaemon.Config{Command: []string{tend}, Dir: filepath.Join(t.TempDir(), "daemon"),
		Flags: []string{"--image-mirror", "docker.io=http://" + hub.Host + "/hub"}}))(t)
	t.Cleanup(func() { proctest.Must(t, d.Stop()) })
	py := "test/conformance/langsmith/python"
	script(t, nil, "scripts/python-venv", py+"/.venv", py+"/requirements.txt")
	script(t, []string{"URL=" + d.URL, "OWN=" + own.Host + "/own:1"}, py+"/.venv/bin/python", "test/conformance/langsmith/images/images.py")
	if n := own.Times("/v2/"); n != 0 {
		t.Errorf("a registry of this machine was asked %d times", n)
	}
}
