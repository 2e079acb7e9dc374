package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}

const question1 = `{"model":"claude-x","max_tokens":100,"messages":[{"role":"user","content":"hi"}]`

func TestAModelIsAskedWithTheRealKeyAndItsTokensAreCounted(t *testing.T) {
	upstream := model(t, `{"mode":"sequence","turns":[
		{"reply":[{"text":"one"}],"usage":{"input_tokens":1000,"output_tokens":50}},
		{"reply":[{"text":"two"}],"usage":{"input_tokens":70,"output_tokens":8}}]}`)
	g := open(t, t.TempDir(), upstream)
	key := g.key("a", Rules{})
	// The SDK's path has v1, the seed's has none.
	if status, _, body := g.ask("POST", "/api/gateway/anthropic/v1/messages", key, question1+"}"); status != 200 || !strings.Contains(body, "one") {
		t.Fatalf("%d %s", status, body)
	}
	status, h, body := g.ask("POST", "/api/gateway/anthropic/messages", key, question1+`,"stream":true}`)
	if status != 200 || !strings.Contains(body, "two") || !strings.HasPrefix(h.Get("Content-Type"), "text/event-stream") || h.Get("X-Accel-Buffering") != "no" {
		t.Fatalf("%d %v %s", status, h, body)
	}
	lines := g.lines()
	if len(lines) != 2 || lines[0].In != 1000 || lines[0].Out != 50 || lines[1].In != 70 || lines[1].Out != 8 || lines[1].Model != "claude-x" || lines[1].Estimated {
		t.Errorf("the log has %+v", lines)
	}
	if used := proctest.Value(g.ledger.of(lines[0].Key))(t); used.Tokens != 1128 || used.Requests != 2 {
		t.Errorf("used are %+v", used)
	}
	for _, name := range []string{"keys.json", "usage-2026-11-22.jsonl"} {
		path := filepath.Join(g.dir, name)
		if text := string(proctest.Value(os.ReadFile(path))(t)); strings.Contains(text, key) || strings.Contains(text, realKey) {
			t.Errorf("%s holds a secret", name)
		}
		if mode := proctest.Value(os.Stat(path))(t).Mode(); mode != 0o600 {
			t.Errorf("the mode of %s is %v", name, mode)
		}
	}
}

// far is a provider that shows what it was asked.
func far(t *testing.T, answer func(w http.ResponseWriter, r *http.Request, body string)) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		answer(w, r, string(body))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestTheKeyIsReplacedWhereverItStands(t *testing.T) {
	type seen struct {
		h         http.Header
		uri, body string
	}
	got := make(chan seen, 1)
	upstream := far(t, func(w http.ResponseWriter, r *http.Request, body string) {
		got <- seen{r.Header.Clone(), r.Method + " " + r.RequestURI, body}
		w.Header().Set("Set-Cookie", "a=b")
		w.WriteHeader(418)
	})
	g := open(t, t.TempDir(), upstream)
	key := g.key("a", Rules{})
	for name, value := range map[string]string{"Authorization": "Bearer " + key, "X-Api-Key": key, "X-Goog-Api-Key": key, "Api-Key": key, "X-Other": "token=" + key + ";", "Cookie": key} {
		req := proctest.Value(http.NewRequest("PATCH", g.url+"/api/gateway/google/some/thing?path=x&a=1&key="+key, strings.NewReader("body")))(t)
		req.Header.Set("Cookie", "of=ours")
		req.Header.Set(name, value)
		resp := proctest.Value(http.DefaultClient.Do(req))(t)
		resp.Body.Close()
		if resp.StatusCode != 418 || resp.Header.Get("Set-Cookie") != "" || !strings.Contains(resp.Header.Get("Content-Security-Policy"), "sandbox") {
			t.Errorf("the answer is %d %v", resp.StatusCode, resp.Header)
		}
		s := <-got
		if name == "X-Other" || name == "Cookie" { // which is no place of a key: it goes to the provider's own
			name, value = "X-Goog-Api-Key", key
		}
		if want := strings.ReplaceAll(value, key, realKey); s.h.Get(name) != want || s.h.Get("X-Other")+s.h.Get("Cookie") != "" || s.body != "body" {
			t.Errorf("%s: %v, %q", name, s.h, s.body)
		}
		if want := "PATCH /v1beta/some/thing?a=1"; s.uri != want {
			t.Errorf("it was asked %s, not %s", s.uri, want)
		}
	}
}

