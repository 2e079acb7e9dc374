package langsmith_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// events reads a stream of server-sent events.
type events struct {
	t    *testing.T
	body io.ReadCloser
	in   *bufio.Reader
}

type event struct {
	name string
	data struct {
		CommandID    string `json:"command_id"`
		PID          int    `json:"pid"`
		Offset       int64  `json:"offset"`
		Data         []byte `json:"data"`
		Stream       string `json:"stream"`
		ExitCode     *int   `json:"exit_code"`
		ErrorType    string `json:"error_type"`
		Error        string `json:"error"`
		StdoutOffset int64  `json:"stdout_offset"`
	}
}

func (s *server) events(verb, body string) *events {
	s.t.Helper()
	res := s.do("POST", s.data()+"/execute/stream/"+verb, body)
	s.t.Cleanup(func() { res.Body.Close() })
	if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "text/event-stream" {
		text, _ := io.ReadAll(res.Body)
		s.t.Fatalf("%s %s: %s %s", verb, body, res.Status, text)
	}
	return &events{s.t, res.Body, bufio.NewReader(res.Body)}
}

// next returns one event; ok is false at the end of the stream.
func (e *events) next() (ev event, ok bool) {
	e.t.Helper()
	for {
		line, err := e.in.ReadString('\n')
		line = strings.TrimSuffix(line, "\n")
		name, value, _ := strings.Cut(line, ": ")
		switch {
		case err != nil:
			return ev, false
		case name == "event":
			ev.name = value
		case name == "data":
			if err := json.Unmarshal([]byte(value), &ev.data); err != nil {
				e.t.Fatalf("%q: %v", line, err)
			}
		case line == "" && ev.name != "":
			return ev, true
		}
	}
}

