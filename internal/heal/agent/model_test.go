package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tend-run/tend/internal/heal/agent"
	"github.com/tend-run/tend/internal/support/proctest"
)

var hello = agent.Request{
	System:   "You are asked.",
	Messages: []agent.Message{{Role: agent.User, Blocks: []agent.Block{{Text: "hello"}}}},
	Tools:    []agent.Tool{{Name: "look", Description: "Look.", Schema: m{"type": "object", "properties": m{"at": m{"type": "string"}}}}},
}

// answer is what the model of these tests says, and replied is how it arrives.
var answer = []m{{"text": "I shall look: ä, 日本語."}, {"tool": "look", "id": "call_a", "input": m{"at": "here, and there"}}, {"tool": "look", "id": "call_b", "input": m{}}}

var replied = []agent.Block{
	{Text: "I shall look: ä, 日本語."},
	{Kind: agent.CallBlock, ID: "call_a", Name: "look", Input: json.RawMessage(`{"at":"here, and there"}`)},
	{Kind: agent.CallBlock, ID: "call_b", Name: "look", Input: json.RawMessage(`{}`)},
}

func TestAReplyIsReadAsItWasMeant(t *testing.T) {
	script := turns(m{"expect_system": []string{"You are asked."}, "expect": []string{"hello"}, "expect_tools": []string{"look"}, "reply": answer, "usage": m{"input_tokens": 120, "output_tokens": 30}})
	both(t, script, nil, func(t *testing.T, f *fake, model agent.Model) {
		said, began := "", []string{}
		reply := proctest.Value(model.Ask(t.Context(), hello, func(d agent.Delta) {
			said += d.Text
			if d.Tool != "" {
				began = append(began, d.Tool)
			}
		}))(t)
		want := agent.Reply{Blocks: replied, Stop: agent.ToolUse, Usage: agent.Usage{Input: 120, Output: 30}}
		if d := cmp.Diff(want, reply); d != "" {
			t.Error(d)
		}
		if said != replied[0].Text || len(began) != 2 {
			t.Errorf("live: %q, %q", said, began)
		}
		f.done(t)
	})
}

// TestWhatBreaksIsAskedAgain: each fault once, and the reply arrives whole, also
// where a stream breaks after its headers.
func TestWhatBreaksIsAskedAgain(t *testing.T) {
	for _, fault := range []m{
		{"kind": "rate_limit"}, {"kind": "overloaded"}, {"kind": "server_error"}, {"kind": "status", "status": 408}, {"kind": "status", "status": 503},
		{"kind": "cut", "after": 1}, {"kind": "cut", "after": 5}, {"kind": "truncate", "after": 1}, {"kind": "truncate", "after": 6},
		{"kind": "stream_error", "after": 3}, {"kind": "hang"}, {"kind": "drop"}, {"kind": "garbage"}, {"kind": "slow", "delay_ms": 1},
	} {
		fault["times"] = 2
		t.Run(fmt.Sprint(fault["kind"], fault["status"], fault["after"]), func(t *testing.T) {
			t.Parallel()
			script := turns(m{"reply": answer, "faults": []m{fault}})
			patient := func(c *agent.Config) {
				if fault["kind"] == "hang" {
					c.Idle = 300 * time.Millisecond
				}
			}
			both(t, script, patient, func(t *testing.T, f *fake, model agent.Model) {
				reply := proctest.Value(model.Ask(t.Context(), hello, nil))(t)
				if d := cmp.Diff(replied, reply.Blocks); d != "" || reply.Stop != agent.ToolUse {
					t.Errorf("stop %q, %s", reply.Stop, d)
				}
				want := 3
				if fault["kind"] == "slow" {
					want = 1
				}
				if n := len(f.asked(t)); n != want {
					t.Errorf("%d requests, want %d", n, want)
				}
				f.done(t)
			})
		})
	}
}

