package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/support/proctest"
)

// A provider may say its key in any answer: Google names it in one with status 403, and in
// the address to which a file is sent.
func TestNoAnswerShowsTheRealKey(t *testing.T) {
	for _, status := range []int{200, 302, 400, 403, 500} {
		upstream := far(t, func(w http.ResponseWriter, r *http.Request, _ string) {
			w.Header().Set("Link", "<https://files/?key="+realKey+">")
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Set("Trailer", "X-After")
			w.Header().Set("X-Goog-Upload-Url", "https://files/?key="+r.Header.Get("X-Goog-Api-Key"))
			w.Header().Set("Location", "https://files/?key="+r.URL.Query().Get("key"))
			w.Header().Set("Strict-Transport-Security", "max-age=1")
			w.Header().Set("Access-Control-Allow-Headers", "*")
			w.WriteHeader(status)
			for _, half := range []string{"Consumer 'api_key:" + realKey[:7], realKey[7:] + "' has been suspended. " + realKey[:5]} {
				io.WriteString(w, half)
				w.(http.Flusher).Flush()
			}
			w.Header().Set("X-After", realKey)
		})
		g := open(t, t.TempDir(), upstream)
		req := proctest.Value(http.NewRequest("POST", g.url+"/api/gateway/gemini/files?key=vk_of_another", strings.NewReader("{}")))(t)
		req.Header.Set("X-Goog-Api-Key", g.key("a", Rules{}))
		resp := proctest.Value(http.DefaultTransport.RoundTrip(req))(t)
		body := string(proctest.Value(io.ReadAll(resp.Body))(t))
		resp.Body.Close()
		said := fmt.Sprint(resp.Header, resp.Trailer, body)
		if want := "Consumer 'api_key:" + strings.Repeat("x", len(realKey)) + "' has been suspended. " + realKey[:5]; strings.Contains(said, realKey) || body != want || resp.StatusCode != status {
			t.Errorf("%d: %d %s", status, resp.StatusCode, said)
		}
		for _, name := range []string{"Strict-Transport-Security", "Link", "Access-Control-Allow-Headers", "X-After"} {
			if resp.Header.Get(name)+resp.Trailer.Get(name) != "" {
				t.Errorf("%s is passed on", name)
			}
		}
	}
}

// mask is what is shown of a key.
func mask(key string) string { return strings.Repeat("x", len(key)) }

func TestTheHiderChangesNothingElse(t *testing.T) {
	key := "sk-sk-sk-0123456789"
	for in, want := range map[string]string{
		"": "", "sk-": "sk-", "sk-sk-sk-sk-0123456789!": "sk-" + mask(key) + "!", key + key: mask(key) + mask(key), key[1:]: key[1:], "a" + key[:18]: "a" + key[:18],
		strings.Repeat("z", 32<<10-7) + key + "z": strings.Repeat("z", 32<<10-7) + mask(key) + "z",
	} {
		for how, r := range map[string]io.Reader{"at once": strings.NewReader(in), "byte by byte": iotest.OneByteReader(strings.NewReader(in)), "with its end": iotest.DataErrReader(strings.NewReader(in))} {
			got := string(proctest.Value(io.ReadAll(hide(&http.Response{Body: io.NopCloser(r)}, key)))(t))
			if got != want {
				t.Errorf("%s: %.40q of %d bytes, not %.40q", how, got, len(got), want)
			}
		}
	}
	if got := string(proctest.Value(io.ReadAll(hide(&http.Response{Body: io.NopCloser(strings.NewReader("none"))}, "none")))(t)); got != "none" {
		t.Errorf("a key that is a word is hidden: %s", got)
	}
}

