//go:build linux

// Package images has the unmodified SDKs of E2B build templates from images: of a mirror of
// docker.io, and of a registry with accounts, both on this machine and with one small image made
// here.
package images

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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

// script runs a script of this repository and wants it to succeed.
func script(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = proctest.Value(filepath.Abs("../../../.."))(t)
	cmd.Env = append(cmd.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

func TestTheSDKsBuildFromImages(t *testing.T) {
	proctest.Root(t)
	img := &ocitest.Image{Pack: ocitest.Gzip, Config: v1.Config{User: "nobody", WorkingDir: "/srv", Env: []string{"PATH=/usr/bin:/bin", "OF_IMAGE=yes"}},
		Layers: [][]byte{
			ocitest.Layer(t, append(ocitest.Programs(t, "sh", "bash", "cat", "id", "stat", "mkdir", "sleep"), ocitest.File{Name: "gone", Text: "x"})...),
			ocitest.Layer(t, ocitest.File{Name: ".wh.gone"}, ocitest.File{Name: "etc/image", Text: "small\n"}),
		}}
	hub, private, own := ocitest.NewRegistry(t), ocitest.NewRegistry(t), ocitest.NewRegistry(t)
	hub.Push("hub/library/ubuntu", "22.04", img)
	private.Push("team/app", "1", img)
	private.Change = func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if user, password, _ := r.BasicAuth(); user == "me" && password == "secret-word" {
			return false
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="here"`)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}
	own.Push("own", "1", img)
	d := proctest.Value(testdaemon.Start(testdaemon.Config{Command: []string{tend}, Dir: filepath.Join(t.TempDir(), "daemon"),
		Flags: []string{"--image-mirror", "docker.io=http://" + hub.Host + "/hub", "--sandbox-reach", private.Host}}))(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the daemon says: %s", d.Log())
		}
		proctest.Must(t, d.Stop())
	})
	env := []string{"E2B_API_URL=" + d.URL, "E2B_SANDBOX_URL=" + d.URL, "E2B_API_KEY=e2b_0000000000000000000000000000000000000000",
		"PRIVATE=" + private.Host + "/team/app:1", "OWN=" + own.Host + "/own:1"}
	path := "PATH=" + strings.TrimSpace(script(t, nil, "scripts/node")) + ":" + os.Getenv("PATH")
	env = append(env, path)
	js, py := "test/conformance/e2b/js", "test/conformance/e2b/python"
	script(t, []string{path}, "scripts/npm-ci", js)
	script(t, nil, "scripts/python-venv", py+"/.venv", py+"/requirements.txt")
	t.Run("npm", func(t *testing.T) { t.Log(script(t, env, "env", "node", "--test", js+"/images/images.test.mjs")) })
	t.Run("PyPI", func(t *testing.T) {
		t.Log(script(t, env, py+"/.venv/bin/python", "test/conformance/e2b/images/images.py"))
	})
	if n := own.Times("/v2/"); n != 0 {
		t.Errorf("a registry of this machine was asked %d times", n)
	}
	script(t, nil, "sh", "-c", "! grep -rlaF secret-word "+d.StateDir())
}
