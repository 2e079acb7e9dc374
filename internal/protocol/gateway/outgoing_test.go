package gateway

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

// The provider gets the headers that are known, with its key in the one that is for it.
func TestHeadersThatAreNotKnownAreNotSent(t *testing.T) {
	got := make(chan http.Header, 1)
	upstream := far(t, func(w http.ResponseWriter, r *http.Request, _ string) { got <- r.Header.Clone() })
	g := open(t, t.TempDir(), upstream)
	for _, rules := range []Rules{{}, {Models: []string{"m"}}} {
		key := g.key(fmt.Sprintf("k%d", len(rules.Models)), rules)
		req := proctest.Value(http.NewRequest("POST", g.url+"/api/gateway/openai/chat/completions", strings.NewReader(`{"model":"m"}`)))(t)
		for name, value := range map[string]string{
			"Content-Type": "application/json", "OpenAI-Beta": "x", "Range": "bytes=0-8", "If-Range": "x", "X-Litellm-Model": "FORBIDDEN", "X-Portkey-Config": key + `,{"model":"FORBIDDEN"}`,
			"X-Goog-Request-Params": "model=FORBIDDEN", "Accept": "application/json, text/event-stream; q=0.9", "X-Http-Method-Override": "GET", "Te": "trailers", "Via": "me",
		} {
			req.Header.Set(name, value)
		}
		resp := proctest.Value(http.DefaultClient.Do(req))(t)
		resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Fatal(resp.Status)
		}
		h := <-got
		for _, name := range []string{"Accept-Encoding", "Content-Length", "User-Agent"} {
			h.Del(name)
		}
		if len(h) != 4 || h.Get("Accept") == "" || h.Get("Content-Type") != "application/json" || h.Get("Openai-Beta") != "x" || h.Get("Authorization") != "Bearer "+realKey {
			t.Errorf("the provider got %v", h)
		}
	}
}

// An operator names the headers that a provider needs besides.
func TestAProviderGetsTheHeadersThatItsOperatorNames(t *testing.T) {
	got := make(chan http.Header, 1)
	upstream := far(t, func(w http.ResponseWriter, r *http.Request, _ string) { got <- r.Header.Clone() })
	path := filepath.Join(t.TempDir(), "providers.yaml")
	proctest.Must(t, os.WriteFile(path, []byte("providers: {mine: {key: "+realKey+", base_url: '"+upstream+"', headers: [x-tenant, X-Its-Key]}}"), 0o600))
	g := open(t, t.TempDir(), upstream)
	g.providers.path = path
	req := proctest.Value(http.NewRequest("POST", g.url+"/api/gateway/mine/x", strings.NewReader("{}")))(t)
	req.Header.Set("X-Tenant", "one")
	req.Header.Set("X-Its-Key", g.key("a", Rules{}))
	resp := proctest.Value(http.DefaultClient.Do(req))(t)
	resp.Body.Close()
	if h := <-got; h.Get("X-Tenant") != "one" || h.Get("X-Its-Key") != realKey || h.Get("Authorization") != "" {
		t.Errorf("the provider got %v", h)
	}
}
