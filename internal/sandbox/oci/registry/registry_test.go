package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"math/rand"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/oci"
	"github.com/tend-run/tend/internal/sandbox/oci/ocitest"
	"github.com/tend-run/tend/internal/support/proctest"
)

type place struct{ *ocitest.Registry }

func open(t testing.TB) *place { return &place{ocitest.NewRegistry(t)} }

func (p *place) ref(text string) oci.Reference {
	p.T.Helper()
	return proctest.Value(oci.ParseReference(p.Host + "/" + text))(p.T)
}

// fetched are the layers of an image, as they come.
func fetched(t testing.TB, c *Config, req *Request) ([][]byte, error) {
	t.Helper()
	m, err := c.Find(t.Context(), req)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	dir := t.TempDir()
	var last atomic.Int64
	b, stop := m.Fetch(t.Context(), 0, Sink{File: func() (*os.File, error) { return os.CreateTemp(dir, "") },
		Progress: func(done, _ int64) { last.Store(done) }})
	var all [][]byte
	for _, l := range b.Layers {
		r, err := l.Open(t.Context())
		proctest.Must(t, err)
		got, err := io.ReadAll(r)
		if err != nil {
			return nil, errors.Join(err, stop())
		}
		all = append(all, got)
	}
	proctest.Must(t, stop())
	if left := proctest.Value(os.ReadDir(dir))(t); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if n := int64(len(bytes.Join(all, nil))); last.Load() != n {
		t.Errorf("the progress ends at %d of %d bytes", last.Load(), n)
	}
	return all, nil
}

func image(t testing.TB, pack func(testing.TB, []byte) []byte) *ocitest.Image {
	noise := make([]byte, 300_000)
	rand.New(rand.NewSource(1)).Read(noise)
	return &ocitest.Image{Pack: pack, Layers: [][]byte{
		ocitest.Layer(t, ocitest.File{Name: "a", Text: string(noise)}), ocitest.Layer(t, ocitest.File{Name: "b", Text: "2"}),
		ocitest.Layer(t, ocitest.File{Name: "c", Text: "3"}), ocitest.Layer(t, ocitest.File{Name: "d", Text: "4"}),
		ocitest.Layer(t, ocitest.File{Name: "e", Text: "5"}), ocitest.Layer(t, ocitest.File{Name: "f", Text: "6"}),
	}}
}

func wantLayers(t testing.TB, got [][]byte, err error, img *ocitest.Image) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range img.Packed(t) {
		if !bytes.Equal(got[i], l) {
			t.Errorf("layer %d differs", i)
		}
	}
}

func TestAnImageIsFetchedByTagAndByDigest(t *testing.T) {
	p, img := open(t), image(t, ocitest.Gzip)
	manifest := p.Push("a/b", "1", img)
	d := ocitest.Hash(manifest).String()
	for _, text := range []string{"a/b:1", "a/b@" + d} {
		got, err := fetched(t, &Config{}, &Request{Ref: p.ref(text)})
		wantLayers(t, got, err, img)
	}
	m := proctest.Value((&Config{}).Find(t.Context(), &Request{Ref: p.ref("a/b:1")}))(t)
	defer m.Close()
	if m.Digest != d || string(m.Config) != string(img.JSON(t)) {
		t.Errorf("%s\n%s", m.Digest, m.Config)
	}
}

