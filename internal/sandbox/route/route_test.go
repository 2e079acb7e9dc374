package route_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/route"
	"github.com/tend-run/tend/internal/support/proctest"
)

// toy is a driver of a few sandboxes; only what a router asks for is there.
type toy struct {
	driver.Driver
	sandboxes map[string]*toySandbox
}

type toySandbox struct {
	driver.Sandbox
	info driver.Info
}

func (b *toySandbox) Info(context.Context) (driver.Info, error) { return b.info, nil }

var errBroken = errors.New("the driver is broken")

func (t toy) Get(_ context.Context, key string) (driver.Sandbox, error) {
	if key == idBroken {
		return nil, errBroken
	}
	if b := t.sandboxes[key]; b != nil {
		return b, nil
	}
	return nil, driver.ErrNotFound
}

const (
	idA       = "aaaaaaaa-0000-4000-8000-000000000001"
	idB       = "bbbbbbbb-0000-4000-8000-000000000002"
	idStopped = "cccccccc-0000-4000-8000-000000000003"
	idBroken  = "dddddddd-0000-4000-8000-000000000004"
	idNone    = "eeeeeeee-0000-4000-8000-000000000005"
	idPaused  = "ffffffff-0000-4000-8000-000000000006"
	idAsleep  = "abababab-0000-4000-8000-000000000007"
)

func newToy() toy {
	sandbox := func(id string, state driver.State) *toySandbox {
		return &toySandbox{info: driver.Info{ID: driver.ID(id), State: state}}
	}
	a, asleep := sandbox(idA, driver.Ready), sandbox(idAsleep, driver.Paused)
	asleep.info.Wake = true
	return toy{sandboxes: map[string]*toySandbox{idA: a, "name": a, idB: sandbox(idB, driver.Ready), idStopped: sandbox(idStopped, driver.Stopped), idPaused: sandbox(idPaused, driver.Paused), idAsleep: asleep}}
}

