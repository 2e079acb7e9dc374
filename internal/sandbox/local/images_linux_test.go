package local

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/go-containerregistry/pkg/v1"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/oci/ocitest"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// shellImage is an image with a shell, in which the account web may write to /srv alone.
func shellImage(t testing.TB) *ocitest.Image {
	return &ocitest.Image{
		Layers: [][]byte{
			ocitest.Layer(t, append(ocitest.Programs(t, "sh", "cat", "id", "ls", "stat"),
				ocitest.File{Name: "etc/passwd", Text: "root:x:0:0::/root:/bin/sh\nweb:x:33:44::/srv:/bin/sh\n"},
				ocitest.File{Name: "etc/group", Text: "web:x:44:\nstaff:x:50:web\n"},
				ocitest.File{Name: "srv/", UID: 33, GID: 44}, ocitest.File{Name: "gone", Text: "x"}, ocitest.File{Name: "mine", Text: "m", UID: 33, GID: 44, Mode: 0o600})...),
			ocitest.Layer(t, ocitest.File{Name: ".wh.gone"}, ocitest.File{Name: "second", Text: "2"}),
		},
		Config: v1.Config{User: "web", WorkingDir: "/srv/app", Env: []string{"PATH=/bin", "GREETING=hello"}, Cmd: []string{"sh"}},
	}
}

func imported(t testing.TB, d *Driver, tar []byte, name string) driver.Image {
	t.Helper()
	all := proctest.Value(d.ImportImage(t.Context(), bytes.NewReader(tar), driver.ImageOptions{Name: name}))(t)
	return all[0]
}

func shOut(t testing.TB, s driver.Sandbox, line string) string {
	t.Helper()
	p := proctest.Start(t, s.Processes(), process.Spec{Argv: []string{"/bin/sh", "-c", line}})
	res := proctest.Wait(t, p, process.Until{})
	out := proctest.Output(t, p, process.Stdout) + proctest.Output(t, p, process.Stderr)
	if res.Exit.Code != 0 {
		t.Errorf("%q ended with %+v: %s", line, res.Exit, out)
	}
	return out
}

func TestASandboxOfAnImage(t *testing.T) {
	t.Parallel()
	d := openReal(t, real(t))
	m := imported(t, d, shellImage(t).Saved(t, "web:1"), "")
	s, err := d.Create(t.Context(), driver.Spec{Image: "web:1"})
	proctest.Must(t, err)
	want := "33 44 50\n/srv/app hello\n33:44 600 m\n2\nno gone\n"
	if testkeeper.IsRootless() { // one id
		want = "0 0\n/srv/app hello\n0:0 600 m\n2\nno gone\n"
	}
	got := shOut(t, s, `echo $(id -u) $(id -G); echo $(pwd) $GREETING; echo $(stat -c '%u:%g %a' /mine) $(cat /mine); cat /second; echo; test -e /gone || echo no gone`)
	if got != want {
		t.Errorf("it sees %q; want %q", got, want)
	}
	if in := info(t, s); in.Image != m.ID || in.Run.User != "web" || in.Run.Dir != "/srv/app" {
		t.Errorf("%+v", in)
	}
	other, err := d.Create(t.Context(), driver.Spec{Image: m.ID, Run: driver.RunConfig{User: "root", Dir: "/", Env: map[string]string{"GREETING": "bye"}}})
	proctest.Must(t, err)
	if got := shOut(t, other, `echo $(id -u) $(pwd) $GREETING; echo x > /second; cat /second`); got != "0 / bye\nx\n" {
		t.Errorf("it sees %q", got)
	}
	if got := shOut(t, s, "cat /second"); got != "2" {
		t.Errorf("what another sandbox wrote is seen: %q", got)
	}
	// The image goes; its sandboxes keep their files.
	proctest.Value(d.RemoveImage(t.Context(), "web:1"))(t)
	proctest.Must(t, d.layers.Sweep(t.Context(), 0))
	proctest.Must(t, errors.Join(s.Stop(t.Context()), s.Start(t.Context())))
	if got := shOut(t, s, "cat /second"); got != "2" {
		t.Errorf("after the image is removed: %q", got)
	}
	if _, err := d.Create(t.Context(), driver.Spec{Image: "web:1"}); !errors.Is(err, driver.ErrNotFound) {
		t.Errorf("a removed image: %v", err)
	}
}

func TestAnImageOfManyLayersIsASandbox(t *testing.T) {
	t.Parallel()
	d := openReal(t, real(t))
	img := shellImage(t)
	for i := range 125 { // as many layers as an image may have
		img.Layers = append(img.Layers, ocitest.Layer(t, ocitest.File{Name: fmt.Sprintf("srv/f%d", i), Text: "x"}, ocitest.File{Name: "last", Text: fmt.Sprint(i)}))
	}
	imported(t, d, img.Saved(t), "many")
	s, err := d.Create(t.Context(), driver.Spec{Image: "many"})
	proctest.Must(t, err)
	if got := shOut(t, s, "cat /last; ls /srv | { n=0; while read f; do n=$((n+1)); done; echo \" $n\"; }"); got != "124 126\n" {
		t.Errorf("it sees %q", got)
	}
}