// TestTriesAreBounded: each fault for ever ends with an error that says what it
// is.
func TestTriesAreBounded(t *testing.T) {
	for _, c := range []struct {
		fault m
		kind  agent.ErrorKind
		tries int
	}{
		{m{"kind": "rate_limit"}, agent.Unavailable, 3},
		{m{"kind": "overloaded", "message": "Overloaded, it says"}, agent.Unavailable, 3},
		{m{"kind": "server_error"}, agent.Unavailable, 3},
		{m{"kind": "drop"}, agent.Unavailable, 3},
		{m{"kind": "cut", "after": 4}, agent.Broken, 3},
		{m{"kind": "truncate", "after": 4}, agent.Broken, 3},
		{m{"kind": "stream_error", "after": 4}, agent.Unavailable, 3},
		{m{"kind": "garbage"}, agent.Broken, 3},
		{m{"kind": "hang"}, agent.Broken, 3},
		{m{"kind": "rate_limit", "retry_after": "3600"}, agent.Unavailable, 1}, // nobody waits an hour
		{m{"kind": "status", "status": 401}, agent.Unauthorized, 1},
		{m{"kind": "status", "status": 403}, agent.Unauthorized, 1},
		{m{"kind": "status", "status": 400, "message": "no such model"}, agent.Invalid, 1},
		{m{"kind": "status", "status": 413}, agent.TooLong, 1},
		{m{"kind": "status", "status": 400, "message": "prompt is too long: 210000 tokens > 200000 maximum"}, agent.TooLong, 1},
	} {
		c.fault["times"] = 1000
		t.Run(fmt.Sprint(c.fault["kind"], c.fault["status"], c.fault["retry_after"], c.fault["message"]), func(t *testing.T) {
			t.Parallel()
			conf := func(conf *agent.Config) {
				conf.Retries = 2
				if c.fault["kind"] == "hang" {
					conf.Idle = 200 * time.Millisecond
				}
			}
			both(t, turns(m{"reply": answer, "faults": []m{c.fault}}), conf, func(t *testing.T, f *fake, model agent.Model) {
				reply, err := model.Ask(t.Context(), hello, nil)
				var e *agent.ModelError
				if !errors.As(err, &e) || e.Kind != c.kind {
					t.Fatalf("%v, %v", reply, err)
				}
				if says, _ := c.fault["message"].(string); !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), fakeKey) {
					t.Errorf("the error says %q", err)
				}
				if n := len(f.asked(t)); n != c.tries {
					t.Errorf("%d requests, want %d", n, c.tries)
				}
			})
		})
	}
}

// TestRetryAfterIsHonoured: an hour between tries, unless the server says that
// less will do.
func TestRetryAfterIsHonoured(t *testing.T) {
	script := turns(m{"reply": answer, "faults": []m{{"kind": "rate_limit", "retry_after": "0"}, {"kind": "overloaded", "retry_after": "0"}}})
	slow := func(c *agent.Config) { c.Backoff = time.Hour }
	both(t, script, slow, func(t *testing.T, f *fake, model agent.Model) {
		proctest.Value(model.Ask(t.Context(), hello, nil))(t)
		f.done(t)
	})
}

func TestAContextEndsTheWaiting(t *testing.T) {
	for name, script := range map[string]m{
		"between tries":         turns(m{"reply": answer, "faults": []m{{"kind": "server_error", "times": 9}}}),
		"while nothing comes":   turns(m{"reply": answer, "faults": []m{{"kind": "hang", "times": 9}}}),
		"in the middle of what": turns(m{"reply": answer, "faults": []m{{"kind": "slow", "delay_ms": 60000}}}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			slow := func(c *agent.Config) { c.Backoff = time.Hour }
			both(t, script, slow, func(t *testing.T, f *fake, model agent.Model) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				end := make(chan error)
				go func() {
					_, err := model.Ask(ctx, hello, nil)
					end <- err
				}()
				if name != "in the middle of what" { // that one is logged at its end
					proctest.Eventually(t, "a request", func() bool { return len(f.asked(t)) > 0 })
				}
				cancel()
				if err := <-end; !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
		})
	}
}

// TestAddresses: a base with and without /v1, one of a gateway, and one of a
// gateway that adds /v1 by itself, as that of the seed does.
func TestAddresses(t *testing.T) {
	for _, p := range providers {
		path := map[string]string{"anthropic": "/messages", "openai": "/chat/completions"}[p.name]
		for _, c := range []struct{ base, only, want string }{
			{"", "", "/v1" + path},
			{"/", "", "/v1" + path},
			{"/v1", "", "/v1" + path},
			{"/v1/", "", "/v1" + path},
			{"/api/gateway/" + p.name, "", "/api/gateway/" + p.name + "/v1" + path},
			{"/api/gateway/" + p.name, "/api/gateway/" + p.name + path, "/api/gateway/" + p.name + path},
			{"/api/gateway/" + p.name + "/v1", "/api/gateway/" + p.name + path, "/api/gateway/" + p.name + path},
		} {
			t.Run(p.name+" "+c.base+" "+c.only, func(t *testing.T) {
				t.Parallel()
				f := start(t, turns(m{"reply": answer}, m{"reply": answer}))
				misses := 0
				gate := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if c.only != "" && r.URL.Path != c.only {
						misses++
						http.NotFound(w, r)
						return
					}
					req := proctest.Value(http.NewRequestWithContext(r.Context(), r.Method, f.URL+r.URL.Path, r.Body))(t)
					req.Header = r.Header
					res := proctest.Value(http.DefaultTransport.RoundTrip(req))(t)
					defer res.Body.Close()
					w.Header().Set("Content-Type", res.Header.Get("Content-Type"))
					w.WriteHeader(res.StatusCode)
					io.Copy(w, res.Body)
				}))
				defer gate.Close()
				model := proctest.Value(p.new(agent.Config{BaseURL: gate.URL + c.base, Key: fakeKey, Model: "scripted"}))(t)
				for range 2 {
					proctest.Value(model.Ask(t.Context(), hello, nil))(t)
				}
				for _, a := range f.asked(t) {
					if a.Path != c.want {
						t.Errorf("asked at %s, want %s", a.Path, c.want)
					}
				}
				if misses > 1 {
					t.Errorf("%d requests went to the wrong address: it is not remembered", misses)
				}
				f.done(t)
			})
		}
	}
}

