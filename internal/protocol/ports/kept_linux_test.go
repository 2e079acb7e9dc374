package ports_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tend-run/tend/internal/core/client"
	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/protocol/ports"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/local"
	"github.com/tend-run/tend/internal/sandbox/route"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// house is a server of isolated sandboxes.
type house struct {
	*server
	driver *local.Driver
	self   string // this program
}

func openHouse(t *testing.T) *house {
	t.Helper()
	proctest.Root(t)
	m := testkeeper.New(t).(*client.Manager)
	d, err := local.Open(local.Config{
		Dir: filepath.Join(t.TempDir(), "sandboxes"), Manager: m, Engine: m.Containers(),
		Inside: func(r local.Root) process.Manager { return m.In(r) },
	})
	if err == nil {
		err = d.Unable(t.Context())
	}
	self, selfErr := os.Executable()
	if err := errors.Join(err, selfErr); err != nil {
		t.Fatal(err)
	}
	p := ports.New(ports.Config{Sandboxes: &route.Router{Driver: d, Domains: []string{"box.example"}}, Secret: protocol.NewSecret()})
	outside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h, _ := p.Hosts(r); h != nil {
			h.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() {
		p.Close()
		outside.CloseClientConnections()
		outside.Close()
	})
	return &house{server: &server{t: t, url: outside.URL}, driver: d, self: self}
}

// sandbox makes a sandbox.
func (h *house) sandbox() (driver.Sandbox, string) {
	h.t.Helper()
	s, err := h.driver.Create(h.t.Context(), driver.Spec{
		Network: driver.Network{Public: true},
		Shares:  []driver.Share{{Source: filepath.Dir(h.self), Target: "/test", ReadOnly: true}},
	})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = s.Destroy(h.t.Context()) })
	info, err := s.Info(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	return s, string(info.ID)
}

// web starts the web server in a sandbox, and returns once it answers.
func (h *house) web(s driver.Sandbox, id, name string) process.Process {
	h.t.Helper()
	p := proctest.Start(h.t, s.Processes(), process.Spec{Argv: []string{"/test/" + filepath.Base(h.self), webArg, name}})
	proctest.Eventually(h.t, name+" answers", func() bool {
		res, text := h.get("/", sandboxName(id))
		return res.StatusCode == http.StatusOK && strings.HasPrefix(text, name+" ")
	})
	return p
}

func sandboxName(id string) string { return name(webPort, id) }

// want makes a request and returns the answer, which must begin with what is given.
func (h *house) want(id, begins string) string {
	h.t.Helper()
	res, text := h.get("/", sandboxName(id))
	if res.StatusCode != http.StatusOK || !strings.HasPrefix(text, begins) {
		h.t.Fatalf("%s %s; want %s", res.Status, text, begins)
	}
	return text
}

// refused makes a request that cannot be served.
func (h *house) refused(id, says string) {
	h.t.Helper()
	if res, text := h.get("/", sandboxName(id)); res.StatusCode != http.StatusBadGateway || !strings.Contains(text, says) {
		h.t.Fatalf("%s %s; want 502 and %q", res.Status, text, says)
	}
}

// TestAKeptConnectionIsOfOneProgramAlone: whatever happens to the program or to its
// sandbox, the next request goes to the one that is there then, or to none.
func TestAKeptConnectionIsOfOneProgramAlone(t *testing.T) {
	h := openHouse(t)
	one, a := h.sandbox()
	other, b := h.sandbox()
	first := h.web(one, a, "first")
	h.web(other, b, "other")
	kept, beside := h.want(a, "first "), h.want(b, "other ")
	for range 3 { // in turns
		if got := h.want(a, "first "); got != kept {
			t.Errorf("a request came by %s; want the connection of before, %s", got, kept)
		}
		if got := h.want(b, "other "); got != beside {
			t.Errorf("a request came by %s; want the connection of before, %s", got, beside)
		}
	}

	proctest.Must(t, first.Signal(t.Context(), int(syscall.SIGKILL), process.ScopeTree))
	proctest.Wait(t, first, process.Until{})
	h.refused(a, "port is not open")
	h.web(one, a, "second")

	proctest.Must(t, one.Stop(t.Context()))
	h.refused(a, "not found")
	proctest.Must(t, one.Start(t.Context()))
	h.refused(a, "port is not open")
	h.web(one, a, "third")

	before := h.want(a, "third ")
	proctest.Must(t, h.driver.Pause(t.Context(), driver.ID(a), driver.PauseSpec{Memory: true}))
	h.refused(a, "not found")
	proctest.Must(t, h.driver.Resume(t.Context(), driver.ID(a)))
	if got := h.want(a, "third "); got != before {
		t.Errorf("after a pause a request came by %s; want the connection of before, %s", got, before)
	}

	proctest.Must(t, one.Destroy(t.Context()))
	h.refused(a, "not found")
	if got := h.want(b, "other "); got != beside {
		t.Errorf("the other sandbox was asked by %s; want %s", got, beside)
	}
}

// TestARequestThatActsIsSentOnce, also when a kept connection ends without an answer.
func TestARequestThatActsIsSentOnce(t *testing.T) {
	h := openHouse(t)
	s, id := h.sandbox()
	h.web(s, id, "web")
	for i := range 5 {
		h.want(id, "web ") // so that there is a connection
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.url+"/drop", strings.NewReader("order"))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = strings.TrimPrefix(sandboxName(id), "Host: ")
		res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != http.StatusBadGateway {
			t.Errorf("%s %s, %v; want 502", res.Status, text, err)
		}
		if _, n := h.get("/dropped", sandboxName(id)); n != fmt.Sprint(i+1) {
			t.Errorf("after %d requests, %s have come", i+1, n)
		}
	}
}
