package local

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/oci/ocitest"
	"github.com/tend-run/tend/internal/support/proctest"
)

func pull(d *Driver, t testing.TB, name string) (driver.Image, error) {
	return d.PullImage(t.Context(), driver.Pull{Name: name, Owner: true})
}

func TestAnImageIsPulledOnceAndRuns(t *testing.T) {
	t.Parallel()
	d := openReal(t, real(t))
	p, img := ocitest.NewRegistry(t), shellImage(t)
	img.Pack = ocitest.Gzip
	p.Push("web", "1", img)
	name := p.Host + "/web:1"
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if _, err := pull(d, t, name); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	blob := func(b []byte) int { return p.Times("/v2/web/blobs/" + ocitest.Hash(b).String()) }
	for i, l := range img.Packed(t) {
		if n := blob(l); n != 1 {
			t.Errorf("layer %d was fetched %d times", i, n)
		}
	}
	s, err := d.Create(t.Context(), driver.Spec{Image: name})
	proctest.Must(t, err)
	if got := shOut(t, s, "cat /second"); got != "2" {
		t.Errorf("it sees %q", got)
	}

	// A tag that has moved to an image that begins alike: the new layer alone is fetched.
	next := *img
	next.Layers = append(next.Layers[:2:2], ocitest.Layer(t, ocitest.File{Name: "second", Text: "3"}))
	manifest := p.Push("web", "1", &next)
	m := proctest.Value(pull(d, t, name))(t)
	if blob(img.Packed(t)[0]) != 1 || blob(next.Packed(t)[2]) != 1 || m.Digest != ocitest.Hash(manifest).String() {
		t.Errorf("%+v; the first layer was fetched %d times", m, blob(img.Packed(t)[0]))
	}
	byDigest := p.Host + "/web@" + m.Digest
	asked := p.Times("/v2/web/manifests/" + m.Digest)
	if again := proctest.Value(pull(d, t, byDigest))(t); again.ID != m.ID || p.Times("/v2/web/manifests/"+m.Digest) != asked {
		t.Errorf("%+v", again)
	}
	other, err := d.Create(t.Context(), driver.Spec{Image: byDigest})
	proctest.Must(t, err)
	if got := shOut(t, other, "cat /second") + shOut(t, s, "cat /second"); got != "32" {
		t.Errorf("they see %q", got)
	}
}

// TestAPanicEndsThePullAlone: builds pull where no handler is above them, and each layer comes on its own.
func TestAPanicEndsThePullAlone(t *testing.T) {
	t.Parallel()
	d := openReal(t, real(t))
	p := ocitest.NewRegistry(t)
	p.Push("web", "1", shellImage(t))
	name := p.Host + "/web:1"
	for what, pull := range map[string]driver.Pull{
		"before the layers": {Say: func(string) { panic("a fault") }},
		"in a layer":        {Progress: func(int64, int64) { panic("a fault") }},
	} {
		pull.Name, pull.Owner = name, true
		if _, err := d.PullImage(t.Context(), pull); err == nil || !strings.Contains(err.Error(), "cannot be fetched: a fault") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := pull(d, t, name); err != nil {
		t.Errorf("then a pull fails: %v", err)
	}
}

func TestAPullThatFailsLeavesNothingButWholeLayers(t *testing.T) {
	t.Parallel()
	d := openReal(t, real(t))
	p, img := ocitest.NewRegistry(t), shellImage(t)
	p.Push("web", "1", img)
	second := "/v2/web/blobs/" + ocitest.Hash(img.Layers[1]).String()
	var broken atomic.Bool
	broken.Store(true)
	p.Change = func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if broken.Load() && r.URL.Path == second {
			w.Write(make([]byte, len(img.Layers[1])))
			return true
		}
		return false
	}
	name := p.Host + "/web:1"
	if _, err := pull(d, t, name); err == nil {
		t.Fatal("a layer of zeros is taken for another")
	}
	if all := proctest.Value(d.Images(t.Context()))(t); len(all) != 0 {
		t.Errorf("%+v", all)
	}
	broken.Store(false)
	proctest.Value(pull(d, t, name))(t)
	if n := p.Times("/v2/web/blobs/" + ocitest.Hash(img.Layers[0]).String()); n != 1 {
		t.Errorf("the first layer was fetched %d times", n)
	}
}