func TestWhatTheGatewayRefuses(t *testing.T) {
	var asked atomic.Int64
	upstream := far(t, func(w http.ResponseWriter, r *http.Request, _ string) {
		asked.Add(1)
		fmt.Fprint(w, `{"usage":{"input_tokens":1,"output_tokens":1}}`)
	})
	g := open(t, t.TempDir(), upstream)
	free, listed := g.key("free", Rules{}), g.key("listed", Rules{Models: []string{"claude-*", "gpt-small"}, Providers: []string{"anthropic", "google"}})
	budgeted := g.key("budgeted", Rules{TokensPerDay: 1000})
	ok := `{"model":"claude-x"}`
	for _, c := range []struct {
		method, path, key, body string
		status                  int
		says                    string
	}{
		{"POST", "anthropic/messages", "", ok, 401, "Missing API key"},
		{"POST", "anthropic/messages", "vk_unknown", ok, 401, "Invalid API key"},
		{"POST", "anthropic/messages", "sk-ant-looks-real", ok, 401, "Missing API key"},
		{"POST", "nobody/messages", free, ok, 400, "Unknown provider"},
		{"POST", "NoBody/messages", free, ok, 400, "Unknown provider"},
		{"GET", "openai/models?%zz", free, "", 400, "query"},
		{"GET", "openai/models?%zz", listed, "", 403, "openai"},
		{"GET", "anthropic/models?%zz", listed, "", 400, "query"},
		{"POST", "anthropic", free, ok, 404, "PROVIDER/PATH"},
		{"POST", "anthropic/", free, ok, 404, "PROVIDER/PATH"},
		{"POST", "anthropic/a%2e%2e/x", free, ok, 400, "plainly"},
		{"POST", "anthropic/messages%2fbatches", listed, ok, 400, "plainly"},
		{"POST", "openai/chat/completions", listed, ok, 403, "openai"},
		{"POST", "anthropic/messages", listed, `{"model":"gpt-4"}`, 403, "this model"},
		{"POST", "anthropic/messages", listed, `{"model":"claude-x","model":"gpt-4"}`, 403, "once"},
		{"POST", "anthropic/messages", listed, `{"model":"claude-x","MODEL":"gpt-4"}`, 403, "once"},
		{"POST", "anthropic/messages", listed, `{"model":["claude-x"]}`, 403, "string"},
		{"POST", "anthropic/messages", listed, `{}`, 403, "model"},
		{"POST", "anthropic/messages", listed, ok + ok, 403, "model"},
		{"POST", "anthropic/messages", listed, `{"model":"claude-x"`, 403, "model"},
		{"POST", "anthropic/messages", listed, ``, 403, "model"},
		{"POST", "anthropic/messages/batches", listed, ok, 403, "for this path"},
		{"POST", "anthropic/v1/v1/messages/batches", listed, ok, 403, "for this path"},
		{"GET", "anthropic/messages/batches", listed, "", 403, "for this path"},
		{"DELETE", "anthropic/files/x", listed, "", 403, "for this path"},
		{"PUT", "anthropic/messages", listed, ok, 403, "for this path"},
		{"POST", "gemini/models/gemini-x:generateContent", listed, "{}", 403, "this model"},
		{"POST", "gemini/models/claude-x:batchEmbedContents", listed, `{"requests":[{"model":"models/gemini-x"}]}`, 403, "several"},
		{"POST", "gemini/models/claude-x:predictLongRunning", listed, `{}`, 403, "for this path"},
		{"POST", "openai/responses", budgeted, `{"model":"gpt","background":true}`, 403, "background"},
		{"POST", "anthropic/messages", listed, `{"model":"claude-x","models":["gpt-4"]}`, 403, "several"},
		{"POST", "anthropic/messages", listed, `{"fallbacks":[{"model":"gpt-4"}],"model":"claude-x"}`, 403, "several"},
		{"POST", "anthropic/messages", listed, `{"model":"claude-x","tools":[{"name":"a"},{"type":"advisor","model":"gpt-4"}]}`, 403, "a tool"},
		{"POST", "anthropic/messages", listed, `{"model":"claude-x","tools":[{"model":"claude-y","model":"gpt-4","model":"claude-y"}]}`, 403, "once"},
		{"POST", "anthropic/messages", listed, `{"model":"claude-x","tools":[{"model":{"id":"claude-y"}}]}`, 403, "a tool"},
		{"POST", "anthropic/messages", listed, `{"model":"claude-\u0067pt", "mo\u0064el":"gpt-4"}`, 403, "once"},
		{"POST", "anthropic/messages", listed, `{"model":"claude-` + strings.Repeat("x", maxModel) + `"}`, 403, "256 bytes"},
		{"POST", "gemini/models/claude-" + strings.Repeat("x", maxModel) + ":generateContent", listed, `{}`, 403, "256 bytes"},
		{"POST", "openai/images", budgeted, `{"model":"gpt"}`, 403, "for this path"},
	} {
		status, _, body := g.ask(c.method, "/api/gateway/"+c.path, c.key, c.body)
		if status != c.status || !strings.Contains(errorOf(body), c.says) {
			t.Errorf("%s %s %s: %d %s, want %d with %q", c.method, c.path, c.body, status, body, c.status, c.says)
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("the provider was asked %d times", n)
	}
	for _, c := range [][3]string{
		{"anthropic/messages", listed, ok}, {"gemini/v1beta/models/claude-x:streamGenerateContent", listed, "{}"}, {"openai/chat/completions", budgeted, `{"model":"gpt"}`},
		{"openai/images", free, "no JSON"},
		{"anthropic/messages", listed, `{"model":"claude-x","models":null,"tools":[{"model":"claude-y"},{"name":"a","input_schema":{"properties":{"model":{}}}}]}`},
	} {
		if status, _, body := g.ask("POST", "/api/gateway/"+c[0], c[1], c[2]); status != 200 {
			t.Errorf("%s: %d %s", c[0], status, body)
		}
	}
	if status, _, _ := g.ask("GET", "/api/gateway/anthropic/v1/models", listed, ""); status != 200 {
		t.Errorf("the models cannot be listed: %d", status)
	}
	big := strings.Repeat("x", maxBody+1)
	if status, _, body := g.ask("POST", "/api/gateway/openai/x", free, big); status != 413 {
		t.Errorf("%d bytes: %d %s", len(big), status, body)
	}
	bare := open(t, t.TempDir(), "")
	if status, _, body := bare.ask("POST", "/api/gateway/openai/x", bare.key("a", Rules{}), ok); status != 500 || errorOf(body) != "Provider not configured" {
		t.Errorf("without a provider: %d %s", status, body)
	}
	if err := g.keys.revoke("free"); err != nil {
		t.Fatal(err)
	}
	if status, _, _ := g.ask("POST", "/api/gateway/openai/images", free, ok); status != 401 {
		t.Errorf("a revoked key: %d", status)
	}
}

// What was read as JSON is read by the provider as JSON.
func TestABodyIsReadInOneWay(t *testing.T) {
	got := make(chan string, 1)
	upstream := far(t, func(w http.ResponseWriter, r *http.Request, _ string) { got <- r.Header.Get("Content-Type") })
	g := open(t, t.TempDir(), upstream)
	key := g.key("a", Rules{Models: []string{"m"}})
	ask := func(name, value string) *http.Response {
		req := proctest.Value(http.NewRequest("POST", g.url+"/api/gateway/openai/responses", strings.NewReader(`{"model":"m"}`)))(t)
		req.Header.Set("X-Api-Key", key)
		req.Header.Set(name, value)
		resp := proctest.Value(http.DefaultClient.Do(req))(t)
		resp.Body.Close()
		return resp
	}
	if resp := ask("Content-Type", "application/x-www-form-urlencoded"); resp.StatusCode != 200 || <-got != "application/json" {
		t.Errorf("a form: %v", resp.Status)
	}
	if resp := ask("Content-Encoding", "gzip"); resp.StatusCode != 403 {
		t.Errorf("a compressed body: %v", resp.Status)
	}
}

func TestHowMuchAnAnswerMayHave(t *testing.T) {
	for _, c := range []struct {
		path, body string
		most       int64
	}{
		{"responses", `{"model":"m","max_output_tokens":7}`, 7},
		{"completions", `{"model":"m","MAX_TOKENS":9,"n":3,"best_of":2}`, 27},
		{"chat/completions", `{"model":"m","max_tokens":5,"max_completion_tokens":6}`, 6},
		{"chat/completions", `{"model":"m","max_output_tokens":1}`, 0},
		{"responses", `{"model":"m","max_tokens":1,"max_completion_tokens":1}`, 0},
		{"chat/completions", `{"model":"m","max_tokens":1e300,"n":1e300}`, mostCounted},
		{"chat/completions", `{"model":"m","max_tokens":-1,"n":-1}`, 0},
		{"models/m:generateContent", `{"generationConfig":{"maxOutputTokens":5,"candidateCount":4}}`, 20},
		{"models/m:streamGenerateContent", `{"generation_config":{"max_output_tokens":5}}`, 5},
		{"models/m:generateContent", `{"generationConfig":{"maxOutputTokens":"5","candidateCount":"2"}}`, 10},
		{"models/m:generateContent", ``, 0},
	} {
		if q, err := ask("POST", c.path, []byte(c.body), true); err != nil || q.most != c.most || q.model != "m" {
			t.Errorf("%s %s: %+v, %v", c.path, c.body, q, err)
		}
	}
}

func TestAKeyThatTheProviderRefusesIsNotShown(t *testing.T) {
	upstream := far(t, func(w http.ResponseWriter, r *http.Request, _ string) {
		w.WriteHeader(401)
		fmt.Fprint(w, "Incorrect API key: "+r.Header.Get("Authorization"))
	})
	g := open(t, t.TempDir(), upstream)
	status, _, body := g.ask("POST", "/api/gateway/openai/x", g.key("a", Rules{}), "{}")
	if status != 502 || strings.Contains(body, "sk-real") || !strings.Contains(errorOf(body), "operator") {
		t.Errorf("%d %s", status, body)
	}
	if lines := g.lines(); len(lines) != 1 || lines[0].Status != 502 {
		t.Errorf("the log has %+v", lines)
	}
}

func TestAProviderThatIsDownIsSaidToBe(t *testing.T) {
	g := open(t, t.TempDir(), fmt.Sprintf("http://127.0.0.1:%d", proctest.FreePort(t)))
	status, _, body := g.ask("POST", "/api/gateway/openai/x", g.key("a", Rules{}), "{}")
	if status != 502 || !strings.Contains(errorOf(body), "does not answer") || strings.Contains(body, "127.0.0.1") {
		t.Errorf("%d %s", status, body)
	}
}

func TestTokensOfADay(t *testing.T) {
	upstream := far(t, func(w http.ResponseWriter, r *http.Request, _ string) {
		fmt.Fprint(w, `{"usage":{"prompt_tokens":300,"completion_tokens":100}}`)
	})
	dir := t.TempDir()
	g := open(t, dir, upstream)
	key := g.key("a", Rules{TokensPerDay: 1000})
	other := g.key("b", Rules{TokensPerDay: 1000})
	use := func(g *gate, key string) int {
		status, h, body := g.ask("POST", "/api/gateway/openai/chat/completions", key, `{"model":"m"}`)
		if status == 429 && (h.Get("Retry-After") != "43200" || !strings.Contains(errorOf(body), "1000 tokens")) {
			t.Errorf("%v %s", h, body)
		}
		return status
	}
	for i, want := range []int{200, 200, 200, 429} {
		if got := use(g, key); got != want {
			t.Errorf("request %d: %d", i+1, got)
		}
	}
	// Another server of the same directory, which is there during an upgrade, knows.
	next := open(t, dir, upstream)
	if got := use(next, key); got != 429 {
		t.Errorf("the next server: %d", got)
	}
	if use(next, other) != 200 {
		t.Error("another key pays for it")
	}
	g.ledger.mu.Lock()
	proctest.Must(t, g.ledger.read())
	known := len(g.ledger.used)
	g.ledger.mu.Unlock()
	if known != 2 {
		t.Errorf("this server knows of %d keys", known)
	}
	g.clock.pass(12 * time.Hour)
	if got := use(g, key); got != 200 {
		t.Errorf("the next day: %d", got)
	}
	g.clock.pass((keepDays + 2) * 24 * time.Hour)
	use(g, key)
	if _, err := os.Stat(filepath.Join(dir, "usage-2026-11-22.jsonl")); !os.IsNotExist(err) {
		t.Errorf("an old day is kept: %v", err)
	}
}

// What an answer in flight may still use counts as used, also if the request does not say
// how much that is.
func TestTokensInFlight(t *testing.T) {
	for _, first := range []string{`{"model":"m","max_tokens":5000}`, `{"model":"m"}`} {
		begun, go1 := make(chan struct{}), make(chan struct{})
		upstream := far(t, func(w http.ResponseWriter, r *http.Request, _ string) {
			begun <- struct{}{}
			<-go1
			fmt.Fprint(w, `{"usage":{"prompt_tokens":1,"completion_tokens":1}}`)
		})
		g := open(t, t.TempDir(), upstream)
		key := g.key("a", Rules{TokensPerDay: 1000})
		use := func(body string) (int, http.Header, string) {
			return g.ask("POST", "/api/gateway/openai/chat/completions", key, body)
		}
		ended := make(chan int)
		go func() {
			status, _, _ := use(first)
			ended <- status
		}()
		<-begun
		const more = `{"model":"m","max_tokens":1}`
		if status, h, body := use(more); status != 429 || h.Get("Retry-After") != "1" || !strings.Contains(errorOf(body), "requests that run") {
			t.Errorf("the second one: %d %v %s", status, h, body)
		}
		close(go1)
		if status := <-ended; status != 200 {
			t.Errorf("the first one: %d", status)
		}
		go func() { <-begun }()
		if status, _, _ := use(more); status != 200 {
			t.Errorf("afterwards: %d", status)
		}
	}
}

// A client that leaves before the counts come pays for what it has got.
func TestAnAnswerThatIsCutIsCounted(t *testing.T) {
	begun, left := make(chan struct{}, 1), make(chan struct{})
	upstream := far(t, func(w http.ResponseWriter, r *http.Request, body string) {
		if strings.Contains(body, `"stream"`) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\n\ndata: "+strings.Repeat("x", 1<<16)+"\n\n")
			w.(http.Flusher).Flush()
			if strings.Contains(body, "of itself") {
				panic(http.ErrAbortHandler)
			}
		}
		begun <- struct{}{}
		<-left
	})
	for name, c := range map[string]struct {
		body string
		want Line
	}{
		"a stream":                     {`{"model":"m","stream":true}`, Line{Status: 200, In: 25, Out: 1 << 14}},
		"a stream with a bound":        {`{"model":"m","stream":true,"max_tokens":500}`, Line{Status: 200, In: 25, Out: 500}},
		"a stream that ends of itself": {`{"model":"m","stream":true,"user":"of itself"}`, Line{Status: 200, In: 25, Out: 1 << 14}},
		"an answer that has not begun": {`{"model":"m","user":"` + strings.Repeat("x", 4000) + `"}`, Line{In: 1005}},
	} {
		g := open(t, t.TempDir(), upstream)
		ctx, cancel := context.WithCancel(t.Context())
		req := proctest.Value(http.NewRequestWithContext(ctx, "POST", g.url+"/api/gateway/anthropic/messages", strings.NewReader(c.body)))(t)
		req.Header.Set("X-Api-Key", g.key("a", Rules{TokensPerDay: 1_000_000}))
		if strings.Contains(c.body, "stream") {
			resp := proctest.Value(http.DefaultClient.Do(req))(t)
			io.CopyN(io.Discard, resp.Body, 1<<16)
			if strings.Contains(c.body, "of itself") {
				io.Copy(io.Discard, resp.Body)
			} else {
				<-begun
			}
			cancel()
			resp.Body.Close()
		} else {
			go func() { <-begun; cancel() }()
			if _, err := http.DefaultClient.Do(req); err == nil {
				t.Error("there is an answer")
			}
		}
		proctest.Eventually(t, "the request is counted", func() bool { return len(g.lines()) == 1 })
		got := g.lines()[0]
		if got.Status != c.want.Status || got.In != c.want.In || !got.Estimated || got.Out < c.want.Out || got.Out > c.want.Out+100 {
			t.Errorf("%s: %+v", name, got)
		}
		cancel()
	}
	close(left)
}

