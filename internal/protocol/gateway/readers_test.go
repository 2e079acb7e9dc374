package gateway

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// A key with rules passes on nothing that a provider, or a router of models in front of one, may
// take for another model than was looked at.
func TestNoReaderFindsAnotherModel(t *testing.T) {
	var asked atomic.Int64
	upstream := far(t, func(w http.ResponseWriter, r *http.Request, _ string) { asked.Add(1) })
	g := open(t, t.TempDir(), upstream)
	key := g.key("a", Rules{Models: []string{"m"}})
	const embed, embeds, chat = "gemini/models/m:embedContent", "gemini/models/m:batchEmbedContents", "openai/chat/completions"
	for _, c := range []struct{ method, path, body string }{
		{"POST", chat + "?model=other", `{"model":"m"}`},
		{"POST", "gemini/models/m:generateContent?$httpMethod=DELETE", `{}`},
		{"GET", "gemini/models/m?$httpMethod=POST", ""},
		{"GET", "gemini/models/m", `{"model":"other"}`},
		{"HEAD", "openai/models?model=x", ""},
		{"POST", embeds, `{"requests":[{"mod\u0065l":"models/other"}]}`},
		{"POST", embeds, `{"requests":[{"model":"models/other","MODEL":"models/m"}]}`},
		{"POST", embeds, `{"requests":[{"MODEL":"models/other"}]}`},
		{"POST", embeds, `{"requests":[{"model":"models/other"}],"requests":[]}`},
		{"POST", embeds, `{"requests":[{"model":"models/other"}],"Requests":[]}`},
		{"POST", embeds, `{"requests":{"model":"models/other"}}`},
		{"POST", embed, `{"model":"models/other"}`},
		{"POST", embed, `{"model":{"a":1}}`},
		{"POST", chat, `{"model":"m","fallbackſ":["other"]}`},
		{"POST", chat, `{"model":"m","tool\u017f":[{"model":"other"}]}`},
		{"POST", chat, `{"model":"m","Fallbacks":["other"]}`},
		{"POST", chat, `{"model":"m","context_window_fallbacks":[{"m":["other"]}]}`},
		{"POST", chat, `{"model":"m","a":{"b":1,"b":2}}`},
		{"POST", chat, `{"model":"m","tools":[{"model":"m","Model":"other"}]}`},
		{"POST", chat, `{"model":"m","a":` + strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1) + `}`},
	} {
		status, _, body := g.ask(c.method, "/api/gateway/"+c.path, key, c.body)
		if status != 403 || c.method != "HEAD" && errorOf(body) == "" {
			t.Errorf("%s %s %s: %d %s, want 403 with a reason", c.method, c.path, c.body, status, body)
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