func TestARequestGoesToTheSandboxThatItNames(t *testing.T) {
	machine := &toySandbox{}
	open := &route.Router{Driver: newToy(), Default: machine, Domains: []string{"box.example", "other.example"}}
	closed := &route.Router{Driver: newToy()}
	for _, tt := range []struct {
		name, host, header, port string
		router                   *route.Router
		want                     string // "": the default
		wantPort                 int
		unknown                  bool
	}{
		{"nothing", "localhost:49983", "", "", open, "", 0, false},
		{"the ID that clients make up", "127.0.0.1:49983", "debug_sandbox_id", "49983", open, "", 0, false},
		{"an ID with the name of a machine", "127.0.0.1:49983", idA + "-tend", "49983", open, idA + "-tend", 0, true},
		{"an ID without its last letter", "127.0.0.1:49983", idA[:35], "49983", open, idA[:35], 0, true},
		{"an ID that nobody has, by address", "127.0.0.1", idNone, "49983", open, idNone, 0, true},
		{"an ID in capitals that nobody has", "127.0.0.1", strings.ToUpper(idNone), "49983", open, strings.ToUpper(idNone), 0, true},
		{"almost an ID", "127.0.0.1", idNone[1:], "49983", open, idNone[1:], 0, true},
		{"a header", "localhost", idB, "49983", open, idB, 49983, false},
		{"a header in capitals", "localhost", strings.ToUpper(idB), "8080", open, idB, 8080, false},
		{"a header with a name", "localhost", "name", "49983", open, "name", 0, true},
		{"a host name", "49983-" + idA + ".box.example", "", "", open, idA, 49983, false},
		{"a host name with port, dot and capitals", "8080-" + strings.ToUpper(idA) + ".Other.Example.:443", "", "", open, idA, 8080, false},
		{"a host name that differs from the header", "49983-" + idA + ".box.example", idB, "8080", open, idA, 49983, false},
		{"the shared host name", "sandbox.box.example", idB, "49983", open, idB, 49983, false},
		{"the shared host name and no header", "sandbox.box.example", "", "", open, "", 0, true},
		{"a host name of no sandbox", "49983-" + idNone + ".box.example", "", "", open, idNone, 0, true},
		{"a host name of no ID", "49983-debug_sandbox_id.box.example", "", "", open, "debug_sandbox_id", 0, true},
		{"a host name with the name of a sandbox", "49983-name.box.example", "", "", open, "name", 0, true},
		{"a stopped sandbox", "49983-" + idStopped + ".box.example", "", "", open, idStopped, 0, true},
		{"a stopped sandbox, by address", "localhost", idStopped, "49983", open, idStopped, 0, true},
		{"a paused sandbox", "localhost", idPaused, "49983", open, idPaused, 0, true},
		{"a paused sandbox that wakes", "localhost", idAsleep, "49983", open, idAsleep, 49983, false},
		{"a name of this machine", "3000-" + idA + ".localhost:49983", "", "", open, idA, 3000, false},
		{"a name of this machine, of nobody", "3000-" + idNone + ".localhost", "", "", open, idNone, 0, true},
		{"a name of this machine that is no sandbox's", "app-x.localhost", "", "", open, "", 0, false},
		{"a name of this machine before another", "49983-" + idA + ".localhost.evil.example", "", "", open, "", 0, false},
		{"a port that is none", "99999-" + idA + ".localhost", "", "", open, idA, 0, true},
		{"a port that is a word", "web-" + idA + ".localhost", "", "", open, idA, 0, true},
		{"a negative port", "-1-" + idA + ".localhost", "", "", open, idA, 0, true},
		{"no port", "-" + idA + ".localhost", "", "", open, idA, 0, true},
		{"a port in the header that is none", "localhost", idA, "65536", open, idA, 0, true},
		{"a port in the header that is a word", "localhost", idA, "web", open, idA, 0, true},
		{"a port in the header that is a word, and no ID", "localhost", "", "web", open, "", 0, false},
		{"a negative port in the header", "localhost", idA, "-1", open, idA, 0, true},
		{"a domain that is not ours", "49983-" + idA + ".evil.example", "", "", open, "", 0, false},
		{"a domain that ends like ours", "49983-" + idA + ".evilbox.example", "", "", open, "", 0, false},
		{"a label in between", "x.49983-" + idA + ".box.example", "", "", open, idA, 0, true},
		{"without a default, nothing", "localhost", "", "", closed, "", 0, true},
		{"without a default, an ID that nobody has", "localhost", idNone, "49983", closed, idNone, 0, true},
		{"without a default, a header", "localhost", idA, "", closed, idA, 0, false},
		{"without a driver", "localhost", idA, "49983", &route.Router{Default: machine}, idA, 0, true},
	} {
		r := httptest.NewRequest("POST", "/", nil)
		r.Host = tt.host
		for name, value := range map[string]string{"E2b-Sandbox-Id": tt.header, "E2b-Sandbox-Port": tt.port} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		got, err := tt.router.Of(r)
		unknown, is := errors.AsType[*route.UnknownError](err)
		switch {
		case tt.unknown && (!is || !strings.Contains(unknown.ID, tt.want)):
			t.Errorf("%s: %+v, %v; want no sandbox %q", tt.name, got, err, tt.want)
		case tt.unknown:
		case err != nil || got.ID != driver.ID(tt.want) || got.Port != tt.wantPort || got.Asleep != (tt.want == idAsleep) || (tt.want == "") != (got.Access == driver.Access(machine)):
			t.Errorf("%s: %+v, %v; want %q, port %d", tt.name, got, err, tt.want, tt.wantPort)
		}
	}
	r := httptest.NewRequest("POST", "/", nil)
	r.Header.Set("E2b-Sandbox-Id", idBroken)
	if _, err := open.Of(r); !errors.Is(err, errBroken) {
		t.Errorf("of a broken driver: %v", err)
	}
}

// TestANameOfASandboxIsOneWhateverItsPort: the server's own paths are not served there.
func TestANameOfASandboxIsOneWhateverItsPort(t *testing.T) {
	router := &route.Router{Driver: newToy()}
	for _, tt := range []struct {
		host, id, port string
		want           int
		byHost, named  bool
	}{
		{"3000-" + idNone + ".localhost:1", "", "", 3000, true, true},
		{"70000-" + idNone + ".localhost:1", "", "", 0, true, true},
		{"70000-" + idNone + ".localhost:1", idA, "80", 0, true, true},
		{"-1-" + idNone + ".localhost", "", "", 0, true, true},
		{"app-x.localhost", "", "", 0, false, false},
		{"localhost", idNone, "3000", 3000, false, true},
		{"localhost", idNone, "70000", 0, false, false},
		{"localhost", "", "3000", 0, false, false},
	} {
		r := httptest.NewRequest("GET", "/ui/", nil)
		r.Host = tt.host
		r.Header.Set("E2b-Sandbox-Id", tt.id)
		r.Header.Set("E2b-Sandbox-Port", tt.port)
		if port, byHost, named := router.Named(r); port != tt.want || byHost != tt.byHost || named != tt.named {
			t.Errorf("%s, %q, %q: %d, %v, %v", tt.host, tt.id, tt.port, port, byHost, named)
		}
	}
}

