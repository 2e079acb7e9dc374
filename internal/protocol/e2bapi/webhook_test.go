package e2bapi_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/protocol/e2bapi"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/eventlog"
	"github.com/tend-run/tend/internal/sandbox/network"
	"github.com/tend-run/tend/internal/support/proctest"
)

const secretOfHook = "a secret of the receiver"

// receiver takes deliveries.
type receiver struct {
	*httptest.Server
	got chan delivery

	mu     sync.Mutex
	answer func(n int) int // the status of the nth delivery; guarded by mu, as n
	n      int
}

type delivery struct {
	head http.Header
	body string
	event
}

type event struct {
	ID, Type, SandboxID, SandboxTemplateID, SandboxExecutionID, Version string
	EventData                                                           map[string]any
}

func receive(t *testing.T, answer func(n int) int) *receiver {
	r := &receiver{got: make(chan delivery, 100), answer: answer}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil || req.Method != "POST" {
			return
		}
		r.mu.Lock()
		status := r.answer(r.n)
		r.n++
		r.mu.Unlock()
		d := delivery{head: req.Header, body: string(body)}
		_ = json.Unmarshal(body, &d.event)
		r.got <- d
		if status == http.StatusFound {
			w.Header().Set("Location", "http://127.0.0.1:"+strings.Split(r.URL, ":")[2]+"/redirected")
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(r.Close)
	return r
}

func always(status int) func(int) int { return func(int) int { return status } }

// next is the next delivery that comes.
func (r *receiver) next(t *testing.T) delivery {
	t.Helper()
	select {
	case d := <-r.got:
		return d
	case <-time.After(time.Minute):
		t.Fatal("no delivery comes")
	}
	return delivery{}
}

// telling is a server with a log of events, whose webhooks reach what rules open.
type telling struct {
	*server
	log  *eventlog.Log
	stop func()
}

func serveEvents(t *testing.T, dir string, reach ...string) *telling {
	t.Helper()
	rules := proctest.Value(network.ParseReach(reach))(t)
	host := network.NewHost(network.Config{Reach: rules})
	tl := &telling{log: proctest.Value(eventlog.Open(filepath.Join(dir, "events"), slog.New(slog.DiscardHandler)))(t)}
	var face *e2bapi.Face
	tl.server = serveFace(t, func(c *e2bapi.Config) {
		c.Dir, c.Events, c.Dial, c.Refuses = dir, tl.log, host.Dial, host.Refuses
	}, &face)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := face.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	tl.stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(tl.stop)
	return tl
}

func (tl *telling) tell(kind driver.EventKind, id driver.ID) {
	info := driver.Info{ID: id, E2BTemplate: "base", Metadata: map[string]string{"k": "v"}, Deadline: time.Now().Add(time.Hour)}
	driver.Tell(tl.log.Add).Of(kind, info, func(e *driver.Event) { e.Reason, e.Deadline = "timeout", kind == driver.EventUpdated })
}

func hookFor(url string, more string) string {
	return fmt.Sprintf(`{"name":"n","url":%q,"signatureSecret":%q,"events":["sandbox.lifecycle.created","sandbox.lifecycle.killed"]%s}`, url, secretOfHook, more)
}

func portOf(r *receiver) string { return r.Listener.Addr().(*net.TCPAddr).AddrPort().String() }

func TestWebhooksAreToldInOrderUntilTheyTakeIt(t *testing.T) {
	t.Parallel()
	r, dir, id := receive(t, func(n int) int { return map[bool]int{true: 500, false: 200}[n == 0] }), t.TempDir(), driver.NewID()
	tl := serveEvents(t, dir, portOf(r))
	tl.tell(driver.EventCreated, driver.NewID()) // before there is a webhook
	hook := tl.call(201, "POST", "/events/webhooks", hookFor(r.URL+"/path", ""))
	if hook["name"] != "n" || hook["enabled"] != true || hook["signatureSecret"] != nil || hook["secret"] != nil || hook["teamID"] != hook["teamId"] {
		t.Errorf("the webhook is %v", hook)
	}
	for _, kind := range []driver.EventKind{driver.EventCreated, driver.EventUpdated, driver.EventPaused, driver.EventDestroyed} {
		tl.tell(kind, id)
	}
	first, again, last := r.next(t), r.next(t), r.next(t)
	if first.Type != "sandbox.lifecycle.created" || first.SandboxID != string(id) || again.body != first.body || last.Type != "sandbox.lifecycle.killed" {
		t.Errorf("delivered are %s, %s and %s", first.body, again.body, last.body)
	}
	if first.Version != "v1" || first.SandboxTemplateID != "base" || first.SandboxExecutionID != last.SandboxExecutionID ||
		fmt.Sprint(first.EventData) != "map[sandbox_metadata:map[k:v]]" || last.EventData["kill_reason"] != "timeout" {
		t.Errorf("the events are %s and %s", first.body, last.body)
	}
	// As the original's documentation has it.
	sum := sha256.Sum256([]byte(secretOfHook + first.body))
	for name, want := range map[string]string{"E2b-Signature": base64.RawURLEncoding.EncodeToString(sum[:]), "E2b-Signature-Version": "v1",
		"E2b-Webhook-Id": hook["id"].(string), "Content-Type": "application/json"} {
		if got := first.head.Get(name); got != want {
			t.Errorf("%s is %q, not %q", name, got, want)
		}
	}
	if a, b := first.head.Get("E2b-Delivery-Id"), again.head.Get("E2b-Delivery-Id"); a == "" || a == b {
		t.Errorf("two deliveries are %q and %q", a, b)
	}

	// The next server goes on where this one was.
	proctest.Eventually(t, "the delivery is noted", func() bool {
		text, err := os.ReadFile(filepath.Join(dir, "webhooks.json"))
		return err == nil && strings.Contains(string(text), fmt.Sprintf(`"after":%d`, tl.log.Last()))
	})
	tl.stop()
	tl.tell(driver.EventCreated, id)
	tl = serveEvents(t, dir, portOf(r))
	if d := r.next(t); d.Type != "sandbox.lifecycle.created" || d.SandboxID != string(id) {
		t.Errorf("the next server sends %s", d.body)
	}
	// One that is not enabled is not told, and neither is one that is gone.
	path := "/events/webhooks/" + hook["id"].(string)
	if h := tl.call(200, "PATCH", path, `{"enabled":false,"name":"m"}`); h["enabled"] != false || h["name"] != "m" || h["url"] != r.URL+"/path" {
		t.Errorf("changed it is %v", h)
	}
	tl.tell(driver.EventCreated, id)
	tl.call(200, "PATCH", path, `{"enabled":true,"events":["sandbox.lifecycle.paused"]}`)
	tl.tell(driver.EventPaused, id)
	if d := r.next(t); d.Type != "sandbox.lifecycle.paused" {
		t.Errorf("after the change it is told %s", d.body)
	}
	tl.call(200, "DELETE", path, "")
	tl.call(404, "GET", path, "")
	tl.tell(driver.EventPaused, id)
	tl.stop()
	if len(r.got) > 0 {
		t.Errorf("one that is gone is told %s", (<-r.got).body)
	}
}

func TestWebhooksDoNotLeadIntoThisMachine(t *testing.T) {
	t.Parallel()
	secret, redirects := receive(t, always(200)), receive(t, always(302))
	tl := serveEvents(t, t.TempDir(), portOf(redirects))
	for name, url := range map[string]string{
		"loopback": secret.URL, "loopback of IPv6": "http://[::1]:80/", "mapped": "http://[::ffff:127.0.0.1]/", "metadata": "http://169.254.169.254/latest",
		"a private network": "https://10.1.2.3/", "the server": tl.url, "no scheme": "example.com", "a file": "file:///etc/passwd", "no host": "http://",
		"a user": "https://u:p@example.com/", "a port": "http://127.0.0.1:99999/", "too long": "https://example.com/" + strings.Repeat("x", 2048),
	} {
		if e := tl.call(400, "POST", "/events/webhooks", hookFor(url, "")); !strings.HasPrefix(e["message"].(string), "url ") {
			t.Errorf("%s: %v", name, e)
		}
	}
	// By a name it is found out when it is connected to, and a redirect is not followed.
	tl.call(201, "POST", "/events/webhooks", hookFor(strings.Replace(secret.URL, "127.0.0.1", "localhost", 1), ""))
	tl.call(201, "POST", "/events/webhooks", hookFor(redirects.URL, ""))
	id := driver.NewID()
	tl.tell(driver.EventCreated, id)
	for range 2 { // it is sent again, as it was not taken
		if d := redirects.next(t); d.SandboxID != string(id) {
			t.Errorf("delivered is %s", d.body)
		}
	}
	tl.stop()
	if len(secret.got) > 0 {
		t.Errorf("the machine is reached: %s", (<-secret.got).body)
	}
}

func TestWhatNoWebhookCanBe(t *testing.T) {
	t.Parallel()
	tl := serveEvents(t, t.TempDir())
	for name, tc := range map[string]struct{ body, says string }{
		"no URL":            {`{"signatureSecret":"12345678","events":["sandbox.lifecycle.created"]}`, "url is missing"},
		"no secret":         {`{"url":"https://example.com","events":["sandbox.lifecycle.created"]}`, "signatureSecret is missing"},
		"a short secret":    {`{"url":"https://example.com","signatureSecret":"x","events":["sandbox.lifecycle.created"]}`, "signatureSecret has 1 bytes"},
		"no events":         {`{"url":"https://example.com","signatureSecret":"12345678"}`, "events is missing"},
		"an unknown event":  {`{"url":"https://example.com","signatureSecret":"12345678","events":["created"]}`, "events has"},
		"a name with lines": {hookFor("https://example.com", `,"name":"a\nb"`), "name has"},
		"no JSON":           {`{`, "body"},
	} {
		if e := tl.call(400, "POST", "/events/webhooks", tc.body); !strings.Contains(e["message"].(string), tc.says) {
			t.Errorf("%s: %v", name, e)
		}
	}
	// Some clients have another spelling.
	tl.call(201, "POST", "/events/webhooks", strings.Replace(hookFor("https://example.com", `,"enabled":false`), "signatureSecret", "signature_secret", 1))
	for range 31 {
		tl.call(201, "POST", "/events/webhooks", hookFor("https://example.com", `,"enabled":false`))
	}
	tl.call(429, "POST", "/events/webhooks", hookFor("https://example.com", ""))
	for _, method := range []string{"GET", "PATCH", "DELETE"} {
		tl.call(404, method, "/events/webhooks/none", "")
	}
	if _, text := tl.do("GET", "/events/webhooks", ""); strings.Count(text, `"id"`) != 32 || strings.Contains(text, secretOfHook) {
		t.Errorf("the list is %s", text)
	}
	tl.token = "the token of the server"
	for _, path := range []string{"/events/webhooks", "/events/sandboxes"} {
		tl.call(401, "GET", path, "")
	}
}

func TestEventsOfSandboxesOnTheWire(t *testing.T) {
	t.Parallel()
	tl := serveEvents(t, t.TempDir())
	a, b := driver.NewID(), driver.NewID()
	for range 6 {
		tl.tell(driver.EventCreated, a)
		tl.tell(driver.EventUpdated, b)
	}
	types := func(path string) string {
		t.Helper()
		res, text := tl.do("GET", path, "")
		var list []event
		if err := json.Unmarshal([]byte(text), &list); err != nil || res.StatusCode != 200 {
			t.Fatalf("%s: %s %s", path, res.Status, text)
		}
		all := ""
		for _, e := range list {
			all += strings.TrimPrefix(e.Type, "sandbox.lifecycle.")[:1]
		}
		return all
	}
	for path, want := range map[string]string{
		"": "ucucucucuc", "?orderAsc=true&limit=3": "cuc", "?offset=11": "c", "?types=sandbox.lifecycle.updated": "uuuuuu", "/" + string(a): "cccccc",
		"?types=sandbox.lifecycle.updated,sandbox.lifecycle.created&limit=2": "uc", "/" + string(driver.NewID()): "",
		"?types=sandbox.lifecycle.killed&types=sandbox.lifecycle.paused": "",
	} {
		if got := types("/events/sandboxes" + path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	for _, query := range []string{"limit=0", "limit=101", "offset=-1", "orderAsc=2", "types=x"} {
		tl.call(400, "GET", "/events/sandboxes?"+query, "")
	}
	tl.call(404, "GET", "/events/sandboxes/none", "")
	tl.call(404, "GET", "/events/x", "")
	if _, text := tl.do("GET", "/events/sandboxes/"+string(b)+"?limit=1", ""); !strings.Contains(text, `"set_timeout":"2`) {
		t.Errorf("an update is %s", text)
	}
}