// Embeddings have no answer that a model has written, and what counts tokens costs none.
func TestWhatIsGuessed(t *testing.T) {
	upstream := far(t, func(w http.ResponseWriter, r *http.Request, _ string) {
		io.WriteString(w, `{"data":"`+strings.Repeat("x", 4000)+`"}`)
	})
	g := open(t, t.TempDir(), upstream)
	key := g.key("a", Rules{TokensPerDay: 1_000_000})
	question := `{"model":"m","input":"` + strings.Repeat("x", 400) + `"}`
	for _, path := range []string{"openai/embeddings", "gemini/models/m:batchEmbedContents", "anthropic/messages/count_tokens", "gemini/models/m:countTokens", "openai/chat/completions"} {
		g.ask("POST", "/api/gateway/"+path, key, question)
	}
	for i, want := range [][2]int64{{106, 0}, {106, 0}, {0, 0}, {0, 0}, {106, 1002}} {
		if got := g.lines()[i]; got.In != want[0] || got.Out != want[1] {
			t.Errorf("%d: %+v", i, got)
		}
	}
}

func TestRequestsOfAMinute(t *testing.T) {
	upstream := far(t, func(w http.ResponseWriter, r *http.Request, _ string) {})
	g := open(t, t.TempDir(), upstream)
	key := g.key("a", Rules{PerMinute: 3})
	use := func() int { status, _, _ := g.ask("GET", "/api/gateway/openai/models", key, ""); return status }
	for i, want := range []int{200, 200, 200, 429, 429} {
		if got := use(); got != want {
			t.Errorf("request %d: %d", i+1, got)
		}
	}
	g.clock.pass(20 * time.Second)
	if use() != 200 || use() != 429 {
		t.Error("after 20 s there is not one more")
	}
}

