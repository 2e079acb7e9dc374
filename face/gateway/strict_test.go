package gateway

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tend-run/tend/internal/scene"
)

// A key with rules passes on nothing that a provider, or a router of models in front of one, may
// take for another model than was looked at.
func TestNoReaderFindsAnotherModel(t *testing.T) {
	var asked atomic.Int64
	upstream := far(t, func(w http.ResponseWriter, r *http.Request, _ string) { asked.Add(1) })
	g := open(t, t.TempDir(), upstream)
	key := g.key("a", Rules{Models: []string{"m"}})
	const embed, embeds, chat = "gemini/models/m:embedContent", "gemini/models/m:batchEmbedContents", "openai/chat/completions"
	for _, c := range []struct{ method, path, body, says string }{
		{"POST", chat + "?model=other", `{"model":"m"}`, `"model" of the query`},
		{"POST", "gemini/models/m:generateContent?$httpMethod=DELETE", `{}`, "of the query"},
		{"GET", "openai/models?%zz", "", "query cannot be read"},
		{"GET", "gemini/models/m?$httpMethod=POST", "", "of the query"},
		{"GET", "gemini/models/m", `{"model":"other"}`, "for this path"},
		{"HEAD", "openai/models?model=x", "", ""},
		{"POST", embeds, `{"requests":[{"mod\u0065l":"models/other"}]}`, "several"},
		{"POST", embeds, `{"requests":[{"model":"models/other","MODEL":"models/m"}]}`, "twice"},
		{"POST", embeds, `{"requests":[{"MODEL":"models/other"}]}`, "several"},
		{"POST", embeds, `{"requests":[{"model":"models/other"}],"requests":[]}`, "twice"},
		{"POST", embeds, `{"requests":[{"model":"models/other"}],"Requests":[]}`, "twice"},
		{"POST", embeds, `{"requests":{"model":"models/other"}}`, "JSON object"},
		{"POST", embed, `{"model":"models/other"}`, "several"},
		{"POST", embed, `{"model":{"a":1}}`, "several"},
		{"POST", chat, `{"model":"m","fallbackſ":["other"]}`, "s or k"},
		{"POST", chat, `{"model":"m","tool\u017f":[{"model":"other"}]}`, "s or k"},
		{"POST", chat, `{"model":"m","Fallbacks":["other"]}`, "several"},
		{"POST", chat, `{"model":"m","context_window_fallbacks":[{"m":["other"]}]}`, "several"},
		{"POST", chat, `{"model":"m","a":{"b":1,"b":2}}`, "twice"},
		{"POST", chat, `{"model":"m","tools":[{"model":"m","Model":"other"}]}`, "twice"},
		{"POST", chat, `{"model":"m","a":` + strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1) + `}`, "deeper"},
		{"POST", chat, "{\"model\":\"m\",\"a\":\"\xff\"}", "UTF-8"},
	} {
		status, _, body := g.ask(c.method, "/api/gateway/"+c.path, key, c.body)
		if status != 403 || !strings.Contains(errorOf(body), c.says) {
			t.Errorf("%s %s %s: %d %s, want 403 with %q", c.method, c.path, c.body, status, body, c.says)
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("the provider was asked %d times", n)
	}
	for _, c := range [][3]string{
		{"POST", embeds, `{"requests":[{"model":"models/m","content":{}},{"content":{}}]}`}, {"POST", embed, `{"model":"models/m"}`}, {"POST", "gemini/models/m:streamGenerateContent?alt=sse", "{}"},
		{"POST", chat, `{"model":"m","fallbacks":null,"tools":[{"function":{"parameters":{"properties":{"id":{},"ID":{}}}}}]}`},
		{"POST", "anthropic/v1/messages?beta=true", `{"model":"m"}`}, {"GET", "anthropic/v1/models?limit=5&after_id=x", ""},
	} {
		if status, _, body := g.ask(c[0], "/api/gateway/"+c[1], key, c[2]); status != 200 {
			t.Errorf("%s %s: %d %s", c[1], c[2], status, body)
		}
	}
}

// Only the name that a path has bounds an answer: a provider overlooks the others.
func TestABoundOfAnotherPathIsNone(t *testing.T) {
	for path, name := range map[string]string{"chat/completions": "max_output_tokens", "responses": "max_tokens", "messages": "max_completion_tokens"} {
		if q, err := ask("POST", path, []byte(`{"model":"m","`+name+`":1}`), true); err != nil || q.most != 0 {
			t.Errorf("%s with %s: %+v, %v; want no bound", path, name, q, err)
		}
	}
}

// An answer is passed on in one piece, so that no key is cut.
func TestNoPieceOfAnAnswerIsAskedFor(t *testing.T) {
	got := make(chan string, 1)
	g := open(t, t.TempDir(), far(t, func(w http.ResponseWriter, r *http.Request, _ string) {
		got <- r.Header.Get("Range") + r.Header.Get("If-Range")
	}))
	req := scene.Value(http.NewRequest("GET", g.url+"/api/gateway/openai/files/x/content", nil))(t)
	req.Header.Set("Authorization", "Bearer "+g.key("a", Rules{}))
	req.Header.Set("Range", "bytes=0-9")
	req.Header.Set("If-Range", `"x"`)
	scene.Value(http.DefaultClient.Do(req))(t).Body.Close()
	if sent := <-got; sent != "" {
		t.Errorf("the provider got %q", sent)
	}
}

// Bodies that come slowly take no place from those that are there.
func TestSlowBodiesKeepNobodyOut(t *testing.T) {
	g := open(t, t.TempDir(), far(t, func(http.ResponseWriter, *http.Request, string) {}))
	key := g.key("a", Rules{})
	at := scene.Value(url.Parse(g.url))(t).Host
	for range mostAtOnce {
		c := scene.Value(net.Dial("tcp", at))(t)
		defer c.Close()
		fmt.Fprintf(c, "POST /api/gateway/openai/x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nExpect: 100-continue\r\nContent-Length: 100\r\n\r\n", key)
		if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.Contains(line, "100") { // it is being read
			t.Fatalf("%q, %v", line, err)
		}
	}
	if status, _, body := g.ask("POST", "/api/gateway/openai/x", key, "{}"); status != 200 {
		t.Errorf("a request that is whole: %d %s", status, body)
	}
}
