package gateway

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// A reader of requests obeys what it knows: a query parameter (LiteLLM), a name that it
// folds (Go), the first or the last of two, a method in the query (Google). None of it
// passes the rules of a key.
func TestNoOtherReaderFindsAnotherModel(t *testing.T) {
	var asked atomic.Int64
	upstream := far(t, func(w http.ResponseWriter, r *http.Request, _ string) { asked.Add(1) })
	g := open(t, t.TempDir(), upstream)
	key := g.key("a", Rules{Models: []string{"allowed-*"}})
	const chat, batch, embed = "openai/chat/completions", "gemini/models/allowed-1:batchEmbedContents", "gemini/models/allowed-1:embedContent"
	const plain = `{"model":"allowed-1"}`
	for _, c := range []struct{ method, path, body, says string }{
		{"POST", chat + "?model=FORBIDDEN", plain, "query parameter"},
		{"POST", chat + "?Model=FORBIDDEN", plain, "query parameter"},
		{"POST", chat + "?api-version=1&api-version=2", plain, "query parameter"},
		{"POST", "gemini/models/allowed-1:generateContent?fields=candidates", "{}", "query parameter"},
		{"POST", "gemini/models/allowed-1:generateContent?alt=media", "{}", "query parameter"},
		{"GET", "gemini/models/FORBIDDEN?$httpMethod=POST", "", "query parameter"},
		{"GET", "gemini/models/FORBIDDEN:generateContent", "", "for this path"},
		{"GET", "gemini/models/FORBIDDEN", `{"contents":[]}`, "no body"},
		{"GET", "openai/models", plain, "no body"},
		{"POST", batch, `{"requests":[{"mod\u0065l":"models/FORBIDDEN"}]}`, "several"},
		{"POST", batch, `{"requests":[{"model":"models/FORBIDDEN","MODEL":"models/allowed-1"}]}`, "once"},
		{"POST", batch, `{"requests":[{"MODEL":"models/FORBIDDEN"}]}`, "several"},
		{"POST", batch, `{"requests":[{"model":"models/FORBIDDEN"}],"requests":[]}`, "once"},
		{"POST", batch, `{"requests":[{"model":"models/FORBIDDEN"}],"reque\u0073ts":[]}`, "once"},
		{"POST", batch, `{"reque` + "\u017f" + `ts":[{"model":"models/FORBIDDEN"}]}`, "plain letters"},
		{"POST", batch, `{"requests":{"model":"models/FORBIDDEN"}}`, "several"},
		{"POST", embed, `{"model":"models/FORBIDDEN"}`, "several"},
		{"POST", embed, `{"model":"tunedModels/allowed-1"}`, "several"},
		{"POST", "gemini/models/allowed-1:countTokens", `{"generateContentRequest":{"model":"models/FORBIDDEN"}}`, "several"},
		{"POST", "gemini/models/allowed-1:countTokens", `{"generate_content_request":{"model":"models/FORBIDDEN"}}`, "several"},
		{"POST", "gemini/models/allowed-1:generateContent", `{"generationConfig":{"routingConfig":{"manualMode":{"modelName":"FORBIDDEN"}}}}`, "several"},
		{"POST", "gemini/models/allowed-1:generateContent", `{`, "JSON"},
		{"POST", chat, `{"model":"allowed-1","fallback` + "\u017f" + `":["FORBIDDEN"]}`, "plain letters"},
		{"POST", chat, `{"model":"allowed-1","fallbac` + "\u212a" + `s":["FORBIDDEN"]}`, "plain letters"},
		{"POST", chat, `{"model":"allowed-1","Fallbacks":["FORBIDDEN"]}`, "several"},
		{"POST", chat, `{"model":"allowed-1","context_window_fallbacks":["FORBIDDEN"]}`, "several"},
		{"POST", chat, `{"model":"allowed-1","model_list":["FORBIDDEN"]}`, "several"},
		{"POST", chat, `{"model":"allowed-1","extra_body":{"model":"FORBIDDEN"}}`, "several"},
		{"POST", chat, `{"model":"allowed-1","user_config":{"model_list":[]}}`, "several"},
		{"POST", chat, `{"model":"allowed-1","api_base":"http://example.com"}`, "several"},
		{"POST", chat, `{"model":"allowed-1","compound_custom":{"models":{"answering_model":"FORBIDDEN"}}}`, "several"},
		{"POST", chat, `{"model":"allowed-1","x":[{"y":{"fallback` + "\u017f" + `":"FORBIDDEN"}}]}`, "several"},
		{"POST", chat, `{"model":"allowed-1","tools":[{"type":"openrouter:advisor","parameters":{"model":"FORBIDDEN"}}]}`, "a tool"},
		{"POST", chat, `{"model":"allowed-1","plugins":[{"id":"fusion","of":{"models":["FORBIDDEN"]}}]}`, "a tool"},
		{"POST", chat, `{"model":"allowed-1,FORBIDDEN"}`, "one model"},
		{"POST", chat, `{"model":"allowed-1\u0000FORBIDDEN"}`, "one model"},
		{"POST", "openai/responses", `{"model":"allowed-1","tool` + "\u017f" + `":[{"model":"FORBIDDEN"}]}`, "plain letters"},
		{"POST", "openai/responses", `{"model":"allowed-1","Tools":[{"Model":"FORBIDDEN"}]}`, "a tool"},
		{"POST", "openai/responses", `{"model":"allowed-1","tools":[{"models":["FORBIDDEN"]}]}`, "a tool"},
		{"POST", "openai/responses", `{"model":"allowed-1","tools":{"model":"FORBIDDEN"}}`, "a tool"},
		{"POST", chat, `{"model":"allowed-1","metadata":{"x":{"a":1,"A":2}}}`, "once"},
		{"POST", chat, `{"model":"allowed-1","x":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`, "deep"},
		{"POST", "anthropic/responses", plain, "for this path"},
		{"POST", "openai/messages", plain, "for this path"},
	} {
		status, _, body := g.ask(c.method, "/api/gateway/"+c.path, key, c.body)
		if status != 403 || !strings.Contains(errorOf(body), c.says) {
			t.Errorf("%s %s %.100s: %d %s, want 403 with %q", c.method, c.path, c.body, status, body, c.says)
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("the provider was asked %d times", n)
	}
	for _, c := range [][3]string{
		{"POST", batch, `{"requests":[{"model":"models/allowed-1"},{"model":"allowed-1"}]}`},
		{"POST", embed, `{"model":"models/allowed-1","content":{}}`},
		{"POST", "gemini/v1beta/models/allowed-1:streamGenerateContent?alt=sse", `{"contents":[{"parts":[{"functionCall":{"args":{"model":"T"}}}]}]}`},
		{"GET", "gemini/models/FORBIDDEN", ""}, // a list, and what it has, may be read
		{"GET", "gemini/models?pageSize=5", ""},
		{"GET", "openai/v1/models/vendor/name:free", ""},
		{"POST", "anthropic/v1/messages?beta=true", plain},
		{"POST", chat, `{"model":"allowed-1","tools":[{"type":"function","function":{"parameters":{"properties":{"model":{}}}}}],"metadata":{"model":"x"}}`},
		{"POST", "openai/responses", `{"model":"allowed-1","tools":[{"type":"image_generation","model":"allowed-2"}],"text":{"format":{"schema":{"model":1}}}}`},
		{"POST", "gemini/models/allowed-1:generateContent", `{"tools":[{"functionDeclarations":[{"parameters":{"properties":{"model":{}}}}]}],"generationConfig":{"responseSchema":{"model":1}}}`},
		{"POST", chat, `{"model":"allowed-1","provider":{"allow_fallbacks":true},"tools":[{"type":"mcp_toolset","configs":{"list_models":{"enabled":true}}}]}`},
		{"POST", chat, `{"model":"allowed-1","models":null,"messages":[{"content":"\ud83d\ude00"}]}`},
	} {
		if status, _, body := g.ask(c[0], "/api/gateway/"+c[1], key, c[2]); status != 200 {
			t.Errorf("%v: %d %s", c, status, body)
		}
	}
}