func TestAnAnswerComesAsItIsWritten(t *testing.T) {
	write, wrote := make(chan string), make(chan struct{})
	upstream := far(t, func(w http.ResponseWriter, r *http.Request, _ string) {
		w.Header().Set("Content-Type", "text/event-stream")
		for s := range write {
			io.WriteString(w, s)
			w.(http.Flusher).Flush()
			wrote <- struct{}{}
		}
	})
	g := open(t, t.TempDir(), upstream)
	key := g.key("a", Rules{})
	req := proctest.Value(http.NewRequest("POST", g.url+"/api/gateway/openai/chat/completions", strings.NewReader(`{"model":"m","stream":true}`)))(t)
	req.Header.Set("Authorization", "Bearer "+key)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(write)
		write <- "data: {\"a\":1}\n\n"
		<-wrote
	}()
	resp := proctest.Value(http.DefaultClient.Do(req))(t)
	defer resp.Body.Close()
	buf := make([]byte, 15)
	proctest.Value(io.ReadFull(resp.Body, buf))(t) // while the answer continues
	<-done
	proctest.Value(io.ReadAll(resp.Body))(t)
}

func TestKeysAreChecked(t *testing.T) {
	g := open(t, t.TempDir(), "")
	for _, c := range []struct {
		name  string
		rules Rules
		field string
	}{
		{"", Rules{}, "name"}, {"a b", Rules{}, "name"}, {"../x", Rules{}, "name"}, {strings.Repeat("x", 65), Rules{}, "name"},
		{"a", Rules{PerMinute: -1}, "rules.requests_per_minute"}, {"a", Rules{TokensPerDay: MostTokens + 1}, "rules.tokens_per_day"},
		{"a", Rules{Models: []string{""}}, "rules.models"}, {"a", Rules{Providers: make([]string, 101)}, "rules.providers"}, {"a", Rules{Sandbox: strings.Repeat("x", 129)}, "rules.sandbox"},
	} {
		_, _, err := g.keys.create(c.name, c.rules)
		if invalid, ok := errors.AsType[*process.InvalidError](err); !ok || invalid.Field != c.field {
			t.Errorf("%q %+v: %v", c.name, c.rules, err)
		}
	}
	first := g.key("a", Rules{})
	if _, _, err := g.keys.create("a", Rules{}); !errors.Is(err, process.ErrExists) {
		t.Errorf("a name that is taken: %v", err)
	}
	if second := g.key("b", Rules{}); second == first || !strings.HasPrefix(second, "vk_") || len(second) < 25 {
		t.Errorf("the keys are %s and %s", first, second)
	}
	if err := g.keys.revoke("c"); !errors.Is(err, process.ErrNotFound) {
		t.Errorf("an unknown one: %v", err)
	}
	proctest.Must(t, os.WriteFile(filepath.Join(g.dir, "keys.json"), []byte("{"), 0o600))
	if _, err := g.keys.find(first); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("a damaged file: %v", err)
	}
}