func TestOfAnIndexTheImageOfThisMachineIsFetched(t *testing.T) {
	p, img := open(t), image(t, ocitest.Zstd)
	manifest := p.Push("x", "own", img)
	own := oci.Own().Platform
	index := func(all ...v1.Descriptor) []byte {
		return proctest.Value(json.Marshal(v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: all}))(t)
	}
	one := v1.Descriptor{MediaType: types.OCIManifestSchema1, Digest: ocitest.Hash(manifest), Size: int64(len(manifest)), Platform: &own}
	far := v1.Descriptor{MediaType: types.OCIManifestSchema1, Digest: ocitest.Hash([]byte("far")), Platform: &v1.Platform{OS: "linux", Architecture: "s390x"}}
	none := v1.Descriptor{MediaType: types.OCIManifestSchema1, Digest: ocitest.Hash([]byte("none")), Platform: &v1.Platform{OS: "unknown", Architecture: "unknown"}}
	lists := map[string][]byte{}
	p.Change = func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		b, ok := lists[strings.TrimPrefix(r.URL.Path, "/v2/x/manifests/")]
		w.Write(b)
		return ok
	}
	put := func(tag string, b []byte) { lists[tag], lists[ocitest.Hash(b).String()] = b, b }
	put("many", index(far, none, one))
	got, err := fetched(t, &Config{}, &Request{Ref: p.ref("x:many")})
	wantLayers(t, got, err, img)
	put("foreign", index(far, none))
	if _, err := fetched(t, &Config{}, &Request{Ref: p.ref("x:foreign")}); err == nil || !strings.Contains(err.Error(), "it is for: linux/s390x") {
		t.Errorf("%v", err)
	}
	inner := index(one)
	for n := range 5 {
		put(fmt.Sprint("nest", n), inner)
		inner = index(v1.Descriptor{MediaType: types.OCIImageIndex, Digest: ocitest.Hash(inner), Size: int64(len(inner)), Platform: &own})
	}
	if _, err := fetched(t, &Config{}, &Request{Ref: p.ref("x:nest1")}); err != nil {
		t.Errorf("%v", err)
	}
	if _, err := fetched(t, &Config{}, &Request{Ref: p.ref("x:nest4")}); err == nil || !strings.Contains(err.Error(), "an index in an index") {
		t.Errorf("%v", err)
	}
}

func TestALayerThatIsCutOffIsContinued(t *testing.T) {
	p, img := open(t), image(t, nil)
	p.Push("x", "1", img)
	big := "/v2/x/blobs/" + ocitest.Hash(img.Layers[0]).String()
	for name, ranges := range map[string]bool{"by a range": true, "from its beginning": false} {
		t.Run(name, func(t *testing.T) {
			var n, continued atomic.Int32
			p.Change = func(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
				if r.URL.Path != big {
					return false
				}
				if r.Header.Get("Range") != "" {
					continued.Add(1)
				}
				if !ranges {
					r.Header.Del("Range")
				}
				if n.Add(1) > 3 {
					return false
				}
				from := 0
				if text := r.Header.Get("Range"); text != "" {
					fmt.Sscanf(text, "bytes=%d-", &from) // the rest says where it ends
					w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(img.Layers[0])-1, len(img.Layers[0])))
				}
				w.Header().Set("Content-Length", fmt.Sprint(len(img.Layers[0])-from))
				if from > 0 {
					w.WriteHeader(http.StatusPartialContent)
				}
				w.Write(img.Layers[0][from : from+50_000*int(n.Load())/(1+from/100_000)])
				panic(http.ErrAbortHandler)
			}
			got, err := fetched(t, &Config{}, &Request{Ref: p.ref("x:1")})
			wantLayers(t, got, err, img)
			if continued.Load() == 0 {
				t.Error("no request had a range")
			}
		})
	}
}

func TestARegistryThatIsSilentIsLeft(t *testing.T) {
	t.Parallel()
	p, img := open(t), image(t, nil)
	p.Push("x", "1", img)
	p.Change = func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if !strings.Contains(r.URL.Path, "/blobs/"+ocitest.Hash(img.Layers[0]).String()) {
			return false
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(img.Layers[0])))
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return true
	}
	_, err := fetched(t, &Config{Silence: 3 * time.Second}, &Request{Ref: p.ref("x:1")})
	if !errors.Is(err, errCut) || !strings.Contains(err.Error(), "has sent nothing") {
		t.Errorf("%v", err)
	}
}