// all reads to the end: each event in one word, and both outputs.
func (e *events) all(stdout, stderr int64) (words string, out, err []byte) {
	e.t.Helper()
	at := map[string]int64{"stdout": stdout, "stderr": stderr}
	var list []string
	for {
		ev, ok := e.next()
		if !ok {
			return strings.Join(list, " "), out, err
		}
		word := ev.name
		switch ev.name {
		case "stdout", "stderr":
			if ev.data.Offset != at[ev.name] {
				e.t.Fatalf("%s goes on at %d, want %d", ev.name, ev.data.Offset, at[ev.name])
			}
			at[ev.name] += int64(len(ev.data.Data))
			if ev.name == "stdout" {
				out = append(out, ev.data.Data...)
			} else {
				err = append(err, ev.data.Data...)
			}
			if len(list) > 0 && list[len(list)-1] == word {
				continue
			}
		case "stream_end":
			if ev.data.Offset != at[ev.data.Stream] {
				e.t.Errorf("%s ends at %d, want %d", ev.data.Stream, ev.data.Offset, at[ev.data.Stream])
			}
			continue
		case "exit":
			word = fmt.Sprintf("exit=%d", *ev.data.ExitCode)
		case "error":
			word = "error=" + ev.data.ErrorType
		}
		list = append(list, word)
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	// Raw bytes with raw offsets: what is no text is cut nowhere and counted as it is.
	const start = `{"command":"printf 'a\\377\\303'; cat; printf e >&2; exit 4","command_id":"c1","timeout_seconds":60,"idle_timeout_seconds":300,"ttl_seconds":600,"shell":"/bin/bash"}`
	tests := []struct{ name, verb, body, words, out, err string }{
		{"a start", "start", start, "started stdout stderr exit=4", "a\xff\xc3", "e"},
		{"the same once more is the same command", "start", start, "started stdout stderr exit=4", "a\xff\xc3", "e"},
		{"a resume", "resume", `{"command_id":"c1","stdout_offset":1,"stderr_offset":1}`, "started stdout exit=4", "\xff\xc3", ""},
		{"a resume at the end", "resume", `{"command_id":"c1","stdout_offset":3,"stderr_offset":1}`, "started exit=4", "", ""},
		{"a resume beyond the end", "resume", `{"command_id":"c1","stdout_offset":9,"stderr_offset":9223372036854775807}`, "started exit=4", "", ""},
		{"a timeout", "start", `{"command":"echo x; sleep 60","command_id":"c2","timeout_seconds":0.2}`, "started stdout error=CommandTimeout", "x\n", ""},
		{"a timeout, told again", "resume", `{"command_id":"c2","stdout_offset":2}`, "started error=CommandTimeout", "", ""},
		{"no command id", "start", `{"command":"echo $A","env":{"A":"b"}}`, "started stdout exit=0", "b\n", ""},
		{"a job in the background", "start", `{"command":"sleep 60 & echo x"}`, "started stdout exit=0", "x\n", ""},
		{"a signal", "start", `{"command":"kill -9 $$"}`, "started exit=137", "", ""},
	}
	for _, tt := range tests {
		var from struct {
			Stdout int64 `json:"stdout_offset"`
			Stderr int64 `json:"stderr_offset"`
		}
		proctest.Must(t, json.Unmarshal([]byte(tt.body), &from))
		words, out, err := s.events(tt.verb, tt.body).all(min(from.Stdout, 3), min(from.Stderr, 1))
		if words != tt.words && words != strings.Replace(tt.words, "stdout stderr", "stderr stdout", 1) || string(out) != tt.out || string(err) != tt.err {
			t.Errorf("%s: %s %q %q, want %s %q %q", tt.name, words, out, err, tt.words, tt.out, tt.err)
		}
	}
	refused := []struct {
		verb, body string
		status     int
		say        string
	}{
		{"resume", `{"command_id":"nobody"}`, 404, "CommandNotFound"},
		{"resume", `{"command_id":"c1","stdout_offset":-1}`, 400, "stdout_offset"},
		{"start", `{"command":"true","pty":true}`, 400, "pty"},
		{"start", `{"command":"true","kill_on_disconnect":true}`, 400, "kill_on_disconnect"},
		{"start", `{"command":"true","timeout_seconds":-1}`, 400, "timeout_seconds"},
		{"start", `{"command":"true","shell":"/no/shell"}`, 400, "CommandError"},
		{"start", `{}`, 400, "command"},
		{"start", `{`, 400, "InvalidRequest"},
	}
	for _, tt := range refused {
		if status, body := s.call("POST", s.data()+"/execute/stream/"+tt.verb, tt.body); status != tt.status || !strings.Contains(body, tt.say) {
			t.Errorf("%s %s: %d %s, want %d and %s", tt.verb, tt.body, status, body, tt.status, tt.say)
		}
	}
}

func TestEventsOfWhatRuns(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	e := s.events("start", `{"command":"echo one; while [ ! -e go ]; do sleep 0.05; done; echo two","command_id":"c"}`)
	for _, want := range []string{"started", "stdout"} {
		if ev, ok := e.next(); !ok || ev.name != want {
			t.Fatalf("%+v, want %s", ev, want)
		}
	}
	e.body.Close() // the client leaves; the command continues
	again, ahead := s.events("resume", `{"command_id":"c","stdout_offset":4}`), s.events("resume", `{"command_id":"c","stdout_offset":6}`)
	if ev, ok := again.next(); !ok || ev.name != "started" || ev.data.CommandID != "c" || ev.data.PID == 0 {
		t.Fatalf("%+v", ev)
	}
	// The server reloads: the client is told to resume.
	proctest.Must(t, s.face.Close())
	if words, _, _ := again.all(4, 0); words != "error=ServerShuttingDown" {
		t.Errorf("at the stop of the server came %s", words)
	}
	if words, _, _ := ahead.all(4, 0); words != "started error=ServerShuttingDown" {
		t.Errorf("at the stop of the server came %s", words)
	}
	s.start(nil)
	again, ahead = s.events("resume", `{"command_id":"c","stdout_offset":4}`), s.events("resume", `{"command_id":"c","stdout_offset":6}`)
	if status, body := s.call("POST", s.data()+"/execute", `{"command":"touch go"}`); status != 200 {
		t.Fatal(status, body)
	}
	if words, out, _ := again.all(4, 0); words != "started stdout exit=0" || string(out) != "two\n" {
		t.Errorf("%s %q", words, out)
	}
	if words, out, _ := ahead.all(6, 0); words != "started stdout exit=0" || string(out) != "o\n" {
		t.Errorf("ahead: %s %q", words, out)
	}
	infos, err := s.manager.List(t.Context(), process.Filter{Labels: map[string]string{"langsmith.command": "c"}})
	if err != nil || len(infos) != 1 {
		t.Errorf("%d processes, %v", len(infos), err)
	}
}

func TestErrorsThatMustNotBeRepeatedSaySo(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for _, tt := range []struct{ path, body string }{
		{s.data() + "/execute", `{"command":"sleep 60","timeout":0.1}`},              // 408
		{"/v2/sandboxes/boxes", `{"restore_memory":true}`},                           // 501
		{"/v2/sandboxes/boxes", `{"name":"box"}`},                                    // 409
		{"/v2/sandboxes/boxes", `{"idle_ttl_seconds":-1}`},                           // 422
		{s.data() + "/execute/stream/resume", `{"command_id":"nobody"}`},             // 404
		{s.data() + "/execute", `{"command":"true","run_config":{"user":"nouser"}}`}, // 400
	} {
		res := s.do("POST", tt.path, tt.body)
		res.Body.Close()
		if res.StatusCode < 400 || res.Header.Get("X-Should-Retry") != "false" {
			t.Errorf("%s %s: %s %v", tt.path, tt.body, res.Status, res.Header)
		}
	}
}
