//go:build linux

package dockerfiles

import (
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1"

	"github.com/tend-run/tend/internal/sandbox/oci/ocitest"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testdaemon"
)

const killed = `FROM IMAGE AS made
ARG N
COPY a /a
RUN --mount=type=cache,target=/cache --mount=type=secret,id=word --mount=type=bind,target=/bound \
    echo $N > /cache/last && cat /run/secrets/word /bound/a > /dev/null && sleep 0.1 && echo $N > /made
RUN sleep 0.1 && mkdir /tree && echo $N > /tree/f
FROM IMAGE
ARG N
RUN sleep 0.1 && echo $N > /other
COPY --from=made /made /tree /from/
ADD pack.tar.gz /packed/
`

// A role is killed in a pull or a build, at any moment, or all of them as by a loss of power: what the server has left is removed
// by the next, and the next build of the same Dockerfile makes what it should.
func TestAKillDuringAPullOrABuildLeavesNothing(t *testing.T) {
	proctest.Root(t)
	hub := ocitest.NewRegistry(t)
	img := &ocitest.Image{Config: v1.Config{Env: []string{"PATH=/bin"}},
		Layers: [][]byte{ocitest.Layer(t, append(ocitest.Programs(t, "sh", "cat", "mkdir", "sleep"), ocitest.File{Name: "tmp/", Mode: 0o1777})...)}}
	hub.Push("tools", "1", img)
	name := hub.Host + "/tools:1"
	d := proctest.Value(testdaemon.Start(testdaemon.Config{Command: []string{tend}, Dir: filepath.Join(t.TempDir(), "daemon")}))(t)
	t.Cleanup(func() { proctest.Must(t, d.Stop()) })
	env := []string{"TEND_URL=" + d.URL}
	dir := t.TempDir()
	proctest.Must(t, os.MkdirAll(filepath.Join(dir, "context"), 0o755))
	for file, text := range map[string]string{"Dockerfile": strings.ReplaceAll(killed, "IMAGE", name), "word": "secret", "context/a": "a",
		"context/pack.tar.gz": string(packed(t))} {
		proctest.Must(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
	}
	build := func(n int) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), tend, "template", "build", "-t", "killed", "-f", filepath.Join(dir, "Dockerfile"), "--build-arg",
			"N="+strconv.Itoa(n), "--secret", "id=word,src="+filepath.Join(dir, "word"), filepath.Join(dir, "context"))
		cmd.Env = append(cmd.Environ(), env...)
		return cmd
	}
	before := proctest.Value(filepath.Glob("/dev/shm/tend-secrets-*"))(t)
	kill := func(role string) func() error {
		return func() error { return d.Replace(t.Context(), role) }
	}
	deaths := []func() error{kill(testdaemon.Server), kill(testdaemon.Keeper), kill(testdaemon.Anchor), func() error {
		d.KillLauncher()
		return d.ServeAgain()
	}, func() error {
		proctest.Must(t, d.KillAll())
		return d.ServeAgain()
	}}
	for n := range 2 * len(deaths) {
		cmd := build(n)
		if n%2 == 0 { // a pull alone, of an image that is not there
			_ = exec.CommandContext(t.Context(), tend, "--url", d.URL, "image", "rm", name).Run()
			cmd = exec.CommandContext(t.Context(), tend, "--url", d.URL, "image", "pull", name)
		}
		proctest.Must(t, cmd.Start())
		time.Sleep(time.Duration(rand.IntN(600)) * time.Millisecond)
		proctest.Must(t, deaths[n%len(deaths)]())
		if err := cmd.Wait(); err != nil && !errors.As(err, new(*exec.ExitError)) {
			t.Fatal(err)
		}
		if out, err := build(n).CombinedOutput(); err != nil {
			t.Fatalf("round %d: %v\n%s", n, err, out)
		}
		want := strings.Repeat(strconv.Itoa(n)+"\n", 3) + "x"
		if got := run(t, env, tend, "sandbox", "run", "--rm", "--template", "killed", "--", "/bin/sh", "-c", "cat /other /from/made /from/f /packed/b"); got != want {
			t.Fatalf("round %d: it has %q, not %q", n, got, want)
		}
		left := proctest.Value(filepath.Glob("/dev/shm/tend-secrets-*"))(t)
		if len(left) > len(before) {
			t.Errorf("round %d: secrets are left: %v", n, left)
		}
		for _, place := range []string{"sandboxes/.builds/*", "sandboxes/.images/.new/*", "sandboxes/.layers/.new/*"} {
			if left := proctest.Value(filepath.Glob(filepath.Join(d.StateDir(), place)))(t); len(left) > 0 {
				t.Errorf("round %d: %v is left", n, left)
			}
		}
		if sandboxes := run(t, env, tend, "sandbox", "ls", "-q"); sandboxes != "" {
			t.Errorf("round %d: sandboxes are left: %s", n, sandboxes)
		}
	}
	for role, pid := range d.Roles() {
		for line := range strings.Lines(string(proctest.Value(os.ReadFile("/proc/" + strconv.Itoa(pid) + "/mountinfo"))(t))) {
			if strings.Contains(line, d.StateDir()) {
				t.Errorf("it is mounted in the %s: %s", role, line)
			}
		}
	}
}
