package gateway

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/tend-run/tend/internal/support/proctest"
)

func TestCounts(t *testing.T) {
	for _, c := range []struct {
		name, text string
		stream     bool
		in, out    int64
		found      bool
	}{
		{"Anthropic", `{"type":"message","usage":{"input_tokens":10,"cache_creation_input_tokens":5,"cache_read_input_tokens":2,"output_tokens":3}}`, false, 17, 3, true},
		{"Anthropic, streamed", "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\n\nevent: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{},\"usage\":{\"output_tokens\":15}}\n\n", true, 25, 15, true},
		{"OpenAI", `{"usage":{"prompt_tokens":9,"completion_tokens":12,"total_tokens":21}}`, false, 9, 12, true},
		{"OpenAI, streamed", "data: {\"choices\":[],\"usage\":null}\r\n\r\ndata: {\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":12}}\r\n\r\ndata: [DONE]\r\n\r\n", true, 9, 12, true},
		{"Responses, streamed", "data: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":37,\"output_tokens\":11}}}\n\n", true, 37, 11, true},
		{"Gemini", `{"usageMetadata":{"promptTokenCount":4,"candidatesTokenCount":5,"thoughtsTokenCount":6}}`, false, 4, 11, true},
		{"Gemini, an array", `[{"usageMetadata":{"promptTokenCount":4}},{"usageMetadata":{"promptTokenCount":4,"candidatesTokenCount":9}}]`, false, 4, 9, true},
		{"a stream without its last newline", "data: {\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}", true, 1, 2, true},
		{"none", `{"choices":[]}`, false, 0, 0, false},
		{"words of the model", "data: {\"text\":\"\\\"usage\\\":{\\\"input_tokens\\\":1}\"}\n\n", true, 0, 0, false},
		{"numbers that overflow", `{"usage":{"input_tokens":9223372036854775807,"cache_read_input_tokens":9223372036854775807,"output_tokens":-5}}`, false, mostCounted, 0, true},
		{"no JSON", `usage: lots`, false, 0, 0, false},
		{"a line that is too long, and one that is not", "data: " + strings.Repeat("x", maxCounted) + "\ndata: {\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}\n", true, 1, 2, true},
	} {
		for how, r := range map[string]io.Reader{"at once": strings.NewReader(c.text), "byte by byte": iotest.OneByteReader(strings.NewReader(c.text))} {
			if how == "byte by byte" && len(c.text) > 1<<20 {
				continue
			}
			ended := 0
			k := &counter{body: io.NopCloser(r), stream: c.stream, done: func(*counter) { ended++ }}
			got := string(proctest.Value(io.ReadAll(k))(t))
			proctest.Must(t, k.Close())
			if got != c.text || k.in != c.in || k.out != c.out || k.found != c.found || ended != 1 || k.bytes != int64(len(c.text)) {
				t.Errorf("%s, %s: %d in, %d out, found: %t, ended %d times", c.name, how, k.in, k.out, k.found, ended)
			}
		}
	}
}

// FuzzQuestion: whoever reads a body that is accepted reads one model in it, and it is
// this one.
func FuzzQuestion(f *testing.F) {
	for _, seed := range []string{`{"model":"a"}`, `{"model":"a","model":"b"}`, `{"MODEL":"a","model":"b"}`, `{"x":{"model":"b"},"model":"a"}`, "{\"mod\u00e9l\":1}", `[]`, `{"model":"a"}{}`, `{"mod\u0065l":"a","x":{"y":[1,{"z":"\ud800\n"}]}}`, "{\"model\":\"a\",\"tool\u017f\":[{}]}"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		q, err := ask("POST", "responses", body, true)
		if err != nil {
			return
		}
		if again, err := plainly(q.body); err != nil || string(again) != string(q.body) {
			t.Fatalf("%q is sent as %q, which is not plain: %v", body, q.body, err)
		}
		body = q.body
		var all map[string]json.RawMessage
		if err := json.Unmarshal(body, &all); err != nil {
			t.Fatalf("%q was accepted: %v", body, err)
		}
		n := 0
		for name := range all {
			if fold(name) == "model" {
				n++
			}
		}
		var model string
		if err := json.Unmarshal(all["model"], &model); err != nil || model != q.model || n != 1 {
			t.Fatalf("%q says %q, %d models, %v", body, q.model, n, err)
		}
	})
}
