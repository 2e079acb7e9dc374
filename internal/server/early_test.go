package server

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	_ "github.com/tend-run/tend/gen/tend/v1"
	_ "github.com/tend-run/tend/internal/gen/envd/filesystem"
	_ "github.com/tend-run/tend/internal/gen/envd/process"
	"github.com/tend-run/tend/internal/protocol/module"
	"github.com/tend-run/tend/internal/support/proctest"
)

// restRoute finds the paths that the faces register: "POST /init".
var restRoute = regexp.MustCompile(`"(?:(GET|POST|PUT|PATCH|DELETE) )?(/[A-Za-z0-9{}._/-]*)"`)

// routes are the methods and paths of all parts: those that they tell, and, of
// patterns that stand for many, the RPC services by their descriptors and the
// others by the sources that register them.
func routes(t *testing.T, s *Server) (all []string) {
	t.Helper()
	for pattern := range s.routes {
		if strings.HasPrefix(pattern, hostPattern) {
			continue // no path: what a sandbox serves asks for its own proof
		}
		if method, path, ok := strings.Cut(pattern, " "); ok {
			all = append(all, method+" "+path)
		} else {
			all = append(all, "GET "+pattern, "POST "+pattern)
		}
	}
	protoregistry.GlobalFiles.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			for j := range s.Methods().Len() {
				all = append(all, fmt.Sprintf("POST /%s/%s", s.FullName(), s.Methods().Get(j).Name()))
			}
		}
		return true
	})
	if len(all) < 30 {
		t.Fatalf("only %d RPCs are known: %v", len(all), all)
	}
	var sources []string
	for _, glob := range []string{"*.go", "../protocol/envd/*.go", "../protocol/envd/envdfs/*.go", "../protocol/langsmith/*.go", "../protocol/e2bapi/*.go"} {
		found := proctest.Value(filepath.Glob(glob))(t)
		sources = append(sources, found...)
	}
	for _, path := range sources {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		text := proctest.Value(os.ReadFile(path))(t)
		// Paths of the data plane are put together from a constant.
		code := strings.ReplaceAll(string(text), `" + dataPath + "`, "/langsmith/")
		for _, m := range restRoute.FindAllStringSubmatch(code, -1) {
			route := m[2]
			if strings.Contains(route, "//") {
				continue // a piece of an URL, and no path of ours
			}
			for _, prefix := range []string{"/boxes", "/snapshots", "/registries"} {
				if strings.HasPrefix(route, prefix) {
					route = "/v2/sandboxes" + route
				}
			}
			route = strings.NewReplacer("{box}", "b", "{snapshot}", "s", "{token}", "t", "{port}", "80", "{id}", "i", "{build}", "b", "{hash}", "h", "{alias}", "a").Replace(route)
			methods := []string{m[1]}
			if m[1] == "" {
				methods = []string{"GET", "POST"}
			}
			for _, method := range methods {
				all = append(all, method+" "+route)
			}
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	for _, known := range []string{"POST /init", "POST /files", "GET /toy", "POST /langsmith/b/execute", "POST /langsmith/b/upload", "POST /v2/sandboxes/boxes", "PATCH /v2/sandboxes/boxes/b", "POST /v2/sandboxes", "POST /sandboxes/i/connect", "PUT /-/e2b/uploads/{token}", "GET /-/metrics"} {
		if !slices.Contains(all, known) {
			t.Fatalf("the routes do not have %s: %v", known, all)
		}
	}
	return all
}

// TestNoBodyIsReadBeforeTheToken asks every route of every face, without the
// token and with wrong ones, and never sends the body that the header promises.
func TestNoBodyIsReadBeforeTheToken(t *testing.T) {
	s := serve(t, func(c *Config) {
		c.Token, c.Parts = "s3cret", []module.Part{&toy{name: "toy", manager: c.Manager}}
	})
	var closed, open atomic.Int32
	var wg sync.WaitGroup
	room := make(chan struct{}, 64)
	for _, route := range routes(t, s.Server) {
		for name, shown := range map[string]string{
			"no token":    "",
			"wrong token": "X-Access-Token: wrong\r\nX-Api-Key: wrong\r\nAuthorization: Bearer wrong\r\n",
		} {
			for _, length := range []string{"Content-Length: 1000000", "Content-Length: 10", "Transfer-Encoding: chunked"} {
				room <- struct{}{}
				wg.Go(func() {
					defer func() { <-room }()
					status := half(t, s, route, shown+length+"\r\nContent-Type: application/json\r\n")
					switch {
					case status == 401 || status == 403:
						closed.Add(1)
					case route == "GET /-/healthz" || route == "GET /-/readyz" || route == "GET /health" || route == "GET /ui/" || route == "GET /ui/session":
						open.Add(1)
					case status != 404 && status != 405:
						t.Errorf("%s with %s and %s, but no body: %d; want 401 or 403", route, name, length, status)
					}
				})
			}
		}
	}
	wg.Wait()
	if closed.Load() < 200 || open.Load() < 3 {
		t.Errorf("%d requests were refused and %d served; the walk misses most routes", closed.Load(), open.Load())
	}
}

// half sends the header of a request and returns the status of the answer.
func half(t *testing.T, s *served, route, header string) int {
	t.Helper()
	conn := proctest.Value(net.Dial("tcp", strings.TrimPrefix(s.tcp, "http://")))(t)
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(40 * time.Second)) // less than a body may pause
	proctest.Value(fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: localhost\r\n%s\r\n", route, header))(t)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Errorf("%s: no answer: %v", route, err)
		return 0
	}
	defer res.Body.Close()
	return res.StatusCode
}
