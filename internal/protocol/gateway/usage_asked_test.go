package gateway

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"github.com/tend-run/tend/internal/support/proctest"
)

// A stream whose provider counts nothing is not said to be short by a name that the path
// does not have, nor by one that the provider does not keep.
func TestOnlyItsOwnNameBoundsAGuess(t *testing.T) {
	upstream := far(t, func(w http.ResponseWriter, r *http.Request, _ string) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3000 {
			fmt.Fprintf(w, "data: {\"choices\":[{\"delta\":{\"content\":\"word %d\"}}]}\n\n", i)
		}
		io.WriteString(w, "data: [DONE]\n\n")
	})
	g := open(t, t.TempDir(), upstream)
	key := g.key("a", Rules{TokensPerDay: 1_000_000_000})
	for i, c := range [][2]string{
		{"openai/chat/completions", `"max_output_tokens":1`}, {"openai/chat/completions", `"max_completion_tokens":1`}, {"openai/completions", `"max_completion_tokens":1`},
		{"openai/responses", `"max_tokens":1`}, {"anthropic/messages", `"max_completion_tokens":1`}, {"gemini/models/m:streamGenerateContent", `"generationConfig":{"max_tokens":1}`},
	} {
		g.ask("POST", "/api/gateway/"+c[0], key, `{"model":"m","stream":true,`+c[1]+`}`)
		if lines := g.lines(); len(lines) != i+1 || lines[i].Out < 3000 {
			t.Errorf("%s %s: %+v", c[0], c[1], lines[len(lines)-1])
		}
	}
}

// A provider that counts only if it is asked is asked, and a client that did not ask gets
// what it would have got.
func TestTheUsageOfAStreamIsAskedFor(t *testing.T) {
	const word, usage, done = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\n", "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":5}}\n\n", "data: [DONE]\n\n"
	const filter = "data: {\"choices\":[],\"prompt_filter_results\":[]}\n\n" // Azure's first
	var old atomic.Bool                                                      // it takes no field that it does not know
	upstream := far(t, func(w http.ResponseWriter, r *http.Request, body string) {
		var m struct {
			Options *struct {
				Usage bool `json:"include_usage"`
				Other int  `json:"other"`
			} `json:"stream_options"`
		}
		if err := json.Unmarshal([]byte(body), &m); err != nil {
			t.Errorf("%s: %v", body, err)
		}
		if old.Load() && m.Options != nil {
			w.WriteHeader(422)
			return
		}
		text := filter + word
		if m.Options != nil && m.Options.Usage {
			text += usage
		}
		text += done
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Content-Length", fmt.Sprint(len(text)))
		io.WriteString(w, text)
	})
	g := open(t, t.TempDir(), upstream)
	for i, c := range []struct {
		path, body, want string
		counted          bool
	}{
		{"chat/completions", `{"model":"m","stream":true}`, filter + word + done, true},
		{"completions", `{"model":"m","stream":true,"stream_options":null}`, filter + word + done, true},
		{"chat/completions", `{"model":"m","stream":true,"stream_options":{"include_usage":false,"other":1}}`, filter + word + done, true},
		{"chat/completions", `{"model":"m","stream":true,"stream_options":{"include_usage":true}}`, filter + word + usage + done, true},
		{"responses", `{"model":"m","stream":true}`, filter + word + done, false},
		{"chat/completions", `{"model":"m","stream":true}`, filter + word + done, false}, // of a provider that refuses the question
	} {
		old.Store(i == 5)
		for _, rules := range []Rules{{}, {TokensPerDay: 1_000_000}} {
			status, _, body := g.ask("POST", "/api/gateway/openai/"+c.path, g.key(fmt.Sprintf("k%d-%d", i, rules.TokensPerDay), rules), c.body)
			line := g.lines()[len(g.lines())-1]
			if status != 200 || body != c.want || line.Estimated == c.counted || c.counted && (line.In != 7 || line.Out != 5) {
				t.Errorf("%s: %d %q, counted as %+v", c.body, status, body, line)
			}
		}
	}
	g.ledger.mu.Lock()
	defer g.ledger.mu.Unlock()
	if len(g.ledger.flying) != 0 {
		t.Errorf("tokens are kept for requests that have ended: %v", g.ledger.flying)
	}
}

func TestOnlyTheUsageIsLeftOut(t *testing.T) {
	const usage = `data: {"choices":[],"usage":{"prompt_tokens":1}}`
	long := "data: " + strings.Repeat("x", 2*maxUsageLine) + "\n\n"
	for in, want := range map[string]string{
		"": "", "data: 1\n\n" + usage + "\n\ndata: 2\n\n": "data: 1\n\ndata: 2\n\n", usage + "\r\n\r\n: x\r\n\r\n": ": x\r\n\r\n", usage: "", usage + "\n": "",
		usage + "\n\n" + usage + "\n\nx\n\n\n": "x\n\n\n", usage + "\ndata: 2": "data: 2", long + usage + "\n\n" + long: long + long, "no newline": "no newline",
		`data: {"choices":[{}],"usage":{}}` + "\n":   `data: {"choices":[{}],"usage":{}}` + "\n",
		`data: {"choices":[],"usage":null}` + "\n\n": `data: {"choices":[],"usage":null}` + "\n\n",
	} {
		for how, r := range map[string]io.Reader{"at once": strings.NewReader(in), "byte by byte": iotest.OneByteReader(strings.NewReader(in)), "with its end": iotest.DataErrReader(strings.NewReader(in))} {
			if got := string(proctest.Value(io.ReadAll(&unaskedUsage{body: io.NopCloser(r)}))(t)); got != want {
				t.Errorf("%s: %.60q is passed on as %.60q", how, in, got)
			}
		}
	}
}
