package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// What the provider reads is what was read here: the text is rewritten.
func TestABodyIsSentAsItWasRead(t *testing.T) {
	got := make(chan string, 1)
	upstream := far(t, func(w http.ResponseWriter, r *http.Request, body string) { got <- body })
	g := open(t, t.TempDir(), upstream)
	g.ask("POST", "/api/gateway/openai/responses", g.key("a", Rules{Models: []string{"m"}}),
		" { \"mod\\u0065l\" : \"m\" , \"n\\u0061me\" : \"\\u003ca\\ud800\\u2028>\", \"x\": [ 1e999 , -0.10, 123456789012345678901234567890 ,\"\xff\"] }\n")
	if body, want := <-got, "{\"model\":\"m\",\"name\":\"<a\ufffd\\u2028>\",\"x\":[1e999,-0.10,123456789012345678901234567890,\"\ufffd\"]}"; body != want {
		t.Errorf("it was sent\n%s, not\n%s", body, want)
	}
	raw := " {\"a\":1,\"a\":2} "
	if g.ask("POST", "/api/gateway/openai/files", g.key("free", Rules{}), raw); <-got != raw {
		t.Error("a key without rules has its body changed")
	}
}

func TestBodiesAreWrittenPlainly(t *testing.T) {
	many := func(last string) string {
		text := `{"z":0`
		for i := range 3 * fewNames {
			text += fmt.Sprintf(`,"n%d":{"n%d":{"a":[]},"b":{}}`, i, i)
		}
		return text + `,"` + last + `":1}`
	}
	for _, same := range []string{
		`{}`, `[]`, `0`, `"a"`, `null`, many("m"), `{"a":{"b":1},"b":{"a":1}}`, `[{"a":1},{"a":1}]`, `{"a":["a","A"],"b":"a"}`, `{"é":1,"e":-0.5e+3}`,
		strings.Repeat(`[`, maxDepth) + strings.Repeat(`]`, maxDepth),
	} {
		if got, err := plainly([]byte(same)); err != nil || string(got) != same {
			t.Errorf("%.80s: %.80s, %v", same, got, err)
		}
	}
	for in, says := range map[string]string{
		``: "JSON", `{"a":1,}`: "JSON", `{"a":1}{}`: "JSON", `{"a":1,"a":2}`: "once", many("N5"): "once", many("\\u007a"): "once", many(`n1\u0030`): "once",
		`[[{"x":{},"K":1,"` + "\u212a" + `":2}]]`: "once", `{"I":1,"` + "\u0131" + `":2}`: "once", `{"\ud800":1,"\ud801":2}`: "once", `{"É":1,"é":2}`: "once",
		strings.Repeat(`[`, maxDepth+1) + strings.Repeat(`]`, maxDepth+1): "deep", "\ufeff{}": "JSON",
	} {
		if got, err := plainly([]byte(in)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.80q: %.80s, %v, not %q", in, got, err, says)
		}
	}
}