func TestProvidersAreChecked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.yaml")
	for text, says := range map[string]string{
		"":                                    "names 0 providers",
		"providers: {anthropic: {}}":          "needs a key",
		"providers: {mine: {key: secret1}}":   "needs a base_url",
		"providers: {google: {key: secret1}}": "google is gemini",
		"providers: {anthropic: {key: secret1, base_url: 'ftp://x'}}": "base_url",
		"providers: {anthropic: {key: 'secret1 two'}}":                "one word",
		"providers: {anthropic: {kye: secret1}}":                      "line 1",
		"providers: {anthropic: {key: secret1, headers: [range]}}":    "X-Tenant",
		"providers: {anthropic: {key: secret1, headers: ['a b']}}":    "X-Tenant",
		"providers: {anthropic: {key: [secret1}}":                     "line 1",
	} {
		proctest.Must(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := ReadProviders(path)
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "secret1") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestProvidersThatChange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.yaml")
	p := &providers{path: path}
	if _, err := p.find("openai"); err == nil {
		t.Error("a file that is missing is no error")
	}
	set := func(text string) { proctest.Must(t, os.WriteFile(path, []byte(text), 0o600)) }
	set("providers: {openai: {key: one}}")
	if got, err := p.find("openai"); err != nil || got.key != "one" {
		t.Fatalf("%+v, %v", got, err)
	}
	set("providers: {")
	if got, err := p.find("openai"); err != nil || got.key != "one" {
		t.Errorf("while it is being written: %+v, %v", got, err)
	}
	set("providers: {openai: {key: two-and-longer}}")
	if got, err := p.find("openai"); err != nil || got.key != "two-and-longer" {
		t.Errorf("afterwards: %+v, %v", got, err)
	}
	// A second change within the same tick of the clock, of the same size.
	at := time.Now()
	for _, key := range []string{"abc", "xyz"} {
		set("providers: {openai: {key: " + key + "}}")
		proctest.Must(t, os.Chtimes(path, at, at))
		if got, err := p.find("openai"); err != nil || got.key != key {
			t.Errorf("the key is %s: %+v, %v", key, got, err)
		}
	}
}
