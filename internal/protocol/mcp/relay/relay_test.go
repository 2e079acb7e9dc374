package relay_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tend-run/tend/internal/protocol/mcp/relay"
	"github.com/tend-run/tend/internal/support/proctest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// told is a writer that calls itself for each write.
type told func()

func (f told) Write(b []byte) (int, error) { f(); return len(b), nil }

// pass has messages passed on to a handler, and returns the answers. Those in also get them.
func pass(t testing.TB, h http.HandlerFunc, in io.Reader, also ...io.Writer) []string {
	t.Helper()
	return passFor(t, 2*time.Minute, h, in, also...)
}

// passFor is pass with the time that the server may not answer.
func passFor(t testing.TB, patience time.Duration, h http.HandlerFunc, in io.Reader, also ...io.Writer) []string {
	t.Helper()
	srv := httptest.NewServer(h)
	defer srv.Close()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	r := relay.Relay{Patience: patience, Connect: func(context.Context) (relay.Target, error) {
		return relay.Target{Client: client, URL: srv.URL + "/mcp", Header: http.Header{"Tend-Dir": {"/d"}}}, nil
	}}
	var out bytes.Buffer
	proctest.Must(t, r.Run(t.Context(), in, io.MultiWriter(append(also, &out)...)))
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

func read(t testing.TB, r *http.Request) string {
	return string(proctest.Value(io.ReadAll(r.Body))(t))
}

const ping = `{"jsonrpc":"2.0","id":"p","method":"ping"}` + "\n"

// TestAnAnswerThatBreaksOffIsAskedForAgain: by the id of its first event if there was
// one, else as the same call.
func TestAnAnswerThatBreaksOffIsAskedForAgain(t *testing.T) {
	var n atomic.Int32
	var keys [4]string
	got := pass(t, func(w http.ResponseWriter, r *http.Request) {
		i := n.Add(1) - 1
		keys[i] = r.Header.Get("Idempotency-Key")
		h := w.Header()
		h.Set("Content-Type", "text/event-stream")
		switch again := r.Header.Get("Tend-Again") != ""; {
		case i == 0 && r.Method == "POST" && !again && read(t, r) == strings.TrimSpace(ping):
			panic(http.ErrAbortHandler)
		case i == 1 && r.Method == "POST" && again && read(t, r) == strings.TrimSpace(ping):
			w.WriteHeader(http.StatusServiceUnavailable)
		case i == 2 && r.Method == "POST" && again:
			fmt.Fprint(w, "event: prime\nid: e7\ndata: \n\n: beat\n\nevent: message\ndata: {\"method\":\"notifications/progress\"}\n\nevent: message\ndata: {\"jsonrpc\"")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		case i == 3 && r.Method == "GET" && again && r.Header.Get("Last-Event-Id") == "e7" && r.Header.Get("Tend-Dir") == "/d":
			fmt.Fprint(w, "event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":\"p\",\"result\":{}}\n\n")
		default:
			t.Errorf("attempt %d: %s %v", i, r.Method, r.Header)
		}
	}, strings.NewReader(ping))
	if want := []string{`{"method":"notifications/progress"}`, `{"jsonrpc":"2.0","id":"p","result":{}}`}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %q", got)
	}
	if keys[0] == "" || keys[0] != keys[1] || keys[1] != keys[2] || keys[2] != keys[3] {
		t.Errorf("keys are %q", keys)
	}
}

func TestAServerThatDoesNotAnswerIsAnError(t *testing.T) {
	got := passFor(t, 300*time.Millisecond, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, strings.NewReader(ping))
	if len(got) != 1 || !strings.Contains(got[0], `"id":"p"`) || !strings.Contains(got[0], "has not answered for 300ms") {
		t.Errorf("got %q", got)
	}
}

