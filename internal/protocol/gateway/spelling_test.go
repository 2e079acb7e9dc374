package gateway

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/support/proctest"
)

// The key is in no address, and is hidden however a provider writes it.
func TestTheKeyIsShownInNoSpelling(t *testing.T) {
	const secret = "sk-real-Provider/Key+0123456789abc=="
	said := ""
	upstream := far(t, func(w http.ResponseWriter, r *http.Request, _ string) {
		if strings.Contains(r.RequestURI, "real") {
			t.Errorf("the key is in the address: %s", r.RequestURI)
		}
		if r.Header.Get("X-Goog-Api-Key") != secret {
			t.Errorf("the key is not in its header: %v", r.Header)
		}
		text := "you said " + said + "!"
		w.Header().Set("Location", "/login?from="+said)
		if r.Header.Get("Range") != "" {
			http.ServeContent(w, r, "", time.Time{}, strings.NewReader(text))
			return
		}
		io.WriteString(w, text[:len(text)/2])
		w.(http.Flusher).Flush()
		io.WriteString(w, text[len(text)/2:])
	})
	path := filepath.Join(t.TempDir(), "providers.yaml")
	proctest.Must(t, os.WriteFile(path, []byte("providers: {gemini: {key: '"+secret+"', base_url: '"+upstream+"'}}"), 0o600))
	g := open(t, t.TempDir(), upstream)
	g.providers.path = path
	key := g.key("a", Rules{})
	everything := ""
	for _, c := range secret {
		everything += fmt.Sprintf("%%%02x", c)
	}
	inJSON := strings.NewReplacer("/", `\/`, "+", `\u002b`, "=", `\u003D`).Replace(secret)
	for _, said = range []string{
		secret, url.QueryEscape(secret), strings.NewReplacer("%2F", "%2f", "%2B", "%2b", "%3D", "%3d").Replace(url.QueryEscape(secret)), url.PathEscape(secret), everything, url.QueryEscape(url.QueryEscape(secret)),
		inJSON, strings.ReplaceAll(inJSON, `\`, `\\`), strings.NewReplacer("+", "&#43;", "/", "&#x2F;", "=", "&#061;").Replace(secret), "%73k" + secret[2:],
	} {
		req := proctest.Value(http.NewRequest("GET", g.url+"/api/gateway/gemini/echo?key="+key, nil))(t)
		req.Header.Set("Range", "bytes=0-20")
		resp := proctest.Value(http.DefaultTransport.RoundTrip(req))(t)
		body := string(proctest.Value(io.ReadAll(resp.Body))(t))
		resp.Body.Close()
		if want := "you said " + strings.Repeat("x", len(said)) + "!"; resp.StatusCode != 200 || body != want || strings.Contains(resp.Header.Get("Location"), "Provider") {
			t.Errorf("%s: %d %v %s", said, resp.StatusCode, resp.Header.Get("Location"), body)
		}
	}
}

// In an answer that is compressed neither the key nor the counts can be found.
func TestAnAnswerThatIsCompressedUnaskedIsNotShown(t *testing.T) {
	upstream := far(t, func(w http.ResponseWriter, r *http.Request, _ string) {
		w.Header().Set("Content-Encoding", "br")
		io.WriteString(w, "packed")
	})
	g := open(t, t.TempDir(), upstream)
	if status, _, body := g.ask("POST", "/api/gateway/openai/x", g.key("a", Rules{}), "{}"); status != 502 || !strings.Contains(errorOf(body), "compressed") {
		t.Errorf("%d %s", status, body)
	}
}