func TestCredentialsDoNotFollowARedirect(t *testing.T) {
	p, img := open(t), image(t, nil)
	p.Push("x", "1", img)
	var leaked, right atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			leaked.Add(1)
		}
		resp := proctest.Value(http.Get("http://" + p.Host + "/plain" + r.URL.Path))(t)
		defer resp.Body.Close()
		io.Copy(w, resp.Body)
	}))
	defer other.Close()
	p.Change = func(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
		if path, ok := strings.CutPrefix(r.URL.Path, "/plain"); ok {
			r.URL.Path = path
			next.ServeHTTP(w, r)
			return true
		}
		if user, password, _ := r.BasicAuth(); user != "me" || password != "secret" {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}
		right.Add(1)
		if !strings.Contains(r.URL.Path, "/blobs/") {
			return false
		}
		http.Redirect(w, r, strings.Replace(other.URL, "127.0.0.1", "localhost", 1)+r.URL.Path, http.StatusTemporaryRedirect)
		return true
	}
	req := &Request{Ref: p.ref("x:1"), Credentials: &Credentials{"me", "secret"}}
	got, err := fetched(t, &Config{}, req)
	wantLayers(t, got, err, img)
	if leaked.Load() != 0 || right.Load() == 0 {
		t.Errorf("%d requests of another host had credentials; %d of the registry", leaked.Load(), right.Load())
	}
	keys := chain{p.Host: {Username: "me", Password: "secret"}}
	got, err = fetched(t, &Config{Keychain: keys}, &Request{Ref: p.ref("x:1"), Machine: true})
	wantLayers(t, got, err, img)
	for name, req := range map[string]*Request{
		"none": {Ref: p.ref("x:1")}, "wrong ones": {Ref: p.ref("x:1"), Credentials: &Credentials{"me", "wrong"}},
	} {
		_, err := fetched(t, &Config{Keychain: keys}, req)
		if _, ok := errors.AsType[*driver.InvalidError](err); !ok || !strings.Contains(err.Error(), "access denied to '"+p.Host+"/x:1'") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

type chain map[string]authn.AuthConfig

func (c chain) Resolve(r authn.Resource) (authn.Authenticator, error) {
	if a, ok := c[r.RegistryStr()]; ok {
		return authn.FromConfig(a), nil
	}
	return authn.Anonymous, nil
}

func TestATokenIsFetchedAndUsed(t *testing.T) {
	p, img := open(t), image(t, nil)
	p.Push("x/y", "1", img)
	p.Change = func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		switch {
		case r.URL.Path == "/token":
			user, password, _ := r.BasicAuth()
			if user != "me" || password != "secret" || r.URL.Query().Get("scope") != "repository:x/y:pull" {
				w.WriteHeader(http.StatusForbidden)
				return true
			}
			io.WriteString(w, `{"token":"good"}`)
		case r.Header.Get("Authorization") != "Bearer good":
			w.Header().Set("WWW-Authenticate", `Bearer realm="http://`+p.Host+`/token",service="s"`)
			w.WriteHeader(http.StatusUnauthorized)
		default:
			return false
		}
		return true
	}
	got, err := fetched(t, &Config{}, &Request{Ref: p.ref("x/y:1"), Credentials: &Credentials{"me", "secret"}})
	wantLayers(t, got, err, img)
}

func TestARegistryThatIsBusyIsAskedAgain(t *testing.T) {
	p, img := open(t), image(t, nil)
	p.Push("x", "1", img)
	var n atomic.Int32
	p.Change = func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if !strings.Contains(r.URL.Path, "/manifests/") || n.Add(1) > 2 {
			return false
		}
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(map[int32]int{1: http.StatusTooManyRequests, 2: http.StatusBadGateway}[n.Load()])
		return true
	}
	got, err := fetched(t, &Config{}, &Request{Ref: p.ref("x:1")})
	wantLayers(t, got, err, img)
	p.Change = func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if !strings.Contains(r.URL.Path, "/manifests/") {
			return false
		}
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusTooManyRequests)
		return true
	}
	if _, err := fetched(t, &Config{}, &Request{Ref: p.ref("x:1")}); !errors.Is(err, driver.ErrLimit) {
		t.Errorf("%v", err)
	}
}

