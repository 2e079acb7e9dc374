package ocitest

import (
	"bytes"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/tend-run/tend/internal/support/proctest"
)

// Registry is a registry on this machine, whose answers a test may change.
type Registry struct {
	T    testing.TB
	Host string
	// Change answers a request in the place of the registry, if it returns true.
	Change func(w http.ResponseWriter, r *http.Request, next http.Handler) bool
	asked  sync.Map // paths: how often, *atomic.Int32
}

// NewRegistry starts an empty one.
func NewRegistry(t testing.TB) *Registry {
	t.Helper()
	p := &Registry{T: t}
	next := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := p.asked.LoadOrStore(r.Method+" "+r.URL.Path, new(atomic.Int32))
		n.(*atomic.Int32).Add(1)
		if p.Change == nil || r.Method != http.MethodGet || !p.Change(w, r, next) {
			next.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(s.Close)
	p.Host = strings.TrimPrefix(s.URL, "http://")
	return p
}

// Times is how often a path was asked for.
func (p *Registry) Times(path string) int {
	n, ok := p.asked.Load("GET " + path)
	if !ok {
		return 0
	}
	return int(n.(*atomic.Int32).Load())
}

// Put stores something.
func (p *Registry) Put(path, kind string, body []byte) {
	p.T.Helper()
	method := http.MethodPut
	if strings.Contains(path, "/uploads/") {
		method = http.MethodPost
	}
	r := proctest.Value(http.NewRequest(method, "http://"+p.Host+path, bytes.NewReader(body)))(p.T)
	r.Header.Set("Content-Type", kind)
	resp := proctest.Value(http.DefaultClient.Do(r))(p.T)
	resp.Body.Close()
	if resp.StatusCode >= 300 {
		p.T.Fatalf("%s %s: %s", method, path, resp.Status)
	}
}

// Push stores an image, and returns its manifest.
func (p *Registry) Push(repo, tag string, img *Image) []byte {
	p.T.Helper()
	manifest, blobs := img.Manifest(p.T)
	for d, b := range blobs {
		p.Put("/v2/"+repo+"/blobs/uploads/?digest="+d.String(), "application/octet-stream", b)
	}
	p.Put("/v2/"+repo+"/manifests/"+tag, string(types.OCIManifestSchema1), manifest)
	return manifest
}
