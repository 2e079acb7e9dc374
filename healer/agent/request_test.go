package agent_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tend-run/tend/healer/agent"
	"github.com/tend-run/tend/internal/scene"
)

// TestARequestIsThatOfTheOfficialClient: testdata/messages.json is what
// anthropic-sdk-go v1.84.0 has sent for the same request.
func TestARequestIsThatOfTheOfficialClient(t *testing.T) {
	request := agent.Request{
		System: "You are asked <b>.",
		Messages: []agent.Message{
			{Role: agent.User, Blocks: []agent.Block{{Text: "hello"}, {Text: "there"}}},
			{Role: agent.Assistant, Blocks: []agent.Block{
				{Kind: agent.ThinkingBlock, Text: "hm", Opaque: "sig"}, {Kind: agent.HiddenBlock, Opaque: "data"}, {Text: "I look."},
				{Kind: agent.CallBlock, ID: "a", Name: "look", Input: json.RawMessage(`{"at": [1, 2.50, "ä"]}`)},
				{Kind: agent.CallBlock, ID: "b", Name: "rest", Input: json.RawMessage(`{}`)},
			}},
			{Role: agent.User, Blocks: []agent.Block{{Kind: agent.ResultBlock, ID: "a", Text: "nothing", Error: true}, {Kind: agent.ResultBlock, ID: "b", Text: "done"}}},
		},
		Tools: []agent.Tool{
			{Name: "look", Description: "Look.", Schema: m{"type": "object", "properties": m{"at": m{"type": "array"}}, "required": []string{"at"}, "additionalProperties": false}},
			{Name: "rest", Schema: m{"type": "object"}},
		},
	}
	var body []byte
	var header http.Header
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, header = scene.Value(io.ReadAll(r.Body))(t), r.Header
		w.WriteHeader(http.StatusBadRequest)
	}))
	defer srv.Close()
	ask := func(r agent.Request) (got any) {
		model := scene.Value(agent.NewAnthropic(agent.Config{BaseURL: srv.URL, Key: fakeKey, Model: "x", Retries: -1}))(t)
		if _, err := model.Ask(t.Context(), r, nil); err == nil {
			t.Error("no error")
		}
		scene.Must(t, json.Unmarshal(body, &got))
		return got
	}
	got := []any{ask(request), ask(hello), ask(agent.Request{MaxTokens: 7, Messages: request.Messages[:1]})}
	var want []any
	scene.Must(t, json.Unmarshal(scene.Value(os.ReadFile("testdata/messages.json"))(t), &want))
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for name, want := range map[string]string{"X-Api-Key": fakeKey, "Anthropic-Version": "2023-06-01", "Content-Type": "application/json"} {
		if header.Get(name) != want {
			t.Errorf("%s: %q", name, header.Get(name))
		}
	}
}

// TestWhatAStreamOfMessagesMayHold: events that say nothing are skipped, and an error is of the
// kind that it names.
func TestWhatAStreamOfMessagesMayHold(t *testing.T) {
	const start = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":9,\"cache_read_input_tokens\":2,\"output_tokens\":1}}}\n\n"
	const text = "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"hi\"}}\n\n"
	const end = "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":5}}\n\ndata: {\"type\":\"message_stop\"}\n\n"
	failing := func(kind string) string {
		return start + "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"" + kind + "\",\"message\":\"so it is\"}}\n\n"
	}
	for name, c := range map[string]struct {
		body string
		kind agent.ErrorKind
		says string // empty: the reply is whole
	}{
		"as it should be":     {start + "event: ping\ndata: {\"type\":\"ping\"}\n\n" + text + end, 0, ""},
		"what nobody knows":   {": comment\n\nevent: x\ndata:\n\ndata: {\"type\":\"later\",\"delta\":null}\r\n\r\n" + start + text + end, 0, ""},
		"no end":              {start + text, agent.Broken, "ended before"},
		"an unknown block":    {start + "data: {\"type\":\"content_block_start\",\"content_block\":{\"type\":\"server_tool_use\"}}\n\n" + end, agent.Broken, "server_tool_use"},
		"a piece of no block": {start + "data: {\"type\":\"content_block_delta\",\"index\":3,\"delta\":{\"type\":\"text_delta\",\"text\":\"x\"}}\n\n" + end, agent.Broken, "belongs to no part"},
		"overloaded":          {failing("overloaded_error"), agent.Unavailable, "so it is"},
		"a wrong request":     {failing("invalid_request_error"), agent.Invalid, "so it is"},
		"a wrong key":         {failing("authentication_error"), agent.Unauthorized, "so it is"},
		"too large":           {failing("request_too_large"), agent.TooLong, "so it is"},
		"an error as a text":  {start + "data: {\"type\":\"error\",\"error\":\"so it is\"}\n\n", agent.Unavailable, "so it is"},
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, c.body)
		}))
		reply, err := scene.Value(agent.NewAnthropic(agent.Config{BaseURL: srv.URL, Model: "x", Retries: -1}))(t).Ask(t.Context(), hello, nil)
		srv.Close()
		if c.says == "" {
			want := agent.Reply{Blocks: []agent.Block{{Text: "hi"}}, Stop: agent.EndTurn, Usage: agent.Usage{Input: 9, Output: 5, CacheRead: 2}}
			if d := cmp.Diff(want, reply); d != "" || err != nil {
				t.Errorf("%s: %v %s", name, err, d)
			}
			continue
		}
		var e *agent.ModelError
		if !errors.As(err, &e) || e.Kind != c.kind || e.Status != 0 || !strings.Contains(e.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