func TestARegistryThatLiesIsNotBelieved(t *testing.T) {
	img := image(t, nil)
	manifest, _ := img.Manifest(t)
	digest := ocitest.Hash(manifest).String()
	first := ocitest.Hash(img.Layers[0]).String()
	answer := func(part, body string) func(http.ResponseWriter, *http.Request, http.Handler) bool {
		return func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
			if !strings.Contains(r.URL.Path, part) {
				return false
			}
			io.WriteString(w, body)
			return true
		}
	}
	for name, c := range map[string]struct {
		change func(http.ResponseWriter, *http.Request, http.Handler) bool
		ref    string
		want   string
	}{
		"another manifest":        {answer("/manifests/", strings.Replace(string(manifest), "{", "{ ", 1)), "x@" + digest, "was promised"},
		"no JSON":                 {answer("/manifests/", "<html>"), "x:1", "cannot be read"},
		"a huge manifest":         {answer("/manifests/", strings.Repeat(" ", oci.MaxJSON+1)), "x:1", "more than"},
		"another configuration":   {answer("/blobs/"+ocitest.Hash(img.JSON(t)).String(), "{}"), "x:1", "was promised"},
		"an old manifest":         {answer("/manifests/", `{"schemaVersion":1}`), "x:1", "schema 1"},
		"a layer that is longer":  {answer("/blobs/"+first, strings.Repeat("x", 2_000_000)), "x:1", "more than the"},
		"an image that is absent": {nil, "y:1", "does not exist in the registry"},
		"a redirect in a ring": {func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
			if strings.Contains(r.URL.Path, "/manifests/") {
				http.Redirect(w, r, r.URL.Path, http.StatusFound)
				return true
			}
			return false
		}, "x:1", "again and again"},
		"a redirect to plain HTTP of another": {func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
			if strings.Contains(r.URL.Path, "/manifests/") {
				http.Redirect(w, r, "http://169.254.169.254/latest", http.StatusFound)
				return true
			}
			return false
		}, "x:1", "is plain HTTP"},
		"a layer without a digest": {answer("/manifests/", strings.Replace(string(manifest), `"digest":"`+first+`"`, `"x":"y"`, 1)), "x:1",
			"no digest of its layer 1"},
		"an index without a digest": {answer("/manifests/", `{"schemaVersion":2,"manifests":[{"size":1}]}`), "x:1", "without a digest"},
		"a manifest of no image": {answer("/manifests/", `{"schemaVersion":2,"config":{"mediaType":"application/vnd.wasm.config.v0+json","digest":"`+digest+`"}}`), "x:1",
			"application/vnd.wasm.config"},
	} {
		t.Run(name, func(t *testing.T) {
			p := open(t)
			p.Push("x", "1", img)
			p.Change = c.change
			if _, err := fetched(t, &Config{}, &Request{Ref: p.ref(c.ref)}); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v; want %q", err, c.want)
			}
		})
	}
}

func TestSizesThatAreNoneAreTooLarge(t *testing.T) {
	m := &Image{Layers: []v1.Descriptor{{Size: math.MaxInt64}, {Size: math.MaxInt64}, {Size: 4}}}
	if m.Size(0) != math.MaxInt64 || m.Size(2) != 4 || m.Size(3) != 0 {
		t.Errorf("%d, %d, %d", m.Size(0), m.Size(2), m.Size(3))
	}
}

func TestAFetchEndsBeforeTheDiskIsFull(t *testing.T) {
	p, img := open(t), image(t, nil)
	img.Layers = append(img.Layers, bytes.Repeat([]byte("x"), leastRoom))
	p.Push("x", "1", img)
	m := proctest.Value((&Config{}).Find(t.Context(), &Request{Ref: p.ref("x:1")}))(t)
	defer m.Close()
	dir := t.TempDir()
	b, stop := m.Fetch(t.Context(), 0, Sink{File: func() (*os.File, error) { return os.CreateTemp(dir, "") }, Room: func() int64 { return 1 }})
	r := proctest.Value(b.Layers[len(b.Layers)-1].Open(t.Context()))(t)
	if n, err := io.Copy(io.Discard, r); !errors.Is(err, driver.ErrLimit) || n >= leastRoom {
		t.Errorf("%d bytes, %v", n, err)
	}
	proctest.Must(t, stop())
}

