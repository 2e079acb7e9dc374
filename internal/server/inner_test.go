package server

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/protocol/module"
	"github.com/tend-run/tend/internal/sandbox/driver"
	where "github.com/tend-run/tend/internal/sandbox/route"
	"github.com/tend-run/tend/internal/support/proctest"
)

// whose answers with the sandbox that a request comes from and the names that are left of
// it, on a route for sandboxes and one that is not.
type whose struct{}

func (whose) Name() string { return "whose" }

func (whose) Routes() []module.Route {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, where.Inside(r.Context()), " ", r.Host, r.Header.Get("E2b-Sandbox-Id"), r.Header.Get("X-Forwarded-Host"))
	})
	return []module.Route{
		{Pattern: "/inside", Handler: h, Access: module.Own, Inside: true}, {Pattern: "/outside", Handler: h, Access: module.Own},
	}
}

// Hosts answers all requests for its name, as names of sandboxes are answered, and those for a port of the server's own inside.
func (whose) Hosts(r *http.Request) (http.Handler, bool) {
	if r.Host != "hosted" {
		return nil, false
	}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hosted") }), true
}

// Programs inside reach what is for their own sandbox, and nothing else; they take nobody's
// connection.
func TestProgramsInsideReachTheirSandboxAlone(t *testing.T) {
	t.Parallel()
	doors := new(where.Doors)
	early, late := proctest.Value(net.Listen("tcp", "127.0.0.1:0"))(t), proctest.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	ids := []driver.ID{driver.NewID(), driver.NewID()}
	doors.Open(ids[0], early) // before the server runs
	serve(t, func(c *Config) {
		c.Doors, c.Parts, c.Limits.Connections = doors, []module.Part{whose{}}, 1000
		c.Token = "secret" // which they do not need
	})
	doors.Open(ids[1], late)
	get := func(l net.Listener, path, host string) (int, string) {
		req := proctest.Value(http.NewRequestWithContext(t.Context(), "GET", "http://"+l.Addr().String()+path, nil))(t)
		req.Header.Set("E2b-Sandbox-Id", string(driver.NewID()))
		req.Header.Set("X-Forwarded-Host", "x")
		if req.Host = host; host == "" {
			req.Host = "49983-" + string(ids[0]) + ".localhost"
		}
		res := proctest.Value((&http.Transport{DisableKeepAlives: true}).RoundTrip(req))(t)
		defer res.Body.Close()
		return res.StatusCode, string(proctest.Value(io.ReadAll(res.Body))(t))
	}
	for i, l := range []net.Listener{early, late} {
		for _, host := range []string{"", "hosted"} {
			if status, text := get(l, "/inside", host); status != 200 || text != string(ids[i])+" localhost" {
				t.Errorf("listener %d: %d %q", i, status, text)
			}
		}
		for _, path := range []string{"/outside", "/-/healthz", "/-/metrics", "/nothing", "/", "//outside"} {
			for _, host := range []string{"", "hosted"} {
				if status, text := get(l, path, host); status != 404 && status != 307 && status != 301 {
					t.Errorf("%s: %d %q", path, status, text)
				}
			}
		}
	}
	// Above the limit of one sandbox a connection is reset; others have theirs.
	answered := func() (net.Conn, bool) {
		c, err := net.Dial("tcp", early.Addr().String())
		if err != nil {
			return nil, false // it was reset at once
		}
		t.Cleanup(func() { c.Close() })
		proctest.Must(t, c.SetDeadline(time.Now().Add(time.Minute)))
		if _, err := io.WriteString(c, "GET /inside HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			return c, false
		}
		n, _ := c.Read(make([]byte, 4096))
		return c, n > 0
	}
	var open []net.Conn
	for range innerConns + 8 {
		if c, ok := answered(); ok {
			open = append(open, c)
		}
	}
	if len(open) != innerConns {
		t.Errorf("%d connections are served", len(open))
	}
	if status, _ := get(late, "/inside", ""); status != 200 {
		t.Errorf("another sandbox gets %d", status)
	}
	for _, c := range open {
		c.Close()
	}
	proctest.Eventually(t, "there is a place again", func() bool { _, ok := answered(); return ok })
}