func TestWrongLinesAreAnswered(t *testing.T) {
	served := 0
	h := func(w http.ResponseWriter, r *http.Request) {
		served++
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"a token"}}`)
	}
	for name, tt := range map[string]struct {
		line, want string
		served     int
	}{
		"garbage":             {"{\x00", "-32700", 0},
		"deep":                {strings.Repeat("[", 1<<20), "-32600", 0},
		"deep inside":         {`{"a":` + strings.Repeat("[", 1<<20), "-32700", 0},
		"a batch":             {"[" + strings.TrimSpace(ping) + "]", "a batch", 0},
		"a long line":         {`{"a":"` + strings.Repeat("x", 5<<20) + `"}`, "more than 4194304 bytes", 0},
		"a number":            {"7", "of another form", 0},
		"no method":           {`{}`, "without method and id", 0},
		"an answer of nobody": {`{"jsonrpc":"2.0","id":4,"result":{}}`, "", 0},
		"a notification":      {`{"jsonrpc":"2.0","method":"notifications/initialized"}`, "", 0},
		"no token":            {strings.TrimSpace(ping), `"id":"p"`, 1},
		"params that are no":  {`{"jsonrpc":"2.0","id":1,"method":"x","params":7}`, "a token", 1},
	} {
		served = 0
		got := pass(t, h, strings.NewReader("\n"+tt.line+"\n\n"))
		if len(got) != 1 || !strings.Contains(got[0], tt.want) || served != tt.served || tt.want == "" && got[0] != "" {
			t.Errorf("%s: %.200q, served %d", name, got, served)
		}
		if tt.want != "" && !json.Valid([]byte(got[0])) {
			t.Errorf("%s: %q is no JSON", name, got)
		}
	}
	if got := pass(t, h, strings.NewReader(ping[:len(ping)-1])); len(got) != 1 || !strings.Contains(got[0], "a token") {
		t.Errorf("a last line without its end: %q", got)
	}
}

// TestACancelledCallIsNotAnswered, and the server is told.
func TestACancelledCallIsNotAnswered(t *testing.T) {
	come, told := make(chan struct{}), make(chan string, 1)
	in, out := io.Pipe()
	go func() {
		fmt.Fprint(out, ping)
		<-come
		for range 1000 {
			fmt.Fprintln(out, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"p"}}`)
		}
		fmt.Fprintln(out, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"none"}}`)
		out.Close()
	}()
	var sessions [2]string
	got := pass(t, func(w http.ResponseWriter, r *http.Request) {
		body := read(t, r)
		if strings.Contains(body, "ping") {
			sessions[0] = r.Header.Get("Mcp-Session-Id")
			close(come)
			<-told
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"jsonrpc":"2.0","id":"p","result":{}}`)
			return
		}
		if sessions[1] != "" {
			t.Error("the server is told twice")
			return
		}
		sessions[1] = r.Header.Get("Mcp-Session-Id")
		told <- body
		w.WriteHeader(http.StatusAccepted)
	}, in)
	if len(got) != 1 || got[0] != "" {
		t.Errorf("got %q", got)
	}
	if sessions[0] == "" || sessions[0] != sessions[1] {
		t.Errorf("sessions are %q", sessions)
	}
}

// TestTheVersionIsThatOfTheMessageOrOfTheAgreement, as headers of the protocol.
func TestTheVersionIsThatOfTheMessageOrOfTheAgreement(t *testing.T) {
	in, out := io.Pipe()
	answered := make(chan struct{}, 9)
	go func() {
		for _, line := range []string{
			`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}`,
			`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`,
			`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"ä","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`,
		} {
			fmt.Fprintln(out, line)
			<-answered
		}
		out.Close()
	}()
	var got []string
	w := bufio.NewWriter(io.Discard)
	defer w.Flush()
	pass(t, func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header.Get("Mcp-Protocol-Version")+" "+r.Header.Get("Mcp-Method")+" "+r.Header.Get("Mcp-Name"))
		var m struct{ ID int }
		proctest.Must(t, json.NewDecoder(r.Body).Decode(&m))
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%d,\"result\":{\"protocolVersion\":\"2025-03-26\"}}\n\n", m.ID)
	}, in, told(func() { answered <- struct{}{} }))
	if want := "[   2025-03-26   2026-07-28 tools/call =?base64?w6Q=?=]"; fmt.Sprint(got) != want {
		t.Errorf("got %q, want %q", fmt.Sprint(got), want)
	}
}

// TestAClientThatIsGoneEndsTheRelay: nobody reads the answers.
func TestAClientThatIsGoneEndsTheRelay(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
	defer srv.Close()
	broken := errors.New("broken pipe")
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	r := relay.Relay{Connect: func(context.Context) (relay.Target, error) { return relay.Target{Client: client, URL: srv.URL}, nil }}
	if err := r.Run(t.Context(), strings.NewReader("{}\n{}\n"), failing{broken}); !errors.Is(err, broken) {
		t.Errorf("it ended with %v", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