// Whoever stops to read a layer does not wait for the registry.
func TestAReaderOfALayerEndsAtOnce(t *testing.T) {
	p, img := open(t), image(t, nil)
	p.Push("x", "1", img)
	p.Change = func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if !strings.Contains(r.URL.Path, "/blobs/"+ocitest.Hash(img.Layers[0]).String()) {
			return false
		}
		<-r.Context().Done()
		return true
	}
	m := proctest.Value((&Config{}).Find(t.Context(), &Request{Ref: p.ref("x:1")}))(t)
	defer m.Close()
	dir := t.TempDir()
	b, stop := m.Fetch(t.Context(), 0, Sink{File: func() (*os.File, error) { return os.CreateTemp(dir, "") }})
	r := proctest.Value(b.Layers[0].Open(t.Context()))(t)
	over := make(chan error, 1)
	go func() {
		_, err := r.Read(make([]byte, 1))
		over <- err
	}()
	proctest.Must(t, errors.Join(r.Close(), r.Close()))
	select {
	case err := <-over:
		if !errors.Is(err, os.ErrClosed) {
			t.Errorf("%v", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("it waits for more")
	}
	proctest.Must(t, stop())
}

func TestWhatServersSaySecretlyIsInNoError(t *testing.T) {
	p, img := open(t), image(t, nil)
	p.Push("x", "1", img)
	token := ""
	p.Change = func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		switch {
		case r.URL.Path == "/token":
			io.WriteString(w, token)
		case r.Header.Get("Authorization") != "Bearer good":
			w.Header().Set("WWW-Authenticate", `Bearer realm="http://`+p.Host+`/token",service="s"`)
			w.WriteHeader(http.StatusUnauthorized)
		case strings.Contains(r.URL.Path, "/blobs/"):
			http.Redirect(w, r, "http://127.0.0.1:1/x?signature=hidden", http.StatusTemporaryRedirect)
		default:
			return false
		}
		return true
	}
	for _, token = range []string{`{"token":"good"}`, `{"refresh_token":"hidden"}`} {
		_, err := fetched(t, &Config{}, &Request{Ref: p.ref("x:1")})
		if err == nil || strings.Contains(err.Error(), "hidden") || !strings.Contains(err.Error(), "cannot be fetched: ask "+p.Host) {
			t.Errorf("%s: %v", token, err)
		}
	}
}

// An answer to a ping, a token or an error may be without an end.
func TestAnAnswerWithoutAnEndIsLeft(t *testing.T) {
	for name, drips := range map[string]bool{"as fast as can be": false, "a byte from time to time": true} {
		for _, path := range []string{"/v2/", "/token", "/v2/x/manifests/1"} {
			t.Run(name+" at "+path, func(t *testing.T) {
				p := open(t)
				var sent atomic.Int64
				p.Change = func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
					if path == "/token" && r.URL.Path == "/v2/" {
						w.Header().Set("WWW-Authenticate", `Bearer realm="http://`+p.Host+`/token"`)
						w.WriteHeader(http.StatusUnauthorized)
						return true
					}
					if r.URL.Path != path {
						return false
					}
					w.WriteHeader(map[bool]int{true: http.StatusOK, false: http.StatusNotFound}[path == "/token"])
					for r.Context().Err() == nil {
						b := make([]byte, 1<<20)
						if drips {
							b = b[:1]
							time.Sleep(20 * time.Millisecond)
						}
						n, err := w.Write(b)
						w.(http.Flusher).Flush()
						if sent.Add(int64(n)); err != nil {
							break
						}
					}
					return true
				}
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				_, err := (&Config{Silence: 300 * time.Millisecond}).Find(ctx, &Request{Ref: p.ref("x:1")})
				if err == nil || ctx.Err() != nil || sent.Load() > 32<<20 {
					t.Errorf("%v; %d bytes were sent", err, sent.Load())
				}
			})
		}
	}
}

