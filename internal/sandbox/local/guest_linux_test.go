package local

import (
	"errors"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/v1"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/network"
	"github.com/tend-run/tend/internal/sandbox/oci/ocitest"
	"github.com/tend-run/tend/internal/support/proctest"
)

// keys are credentials of this machine for any registry.
type keys struct{ user, password string }

func (k keys) Resolve(authn.Resource) (authn.Authenticator, error) {
	return authn.FromConfig(authn.AuthConfig{Username: k.user, Password: k.password}), nil
}

// reached is a network from which the operator lets sandboxes, and so who is not the owner, reach
// registries of this machine.
func reached(t testing.TB, all ...*ocitest.Registry) *network.Host {
	var rules []network.Rule
	for _, p := range all {
		rules = append(rules, proctest.Value(network.ParseRule(p.Host))(t))
	}
	return network.NewHost(network.Config{Reach: rules})
}

// locked lets in who has a password.
func locked(p *ocitest.Registry, password string) {
	p.Change = func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if _, got, _ := r.BasicAuth(); got == password {
			return false
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="here"`)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}
}

func TestWhatTheOwnerPulledByCredentialsIsNobodyElses(t *testing.T) {
	t.Parallel()
	cfg := real(t)
	p, evil, img := ocitest.NewRegistry(t), ocitest.NewRegistry(t), shellImage(t)
	p.Push("web", "1", img)
	locked(p, "of the owner")
	evil.Push("web", "1", img)
	evil.Change = func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool { // it knows digests alone
		if strings.HasSuffix(r.URL.Path, ocitest.Hash(img.Layers[0]).String()) || strings.HasSuffix(r.URL.Path, ocitest.Hash(img.Layers[1]).String()) {
			w.WriteHeader(http.StatusNotFound)
			return true
		}
		return false
	}
	cfg.Network, cfg.Registry.Keychain = reached(t, p, evil), keys{"owner", "of the owner"}
	cfg.ShareImages = []string{"shared/*"}
	d := openReal(t, cfg)
	name := p.Host + "/web:1"
	m := proctest.Value(pull(d, t, name))(t)
	want := func(what string, ask driver.Pull, said string) {
		t.Helper()
		got, err := d.wantImage(t.Context(), ask, false)
		if said == "" && (err != nil || got.ID != m.ID) || said != "" && (err == nil || !strings.Contains(err.Error(), said)) {
			t.Errorf("%s: %+v, %v; want %q", what, got, err, said)
		}
	}
	want("the owner", driver.Pull{Name: name, Owner: true}, "")
	want("another one", driver.Pull{Name: name}, "give the user and the password of an account")
	want("by its digest", driver.Pull{Name: p.Host + "/web@" + m.Digest}, "access denied")
	want("a wrong password", driver.Pull{Name: name, User: "x", Password: "y"}, "access denied")
	want("who knows digests alone", driver.Pull{Name: evil.Host + "/web:1"}, "not found")
	// What is not what the digests promise is no proof either.
	evil.Change = func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if r.URL.Path == "/v2/web/blobs/"+ocitest.Hash(img.Layers[1]).String() {
			w.Write(make([]byte, len(img.Layers[1])))
			return true
		}
		return false
	}
	want("who has another content", driver.Pull{Name: evil.Host + "/web:1"}, "digest")

	// Nor are layers of one's own, with a configuration that names those of the owner.
	forged := &ocitest.Image{Config: img.Config, Layers: [][]byte{ocitest.Layer(t, ocitest.File{Name: "a"}), ocitest.Layer(t, ocitest.File{Name: "b"})},
		Change: func(c *v1.ConfigFile) {
			c.RootFS.DiffIDs = []v1.Hash{ocitest.Hash(img.Layers[0]), ocitest.Hash(img.Layers[1])}
		}}
	evil.Push("forged", "1", forged)
	want("who names the digests in a configuration", driver.Pull{Name: evil.Host + "/forged:1"}, "its configuration says")

	// Whoever may see it at its registry gets it, and need not bring what is here.
	first := "/v2/web/blobs/" + ocitest.Hash(img.Layers[0]).String()
	before := p.Times(first)
	want("who has a password", driver.Pull{Name: name, User: "x", Password: "of the owner"}, "")
	want("another one after it", driver.Pull{Name: name}, "access denied")
	if n := p.Times(first); n != before {
		t.Errorf("the layer was fetched %d times more", n-before)
	}

	// The same content elsewhere, for everybody, opens no name of the closed registry.
	open := ocitest.NewRegistry(t)
	open.Push("web", "1", img)
	d.out = reached(t, p, open)
	want("from a registry without accounts", driver.Pull{Name: open.Host + "/web:1"}, "")
	want("from there again", driver.Pull{Name: open.Host + "/web@" + m.Digest}, "")
	want("by the closed registry's name", driver.Pull{Name: name}, "access denied")
	want("by the closed registry's digest", driver.Pull{Name: p.Host + "/web@" + m.Digest}, "access denied")

	imported(t, d, img.Saved(t), "shared/web:2")
	want("what the operator shares", driver.Pull{Name: "shared/web:2"}, "")
}

func TestWhatEverybodyMayFetchIsSharedByAll(t *testing.T) {
	t.Parallel()
	cfg := real(t)
	p, img := ocitest.NewRegistry(t), shellImage(t)
	p.Push("web", "1", img)
	p.Push("hub/library/web", "latest", img)
	cfg.Registry.Mirrors = map[string][]*url.URL{"docker.io": {{Scheme: "http", Host: p.Host, Path: "/hub"}}}
	d := openReal(t, cfg)
	// This machine's own registry is nobody else's.
	if m := proctest.Value(pull(d, t, p.Host+"/web:1"))(t); m.Public {
		t.Errorf("%+v", m)
	}
	if _, err := d.wantImage(t.Context(), driver.Pull{Name: p.Host + "/web:1"}, false); err == nil || !strings.Contains(err.Error(), "no address that a sandbox may reach") {
		t.Errorf("an image of this machine's registry: %v", err)
	}
	// A name of the owner's stays his, and so does what he imported.
	other := shellImage(t)
	other.Config.Env = append(other.Config.Env, "OWN=yes")
	own := imported(t, d, other.Saved(t), "web")
	m := proctest.Value(d.wantImage(t.Context(), driver.Pull{Name: "web"}, false))(t)
	if m.ID != img.ID(t) || !m.Public {
		t.Errorf("from the mirror: %+v", m)
	}
	if now := proctest.Value(d.Image(t.Context(), "web"))(t); now.ID != own.ID {
		t.Errorf("the owner's name is now that of %+v", now)
	}
	if _, err := d.images.Shared(own.ID); !errors.Is(err, driver.ErrNotFound) {
		t.Errorf("what he imported: %v", err)
	}
	// Once it is public, it is there without its registry.
	asked := p.Times("/v2/hub/library/web/manifests/latest")
	proctest.Value(d.RemoveImage(t.Context(), own.ID))(t)
	proctest.Value(d.PullImage(t.Context(), driver.Pull{Name: "web"}))(t)
	proctest.Value(d.wantImage(t.Context(), driver.Pull{Name: "web"}, false))(t)
	if n := p.Times("/v2/hub/library/web/manifests/latest"); n != asked+1 {
		t.Errorf("the registry was asked %d times", n-asked)
	}
	proctest.Value(d.wantImage(t.Context(), driver.Pull{Name: "web"}, true))(t)
	if n := p.Times("/v2/hub/library/web/manifests/latest"); n != asked+2 {
		t.Errorf("anew: the registry was asked %d times", n-asked)
	}
}

func TestABuildForgetsTheCredentialsOfItsCaller(t *testing.T) {
	d, cfg := boxed(t)
	p := ocitest.NewRegistry(t)
	p.Push("web", "1", shellImage(t))
	locked(p, "secret-of-a-caller")
	d.out = reached(t, p)
	spec := driver.BuildSpec{Name: "web", FromImage: p.Host + "/web:1", Pull: driver.Pull{User: "x", Password: "secret-of-a-caller"}}
	b, log := built(t, d, spec)
	if b.Status != driver.BuildReady || strings.Contains(log, "secret-of-a-caller") {
		t.Fatalf("%+v\n%s", b, log)
	}
	if kept := d.templates.builds[b.ID].spec.Pull; kept.User != "" || kept.Password != "" {
		t.Errorf("remembered: %+v", kept)
	}
	if out, err := exec.Command("grep", "-rla", "secret-of-a-caller", cfg.Dir).CombinedOutput(); err == nil || len(out) > 0 {
		t.Errorf("on the disk: %s", out)
	}
	spec.Pull = driver.Pull{}
	if b, _ := built(t, d, spec); b.Status != driver.BuildFailed || b.FailedStep != "base" || !strings.Contains(b.Reason, "access denied") {
		t.Errorf("the next caller: %+v", b)
	}
}

func TestAnImageGetsAnAccountForE2B(t *testing.T) {
	d, _ := boxed(t)
	p := ocitest.NewRegistry(t)
	cat := ocitest.Layer(t, ocitest.Programs(t, "sh", "cat", "id", "stat")...)
	for tag, accounts := range map[string][]ocitest.File{
		"nobody": nil,
		"some": {{Name: "etc/passwd", Text: "root:x:0:0::/root:/bin/sh\nfirst:x:1000:7::/:/bin/sh"}, {Name: "etc/group", Text: "first:x:7:\nshadow:x:42:\n"},
			{Name: "etc/shadow", Text: "root:*:::::::\n", Mode: 0o640, GID: 42}},
		"own":   {{Name: "etc/passwd", Text: "root:x:0:0::/root:/bin/sh\nuser:x:77:78::/srv:/bin/sh\n"}, {Name: "srv/", UID: 77, GID: 78}},
		"group": {{Name: "etc/passwd", Text: "root:x:0:0::/root:/bin/sh\n"}, {Name: "etc/group", Text: "root:x:0:\nuser:x:9:"}},
		"link":  {{Name: "etc", To: "usr/etc"}, {Name: "usr/etc/passwd", Text: "root:x:0:0::/root:/bin/sh\n"}, {Name: "usr/etc/group", To: "../../../../nowhere"}},
	} {
		img := shellImage(t)
		img.Layers = [][]byte{cat}
		if accounts != nil {
			img.Layers = append(img.Layers, ocitest.Layer(t, accounts...))
		}
		p.Push("web", tag, img)
	}
	for tag, want := range map[string]string{
		"nobody": "1000 1000 /home/user hello 1000:1000", "some": "1001 1001 /home/user hello 1001:1001", "own": "77 78 /srv hello 77:78",
		"group": "1000 9 /home/user hello 1000:9", "link": "1000 1000 /home/user hello 1000:1000",
	} {
		line := "echo $(id -u) $(id -g) $(pwd) $GREETING $(stat -c %u:%g .) > made"
		b, log := built(t, d, driver.BuildSpec{Name: tag, FromImage: p.Host + "/web:" + tag, Pull: driver.Pull{Owner: true}, AsParent: true,
			Steps: []driver.Step{step("RUN", line), step("RUN", "stat -c '%a %u:%g' /etc/shadow > shadow || true", "root")}})
		if b.Status != driver.BuildReady {
			t.Errorf("%s: %+v\n%s", tag, b, log)
			continue
		}
		s, err := d.Create(t.Context(), driver.Spec{Template: tag})
		proctest.Must(t, err)
		if got := shOut(t, s, "cat made; echo $(id -u) $(id -g) $(pwd) $GREETING $(stat -c %u:%g .)"); got != want+"\n"+want+"\n" {
			t.Errorf("%s: it sees %q", tag, got)
		}
		if got := shOut(t, s, "cat shadow"); tag == "some" && got != "640 0:42\n" {
			t.Errorf("%s: %q", tag, got)
		}
	}
}