func TestWhoIsNotTheOwnerPullsFromNoAddressOfThisMachine(t *testing.T) {
	t.Parallel()
	d := openReal(t, real(t))
	p := ocitest.NewRegistry(t)
	p.Push("web", "1", shellImage(t))
	for _, name := range []string{p.Host + "/web:1", strings.Replace(p.Host, "127.0.0.1", "localhost", 1) + "/web:1", "169.254.169.254/x"} {
		if _, err := d.PullImage(t.Context(), driver.Pull{Name: name}); err == nil || !strings.Contains(err.Error(), "no address that a sandbox may reach") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if p.Times("/v2/") != 0 {
		t.Error("the registry was asked")
	}
	for name, want := range map[string]error{p.Host + "/none:1": driver.ErrNotFound} {
		if _, err := pull(d, t, name); !errors.Is(err, want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A registry that promises what another one has, and never sends it, holds up nobody but its own
// caller.
func TestARegistryThatNeverSendsHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	cfg := real(t)
	good, evil, img := ocitest.NewRegistry(t), ocitest.NewRegistry(t), shellImage(t)
	good.Push("web", "1", img)
	evil.Push("web", "1", img)
	asked := make(chan struct{}, 8)
	evil.Change = func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if !strings.HasSuffix(r.URL.Path, ocitest.Hash(img.Layers[0]).String()) {
			return false
		}
		asked <- struct{}{}
		<-r.Context().Done()
		return true
	}
	cfg.Registry.Mirrors = map[string][]*url.URL{"evil.example": {{Scheme: "http", Host: evil.Host}}}
	d := openReal(t, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() {
		_, err := d.PullImage(ctx, driver.Pull{Name: "evil.example/web:1"})
		over <- err
	}()
	<-asked
	quick, end := context.WithTimeout(t.Context(), 30*time.Second)
	defer end()
	if _, err := d.PullImage(quick, driver.Pull{Name: good.Host + "/web:1", Owner: true}); err != nil {
		t.Errorf("another one waits: %v", err)
	}
	cancel()
	if err := <-over; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestAMirrorOfTheOperatorServesEveryCaller(t *testing.T) {
	t.Parallel()
	cfg := real(t)
	p := ocitest.NewRegistry(t)
	p.Push("library/ubuntu", "22.04", shellImage(t))
	cfg.Registry.Mirrors = map[string][]*url.URL{"docker.io": {{Scheme: "http", Host: p.Host}}}
	d := openReal(t, cfg)
	m, err := d.PullImage(t.Context(), driver.Pull{Name: "ubuntu:22.04"})
	if err != nil || m.Names[0] != "ubuntu:22.04" {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestATemplateIsBuiltOnAnImage(t *testing.T) {
	d, _ := boxed(t)
	p := ocitest.NewRegistry(t)
	p.Push("web", "1", shellImage(t))
	spec := driver.BuildSpec{Name: "web", FromImage: p.Host + "/web:1", Pull: driver.Pull{Owner: true},
		Steps: []driver.Step{step("RUN", "echo $GREETING $(id -u) $(pwd) >/made")}}
	b, log := built(t, d, spec)
	if b.Status != driver.BuildReady || !strings.Contains(log, "layer 1 of 2 is unpacked") {
		t.Fatalf("%+v\n%s", b, log)
	}
	s, err := d.Create(t.Context(), driver.Spec{Template: "web"})
	proctest.Must(t, err)
	if got := shOut(t, s, "cat /made; echo $(id -u) $(pwd) $GREETING"); got != "hello 0 /srv/app\n33 /srv/app hello\n" {
		t.Errorf("it sees %q", got)
	}
	if _, log := built(t, d, spec); !strings.Contains(log, "taken from the cache") {
		t.Errorf("built again: %s", log)
	}
	// Templates keep their files when the image goes.
	proctest.Value(d.RemoveImage(t.Context(), spec.FromImage))(t)
	proctest.Must(t, d.layers.Sweep(t.Context(), 0))
	again, err := d.Create(t.Context(), driver.Spec{Template: "web"})
	proctest.Must(t, err)
	if got := shOut(t, again, "cat /second"); got != "2" {
		t.Errorf("after the image is removed: %q", got)
	}
	spec.Name, spec.FromImage, spec.Pull = "other", p.Host+"/web:1", driver.Pull{}
	if b, _ := built(t, d, spec); b.Status != driver.BuildFailed || b.FailedStep != "base" || !strings.Contains(b.Reason, "no address that a sandbox may reach") {
		t.Errorf("of who is not the owner: %+v", b)
	}
	for name, bad := range map[string]driver.BuildSpec{
		"an image and a template": {Name: "x", FromImage: "a", From: "base"}, "no name": {Name: "x", FromImage: "A B"},
	} {
		if _, err := d.Build(t.Context(), bad); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