func TestARegistryElsewhereLeadsToNoPlainPortOfThisMachine(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	for host, may := range map[string]bool{"registry.example": false, "127.0.0.1:1": true} {
		g := proctest.Value((&Config{}).transport(host, may, nil, false, new(atomic.Bool)))(t)
		resp, err := g.RoundTrip(proctest.Value(http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, nil))(t))
		if (err == nil) != may {
			t.Errorf("%s: %v", host, err)
		}
		if err == nil {
			resp.Body.Close()
		}
	}
}

func TestACallerLeadsNoRequestToThisMachine(t *testing.T) {
	p, img := open(t), image(t, nil)
	p.Push("x", "1", img)
	refused := errors.New("this machine is not for images")
	req := &Request{Ref: p.ref("x:1"), May: func(a netip.AddrPort) error {
		if a.Addr().IsLoopback() {
			return refused
		}
		return nil
	}}
	if _, err := fetched(t, &Config{}, req); !errors.Is(err, refused) {
		t.Errorf("%v", err)
	}
	if p.Times("/v2/") != 0 {
		t.Error("it was asked")
	}
	far := proctest.Value(oci.ParseReference("192.0.2.1:80/x"))(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := (&Config{}).Find(ctx, &Request{Ref: far}); err == nil {
		t.Error("plain HTTP to another machine")
	}
}

func TestAMirrorStandsForARegistry(t *testing.T) {
	p, img := open(t), image(t, nil)
	p.Push("hub/library/ubuntu", "22.04", img)
	at := proctest.Value(url.Parse("http://" + p.Host + "/hub"))(t)
	c := &Config{Mirrors: map[string][]*url.URL{"docker.io": {at}}}
	ref := proctest.Value(oci.ParseReference("ubuntu:22.04"))(t)
	got, err := fetched(t, c, &Request{Ref: ref, Credentials: &Credentials{"me", "secret"}})
	wantLayers(t, got, err, img)

	// What a mirror has not is asked of the registry.
	q := open(t)
	q.Push("y", "1", img)
	c = &Config{Mirrors: map[string][]*url.URL{q.Host: {at}}}
	got, err = fetched(t, c, &Request{Ref: q.ref("y:1")})
	wantLayers(t, got, err, img)
	if p.Times("/v2/hub/y/manifests/1") != 1 {
		t.Error("the mirror was not asked")
	}
}

func TestARegistryHasCertificatesOfItsOwn(t *testing.T) {
	img := image(t, nil)
	p := open(t)
	p.Push("x", "1", img)
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		resp := proctest.Value(http.Get("http://" + p.Host + r.URL.Path))(t)
		defer resp.Body.Close()
		w.WriteHeader(resp.StatusCode)
		io.Copy(w, resp.Body)
	}))
	defer s.Close()
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	host := strings.TrimPrefix(s.URL, "https://")
	c := &Config{Mirrors: map[string][]*url.URL{"docker.io": {proctest.Value(url.Parse(s.URL))(t)}}}
	ref := oci.Reference{Host: "docker.io", Path: "x", Tag: "1"}
	s1 := proctest.Value(url.Parse(s.URL))(t)
	if _, err := c.open(t.Context(), &Request{Ref: ref}, s1); err == nil {
		t.Error("it is believed without its certificate")
	}
	dir := filepath.Join(t.TempDir(), "certs.d")
	proctest.Must(t, os.MkdirAll(filepath.Join(dir, host), 0o755))
	proctest.Must(t, os.WriteFile(filepath.Join(dir, host, "ca.crt"), pemOf(s.Certificate().Raw), 0o644))
	c.Certificates = []string{dir}
	got, err := fetched(t, c, &Request{Ref: ref})
	wantLayers(t, got, err, img)
}

func pemOf(der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}) }