// What a provider gets is the request that was looked at, with its own key and no other.
func TestWhatTheProviderIsNotSent(t *testing.T) {
	got := make(chan *http.Request, 1)
	upstream := far(t, func(w http.ResponseWriter, r *http.Request, _ string) { got <- r })
	g := open(t, t.TempDir(), upstream)
	key, other := g.key("a", Rules{}), g.key("b", Rules{})
	to := proctest.Value(url.Parse(g.url))(t)
	conn := proctest.Value(net.Dial("tcp", to.Host))(t)
	defer conn.Close()
	fmt.Fprintf(conn, "POST /api/gateway/openai/x?token=%[1]s&other=%[2]s&a=1 HTTP/1.1\r\nHost: %[2]s.example\r\nAuthorization: Bearer %[1]s\r\nX-Api-Key: %[2]s\r\n"+
		"X-HTTP-Method-Override: DELETE\r\nX-Secret: 1\r\nConnection: X-Secret\r\nTransfer-Encoding: chunked\r\nTrailer: X-Late\r\nTE: trailers\r\n\r\n2\r\n{}\r\n0\r\nX-Late: %[1]s\r\n\r\n", key, other)
	resp := proctest.Value(http.ReadResponse(bufio.NewReader(conn), nil))(t)
	resp.Body.Close()
	r := <-got
	said := fmt.Sprint(r.Host, r.RequestURI, r.Header, r.Trailer)
	if strings.Contains(said, key) || strings.Contains(said, other) || r.RequestURI != "/v1/x?a=1" || r.Header.Get("X-Http-Method-Override")+r.Header.Get("X-Secret") != "" ||
		r.ContentLength != 2 || r.Header.Get("Authorization") != "Bearer "+realKey || !strings.HasPrefix(upstream, "http://"+r.Host) {
		t.Errorf("the provider got %d bytes, %s", r.ContentLength, said)
	}
}

func TestAKeyInTheQueryIsEnough(t *testing.T) {
	got := make(chan string, 1)
	upstream := far(t, func(w http.ResponseWriter, r *http.Request, _ string) {
		got <- r.RequestURI + r.Header.Get("X-Goog-Api-Key")
	})
	g := open(t, t.TempDir(), upstream)
	if status, _, body := g.ask("GET", "/api/gateway/gemini/models?key="+g.key("a", Rules{}), "", ""); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	if uri := <-got; uri != "/v1beta/models"+realKey {
		t.Errorf("it was asked %s", uri)
	}
}

// TRACE would show the provider's key; behind an upgrade nothing can be looked at.
func TestTraceAndUpgradesAreRefused(t *testing.T) {
	var asked atomic.Int64
	upstream := far(t, func(w http.ResponseWriter, r *http.Request, _ string) { asked.Add(1) })
	g := open(t, t.TempDir(), upstream)
	key := g.key("a", Rules{})
	for _, method := range []string{"TRACE", "GET"} {
		req := proctest.Value(http.NewRequest(method, g.url+"/api/gateway/openai/v1/models", nil))(t)
		req.Header.Set("Authorization", "Bearer "+key)
		if method == "GET" {
			req.Header.Set("Connection", "Upgrade")
			req.Header.Set("Upgrade", "websocket")
		}
		resp := proctest.Value(http.DefaultClient.Do(req))(t)
		body := string(proctest.Value(io.ReadAll(resp.Body))(t))
		resp.Body.Close()
		if resp.StatusCode != 501 || !strings.Contains(errorOf(body), "plain request") {
			t.Errorf("%s: %d %s", method, resp.StatusCode, body)
		}
	}
	if asked.Load() != 0 {
		t.Errorf("the provider was asked %d times", asked.Load())
	}
}

// A provider with an answer that is none of HTTP's.
func TestAnswersThatAreNone(t *testing.T) {
	for name, text := range map[string]string{
		"an upgrade":          "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
		"endless headers":     "HTTP/1.1 200 OK\r\nX-Long: " + strings.Repeat("x", 2*protocol.MaxAnswerHeader) + "\r\n\r\n",
		"no HTTP":             "hello\r\n\r\n",
		"an end in a header":  "HTTP/1.1 200 OK\r\nX-",
		"two content lengths": "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				io.WriteString(conn, text)
				conn.Close()
			}
		}))
		g := open(t, t.TempDir(), s.URL)
		if status, _, body := g.ask("POST", "/api/gateway/openai/x", g.key("a", Rules{}), "{}"); status != 502 || !strings.Contains(errorOf(body), "does not answer") {
			t.Errorf("%s: %d %s", name, status, body)
		}
		s.Close()
	}
}