func TestWrongSettingsAreNamed(t *testing.T) {
	for _, p := range providers {
		for want, c := range map[string]agent.Config{
			"model: ":    {},
			"base_url: ": {Model: "x", BaseURL: "localhost:80"},
			"base_url:":  {Model: "x", BaseURL: "http://me:secret@host"},
			"base_url":   {Model: "x", BaseURL: "file:///etc/passwd"},
		} {
			if _, err := p.new(c); err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "secret@") {
				t.Errorf("%s %+v: %v", p.name, c, err)
			}
		}
	}
}

// TestTheKeyIsSentToNobodyElse: a redirect is not followed, and an answer that
// repeats the key does not bring it into an error.
func TestTheKeyIsSentToNobodyElse(t *testing.T) {
	for _, p := range providers {
		stranger := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the redirect was followed") }))
		defer stranger.Close()
		for name, handler := range map[string]http.HandlerFunc{
			"redirect": func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, stranger.URL, http.StatusTemporaryRedirect)
			},
			"echo": func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(http.StatusUnauthorized)
				fmt.Fprintf(w, `{"type":"error","error":{"type":"authentication_error","message":"bad key %s%s"}}`, r.Header.Get("x-api-key"), r.Header.Get("Authorization"))
			},
		} {
			srv := httptest.NewServer(handler)
			defer srv.Close()
			_, err := proctest.Value(p.new(agent.Config{BaseURL: srv.URL, Key: fakeKey, Model: "x", Retries: -1}))(t).Ask(t.Context(), hello, nil)
			if err == nil || strings.Contains(err.Error(), fakeKey) {
				t.Errorf("%s %s: %v", p.name, name, err)
			}
		}
	}
}

// TestAReplyHasABound: a server that sends without end.
func TestAReplyHasABound(t *testing.T) {
	for name, piece := range map[string]string{
		"anthropic": "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"%s\"}}\n\n",
		"openai":    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"%s\"}}]}\n\n",
		"comments":  ": %s\n",
		"line":      "%s",
	} {
		for _, p := range providers {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				io.WriteString(w, "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n")
				for much := strings.Repeat("x", 50_000); ; {
					if _, err := fmt.Fprintf(w, piece, much); err != nil {
						return
					}
				}
			}))
			reply, err := proctest.Value(p.new(agent.Config{BaseURL: srv.URL, Key: fakeKey, Model: "x", Retries: -1}))(t).Ask(t.Context(), hello, nil)
			var e *agent.ModelError
			if !errors.As(err, &e) || e.Kind != agent.Broken {
				t.Errorf("%s to %s: %v %v", name, p.name, reply.Stop, err)
			}
			srv.Close()
		}
	}
}