func TestAnImageSaysWhatIsWrongWithARequest(t *testing.T) {
	t.Parallel()
	d := openReal(t, real(t))
	img := shellImage(t)
	img.Config.User = "nobody-has-this"
	imported(t, d, img.Saved(t), "odd")
	for name, c := range map[string]struct {
		spec driver.Spec
		want string
	}{
		"a user that the image has not": {driver.Spec{Image: "odd"}, `nobody-has-this`},
		"an image and a template":       {driver.Spec{Image: "odd", Template: "base"}, "name one of them"},
		"an image and a snapshot":       {driver.Spec{Image: "odd", Snapshot: "x"}, "name one of them"},
		"a name that cannot be":         {driver.Spec{Image: "ODD NAME"}, "[HOST/]PATH[:TAG]"},
		"a long name":                   {driver.Spec{Image: strings.Repeat("x", 600)}, "at most 512 bytes"},
		"an image that is not there":    {driver.Spec{Image: "other"}, `image "other"`},
	} {
		if _, err := d.Create(t.Context(), c.spec); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, o := range map[string]string{"a digest": "x@sha256:" + strings.Repeat("a", 64), "no name": "A B"} {
		_, err := d.ImportImage(t.Context(), bytes.NewReader(img.Saved(t)), driver.ImageOptions{Name: o})
		if _, ok := errors.AsType[*driver.InvalidError](err); !ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	bad := &ocitest.Image{Layers: [][]byte{ocitest.Layer(t, ocitest.File{Name: "../x"})}}
	_, err := d.ImportImage(t.Context(), bytes.NewReader(bad.Saved(t)), driver.ImageOptions{})
	if e, ok := errors.AsType[*driver.InvalidError](err); !ok || e.Field != "image" || !strings.Contains(err.Error(), `"../x"`) {
		t.Errorf("a hostile layer: %v", err)
	}
}

// An archive of an image has all that a sandbox and a container engine need, and is the same
// however often it goes to another machine.
func TestAnImageIsExported(t *testing.T) {
	t.Parallel()
	d, other := openReal(t, real(t)), openReal(t, real(t))
	img := shellImage(t)
	img.Config.Entrypoint, img.Config.Labels, img.Config.StopSignal = []string{"/bin/sh", "-c"}, map[string]string{"a": "b"}, "SIGINT"
	img.Config.Volumes, img.Config.ExposedPorts = map[string]struct{}{"/data": {}}, map[string]struct{}{"80/tcp": {}}
	img.Config.Healthcheck = &v1.HealthConfig{Test: []string{"CMD", "true"}, Retries: 4}
	m := imported(t, d, img.Saved(t, "web:1", "web:2"), "")
	exported := func(d *Driver, key string) []byte {
		var b bytes.Buffer
		proctest.Must(t, d.ExportImage(t.Context(), key, &b))
		return b.Bytes()
	}
	if n := imported(t, other, exported(d, "web:2"), ""); len(n.Names) != 1 || n.Names[0] != "web:2" {
		t.Errorf("by a name it has %q", n.Names)
	}
	saved := exported(d, m.ID)
	n := imported(t, other, saved, "")
	if again := exported(other, n.ID); !bytes.Equal(again, saved) {
		t.Errorf("it has %d bytes, and was %d", len(again), len(saved))
	}
	for _, i := range []*driver.Image{&m, &n} { // what is of the archive or the machine
		i.ID, i.Added, i.Layers, i.Left, i.Entries = "", time.Time{}, i.Layers[:0], nil, 0
	}
	if diff := cmp.Diff(m, n, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
	s, err := other.Create(t.Context(), driver.Spec{Image: "web:1"})
	proctest.Must(t, err)
	if got := shOut(t, s, `pwd; cat /second; test -e /gone || echo; stat -c %a /mine`); got != "/srv/app\n2\n600\n" {
		t.Errorf("it sees %q", got)
	}
	parts, release, err := other.images.Parts("web:1")
	proctest.Must(t, err)
	defer release()
	if c := parts.Config.Config; c.StopSignal != "SIGINT" || c.Healthcheck.Retries != 4 || len(c.Volumes) != 1 || len(c.ExposedPorts) != 1 {
		t.Errorf("%+v", c)
	}
	if err := d.ExportImage(t.Context(), "none", io.Discard); !errors.Is(err, driver.ErrNotFound) {
		t.Errorf("of none: %v", err)
	}
}