// FuzzRouter: whatever the host name and the header, a request goes to a sandbox
// that is ready and that they name, to the default, or nowhere.
func FuzzRouter(f *testing.F) {
	f.Add("49983-"+idA+".box.example:1", idB, "x")
	f.Add("49983-.box.example", "", "-1")
	f.Add(".box.example.", idStopped, "99999999999999999999")
	f.Add("[::1]:80", "debug_sandbox_id", "49983")
	router := &route.Router{Driver: newToy(), Default: &toySandbox{}, Domains: []string{"box.example"}}
	f.Fuzz(func(t *testing.T, host, header, port string) {
		r := httptest.NewRequest("POST", "/", nil)
		r.Host = host
		r.Header["E2b-Sandbox-Id"], r.Header["E2b-Sandbox-Port"] = []string{header}, []string{port}
		got, err := router.Of(r)
		id := string(got.ID)
		switch {
		case err != nil && got.Access == nil:
		case err != nil:
			t.Errorf("%q, %q: %+v, %v", host, header, got, err)
		case id == "" && got.Access == router.Default && (header == "" || header == "debug_sandbox_id"):
		case driver.LikeID(header) && id == "":
			t.Errorf("%q, %q: the machine", host, header)
		case id != idA && id != idB && id != idAsleep || !strings.Contains(strings.ToLower(host+" "+header), id):
			t.Errorf("%q, %q: %q", host, header, got.ID)
		}
	})
}

func (b *toySandbox) Update(_ context.Context, c driver.Change) (driver.Info, error) {
	b.info.Deadline = *c.Deadline
	return b.info, nil
}

func (b *toySandbox) Start(context.Context) error {
	b.info.State = driver.Ready
	return nil
}

func TestASandboxIsWokenForATime(t *testing.T) {
	router := &route.Router{Driver: newToy()}
	for name, end := range map[string]time.Time{"one whose time is up": time.Now().Add(-time.Hour), "one with much time": time.Now().Add(time.Hour), "one without an end": {}} {
		sandbox := router.Driver.(toy).sandboxes[idAsleep]
		sandbox.info.State, sandbox.info.Deadline = driver.Paused, end
		target, err := router.Find(t.Context(), idAsleep)
		if err != nil || !target.Asleep {
			t.Fatal(target, err)
		}
		if sandbox.info.State != driver.Paused {
			t.Errorf("%s was woken by being found", name)
		}
		if err := target.Awake(t.Context()); err != nil || sandbox.info.State != driver.Ready {
			t.Errorf("%s: %v, %v", name, sandbox.info.State, err)
		}
		if left := time.Until(sandbox.info.Deadline); end.IsZero() != sandbox.info.Deadline.IsZero() || !end.IsZero() && left < time.Minute {
			t.Errorf("%s has %v", name, left)
		}
		if again, err := router.Find(t.Context(), idAsleep); err != nil || again.Asleep || again.Awake(t.Context()) != nil {
			t.Errorf("%s, awake: %+v, %v", name, again, err)
		}
	}
}

// What is opened before there is a server is served once there is one, each once.
func TestDoorsWaitForTheServer(t *testing.T) {
	t.Parallel()
	var d route.Doors
	var served []driver.ID
	l := proctest.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	serve := func(id driver.ID, got net.Listener) {
		if got == l {
			served = append(served, id)
		}
	}
	d.Open("a", l)
	d.Open("b", l)
	d.Serve(serve)
	d.Open("c", l)
	d.Serve(func(driver.ID, net.Listener) { served = append(served, "after the end") })
	d.Open("d", l)
	if got := fmt.Sprint(served); got != "[a b c after the end]" {
		t.Errorf("served: %s", got)
	}
}

// A request from inside is for its sandbox, whatever it names.
func TestFromInsideEachNameIsItsOwn(t *testing.T) {
	t.Parallel()
	id := driver.NewID()
	req := httptest.NewRequest("GET", "http://3000-"+string(driver.NewID())+".box.example/", nil)
	req.Header.Set("E2b-Sandbox-Id", string(driver.NewID()))
	req = req.WithContext(route.WithInside(req.Context(), id, route.EnvdPort))
	r := &route.Router{Domains: []string{"box.example"}}
	_, err := r.Of(req)
	unknown, ok := errors.AsType[*route.UnknownError](err)
	if !ok || unknown.ID != string(id) {
		t.Errorf("it is for %+v", unknown)
	}
	if port, byHost, named := r.Named(req); port != route.EnvdPort || !byHost || !named {
		t.Errorf("it names %d %v %v", port, byHost, named)
	}
	req.Host = "api.box.example"
	if r.IsAPI(req) {
		t.Error("it is for the control plane")
	}
}