// TestServersThatDifferFromOpenAI: what compatible servers are known to do
// otherwise.
func TestServersThatDifferFromOpenAI(t *testing.T) {
	call := func(id, name, args string) agent.Block {
		return agent.Block{Kind: agent.CallBlock, ID: id, Name: name, Input: json.RawMessage(args)}
	}
	for name, c := range map[string]struct {
		kind, body string
		blocks     []agent.Block
		stop       agent.Stop
	}{
		"no stream at all": {"application/json", `{"choices":[{"index":0,"message":{"content":"hi","tool_calls":[{"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":5,"completion_tokens":2}}`,
			[]agent.Block{{Text: "hi"}, call("a", "f", `{"x":1}`)}, agent.ToolUse},
		"no DONE": {"text/event-stream", "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\n", []agent.Block{{Text: "hi"}}, agent.EndTurn},
		"calls without an index": {"text/event-stream", `data: {"choices":[{"delta":{"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}},{"id":"b","function":{"name":"g","arguments":"{}"}}]},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n",
			[]agent.Block{call("a", "f", `{}`), call("b", "g", `{}`)}, agent.EndTurn},
		"calls that all have index 0": {"text/event-stream", "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]}}]}\r\n\r\n" +
			"data:{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"b\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]},\"finish_reason\":\"tool_calls\"}]}\r\n\r\n", []agent.Block{call("a", "f", `{}`), call("b", "f", `{}`)}, agent.ToolUse},
		"arguments that are an object": {"text/event-stream", `data: {"choices":[{"delta":{"tool_calls":[{"id":"a","function":{"name":"f","arguments":{"x":[1]}}}]},"finish_reason":"tool_calls"}]}` + "\n\n",
			[]agent.Block{call("a", "f", `{"x":[1]}`)}, agent.ToolUse},
		"a refusal": {"text/event-stream", "data: {\"choices\":[{\"delta\":{\"refusal\":\"no\"}}]}\n\ndata: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n", []agent.Block{{Text: "no"}}, agent.Refusal},
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", c.kind)
			io.WriteString(w, c.body)
		}))
		reply, err := proctest.Value(agent.NewOpenAI(agent.Config{BaseURL: srv.URL + "/v1", Model: "x", Retries: -1}))(t).Ask(t.Context(), hello, nil)
		if d := cmp.Diff(c.blocks, reply.Blocks); err != nil || d != "" || reply.Stop != c.stop {
			t.Errorf("%s: %v, stop %s\n%s", name, err, reply.Stop, d)
		}
		if reply.Usage.Input == 0 || reply.Usage.Output == 0 && name != "no DONE" && name != "a refusal" {
			t.Errorf("%s: tokens that are not counted are not estimated: %+v", name, reply.Usage)
		}
		srv.Close()
	}
}

// TestNewModelsWantMaxCompletionTokens: the field is renamed once the server asks
// for it.
func TestNewModelsWantMaxCompletionTokens(t *testing.T) {
	f := start(t, turns(m{"reply": answer}, m{"reply": answer}))
	refusals := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := proctest.Value(io.ReadAll(r.Body))(t)
		if strings.Contains(string(body), `"max_tokens"`) {
			refusals++
			w.WriteHeader(http.StatusBadRequest)
			io.WriteString(w, `{"error":{"message":"Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.","type":"invalid_request_error","param":"max_tokens","code":"unsupported_parameter"}}`)
			return
		}
		req := proctest.Value(http.NewRequestWithContext(r.Context(), r.Method, f.URL+r.URL.Path, strings.NewReader(string(body))))(t)
		req.Header = r.Header
		res := proctest.Value(http.DefaultTransport.RoundTrip(req))(t)
		defer res.Body.Close()
		w.Header().Set("Content-Type", res.Header.Get("Content-Type"))
		io.Copy(w, res.Body)
	}))
	defer srv.Close()
	model := proctest.Value(agent.NewOpenAI(agent.Config{BaseURL: srv.URL + "/v1", Key: fakeKey, Model: "x"}))(t)
	for range 2 {
		proctest.Value(model.Ask(t.Context(), hello, nil))(t)
	}
	if refusals != 1 {
		t.Errorf("refused %d times", refusals)
	}
	f.done(t)
}

// A provider that states more tokens than there are spends the budget, and not less than nothing.
func TestTokensBeyondAllBounds(t *testing.T) {
	const most = "9223372036854775807"
	for name, stream := range map[string]string{
		"anthropic": `data: {"type":"message_start","message":{"usage":{"input_tokens":` + most + `,"cache_read_input_tokens":` + most + `}}}

data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":` + most + `}}

data: {"type":"message_stop"}

`,
		"openai": `data: {"choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":` + most + `,"completion_tokens":` + most + `}}

data: [DONE]

`,
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, stream) }))
		open := map[string]func(agent.Config) (agent.Model, error){"anthropic": agent.NewAnthropic, "openai": agent.NewOpenAI}[name]
		model := proctest.Value(open(agent.Config{BaseURL: srv.URL, Key: "k", Model: "m"}))(t)
		reply := proctest.Value(model.Ask(t.Context(), hello, nil))(t)
		sum := reply.Usage
		for range 100 {
			sum.Add(reply.Usage)
		}
		if total := sum.Input + sum.CacheRead + sum.CacheWrite; total < reply.Usage.Input || reply.Usage.Input < 1e9 || sum.Output < 1e9 {
			t.Errorf("%s: it is %+v, and %d in all", name, sum, total)
		}
		srv.Close()
	}
}
