package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/protocol/mcp"
	"github.com/tend-run/tend/internal/protocol/module"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/host"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Versions of the protocol that behave differently: with sessions and streams that are
// resumed, and without either.
var versions = []string{"2025-06-18", "2025-11-25", "2026-07-28"}

// world is a face over a real keeper.
type world struct {
	t      testing.TB
	m      process.Manager
	d      driver.Driver
	secret *protocol.Secret
	token  protocol.Token
	face   *mcp.Face
	url    string
	dir    string
}

func newWorld(t testing.TB, change ...func(*mcp.Config)) *world {
	t.Helper()
	w := &world{t: t, m: testkeeper.New(t), secret: protocol.NewSecret(), dir: t.TempDir()}
	d, err := host.Open(host.Config{Dir: filepath.Join(t.TempDir(), "boxes"), Manager: w.m})
	w.d = proctest.Value(d, err)(t)
	w.serve(change...)
	return w
}

// serve makes a face, as a server that follows another does, and serves it.
func (w *world) serve(change ...func(*mcp.Config)) {
	t := w.t
	t.Helper()
	cfg := mcp.Config{Machine: host.NewMachine(w.m), Driver: w.d, Secret: w.secret, Token: func() protocol.Token { return w.token }, Version: "test"}
	for _, f := range change {
		f(&cfg)
	}
	w.face = proctest.Value(mcp.New(cfg))(t)
	mux := http.NewServeMux()
	proctest.Must(t, module.Mount(mux, w.face, nil))
	srv := httptest.NewServer(mux)
	w.url = srv.URL + mcp.Path
	f := w.face
	t.Cleanup(func() {
		f.Close()
		http.DefaultClient.CloseIdleConnections()
		srv.CloseClientConnections()
		srv.Close()
	})
}

// header adds headers to requests.
type header http.Header

func (h header) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, values := range h {
		r.Header[name] = values
	}
	return http.DefaultTransport.RoundTrip(r)
}

// connect is the official Go client, with headers as name and value in turn.
func (w *world) connect(version string, o *sdk.ClientOptions, headers ...string) *sdk.ClientSession {
	w.t.Helper()
	h := http.Header{mcp.HeaderDir: {w.dir}}
	for i := 0; i+1 < len(headers); i += 2 {
		h.Set(headers[i], headers[i+1])
	}
	c := sdk.NewClient(&sdk.Implementation{Name: "test"}, o)
	tr := &sdk.StreamableClientTransport{Endpoint: w.url, HTTPClient: &http.Client{Transport: header(h)}}
	s, err := c.Connect(w.t.Context(), tr, &sdk.ClientSessionOptions{ProtocolVersion: version})
	s = proctest.Value(s, err)(w.t)
	w.t.Cleanup(func() { s.Close() })
	return s
}

// args are the arguments of a tool.
type args = map[string]any

// try calls a tool.
func try(t testing.TB, s *sdk.ClientSession, tool string, a args) (text string, failed bool, facts map[string]any) {
	t.Helper()
	res := proctest.Value(s.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: a}))(t)
	for _, c := range res.Content {
		text += c.(*sdk.TextContent).Text
	}
	facts, _ = res.Meta["tend"].(map[string]any)
	return text, res.IsError, facts
}

// ask calls a tool that must not fail.
func ask(t testing.TB, s *sdk.ClientSession, tool string, a args) (string, map[string]any) {
	t.Helper()
	text, failed, facts := try(t, s, tool, a)
	if failed {
		t.Fatalf("%s %v: %s", tool, a, text)
	}
	return text, facts
}

// wants wants each word in a text.
func wants(t testing.TB, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%q is missing in:\n%s", w, text)
		}
	}
}

func each(t *testing.T, test func(t *testing.T, version string)) {
	for _, v := range versions {
		t.Run(v, func(t *testing.T) { test(t, v) })
	}
}

func TestRunSaysHowItEndedAndShowsTheOutput(t *testing.T) {
	w := newWorld(t)
	each(t, func(t *testing.T, version string) {
		s := w.connect(version, nil)
		text, facts := ask(t, s, "run", args{"command": "echo out; echo err >&2; exit 3"})
		wants(t, text, "exited with code 3", "stdout 0 to 4:\nout\n", "stderr 0 to 4:\nerr\n")
		if exit := facts["exit"].(map[string]any); exit["code"] != 3.0 || facts["state"] != "exited" {
			t.Errorf("facts are %v", facts)
		}
		text, _ = ask(t, s, "run", args{"argv": []string{"printf", "%s", "a  b"}})
		wants(t, text, "code 0", "stdout 0 to 4:\na  b\n")
		text, _ = ask(t, s, "run", args{"command": "pwd; echo $A", "env": args{"A": "b c"}})
		wants(t, text, w.dir+"\nb c\n")
		text, _ = ask(t, s, "run", args{"command": "cat; echo .", "input": "hello"})
		wants(t, text, "hello.")
		text, _ = ask(t, s, "run", args{"command": "kill -SEGV $$"})
		wants(t, text, "was ended by SIGSEGV")
		text, _ = ask(t, s, "run", args{"command": "sleep 100", "kill_after_s": 0.1})
		wants(t, text, "SIGKILL, killed at kill_after_s")
	})
}

func TestARunThatOutlivesItsTimeGoesOnAndIsFound(t *testing.T) {
	w := newWorld(t)
	each(t, func(t *testing.T, version string) {
		s := w.connect(version, nil)
		text, facts := ask(t, s, "run", args{"command": "echo begun; read x; echo got $x; sleep 1000", "stdin": "pipe", "timeout_s": 0.3, "match": "never", "name": "w" + version})
		id := facts["id"]
		// A machine under load may start the shell only after the time is up.
		for n := 0; n < 100 && !strings.Contains(text, "it waits for input"); n++ {
			wants(t, text, "is up, and it runs on")
			text, _ = ask(t, s, "wait", args{"id": id, "timeout_s": 0.3, "match": "never"})
		}
		wants(t, text, "runs (pid", "is up, and it runs on; it waits for input", "begun")
		text, _ = ask(t, s, "list", nil)
		wants(t, text, id.(string), "w"+version)
		text, _ = ask(t, s, "input", args{"id": id, "text": "seven\n", "match": "got"})
		wants(t, text, `matches at 6: "got"`, "stdout 6 to 16:\ngot seven\n")
		text, _ = ask(t, s, "wait", args{"id": "w" + version, "quiet_ms": 1})
		wants(t, text, "quiet for 1 ms", "begun\ngot seven")
		text, facts = ask(t, s, "stop", args{"id": id})
		wants(t, text, "was ended by SIGTERM")
		if facts["state"] != "exited" {
			t.Errorf("stop: %v", facts)
		}
		text, _ = ask(t, s, "output", args{"id": id, "stream": "stdout", "from": 6})
		wants(t, text, "stdout 6 to 16:\ngot seven\n")
		text, _ = ask(t, s, "list", args{"all": true})
		wants(t, text, id.(string)+" w"+version+" was ended by SIGTERM")
	})
}

func TestStopKillsWhatDoesNotListen(t *testing.T) {
	w := newWorld(t)
	s := w.connect("", nil)
	_, facts := ask(t, s, "run", args{"command": `trap "" TERM; echo ready; while :; do sleep 1000; done`, "match": "ready"})
	text, _ := ask(t, s, "stop", args{"id": facts["id"], "grace_s": 0.1})
	wants(t, text, "SIGKILL", "was killed")
	_, facts = ask(t, s, "run", args{"command": `trap "echo hup" HUP; echo ready; while :; do sleep 0.01; done`, "match": "ready"})
	text, _ = ask(t, s, "stop", args{"id": facts["id"], "signal": "hup"})
	wants(t, text, "was sent SIGHUP")
	ask(t, s, "wait", args{"id": facts["id"], "match": "hup"})
	text, _ = ask(t, s, "stop", args{"id": facts["id"], "signal": "KILL"})
	wants(t, text, "SIGKILL")
}

func TestATerminalIsDriven(t *testing.T) {
	w := newWorld(t)
	s := w.connect("", nil)
	text, facts := ask(t, s, "run", args{"argv": []string{"sh"}, "stdin": "tty", "env": args{"PS1": "$ "}})
	wants(t, text, "for input")
	id := facts["id"]
	text, _ = ask(t, s, "input", args{"id": id, "text": "echo $((6*7))", "keys": []string{"enter"}, "match": "^42"})
	wants(t, text, "42\n")
	text, _ = ask(t, s, "input", args{"id": id, "text": "sleep 1000\n", "quiet_ms": 100})
	wants(t, text, "quiet for")
	ask(t, s, "input", args{"id": id, "keys": []string{"ctrl-c"}})
	text, _ = ask(t, s, "input", args{"id": id, "text": "exit 5\n"})
	wants(t, text, "exited with code 5")
}

func TestAPortIsWaitedFor(t *testing.T) {
	w := newWorld(t)
	s := w.connect("", nil)
	text, facts := ask(t, s, "run", args{"argv": []string{"python3", "-c", "import socket,time\ns=socket.socket();s.bind(('127.0.0.1',0));s.listen();print(s.getsockname()[1],flush=True);time.sleep(1000)"}, "match": `\d+`})
	port := proctest.Value(strconv.Atoi(strings.Fields(text[strings.LastIndex(text, ":\n")+2:])[0]))(t)
	text, _ = ask(t, s, "wait", args{"id": facts["id"], "port": port})
	wants(t, text, fmt.Sprintf("listens on 127.0.0.1:%d", port))
}

func TestAnswersFitTheBudget(t *testing.T) {
	w := newWorld(t)
	s := w.connect("", nil)
	for name, command := range map[string]string{
		"lines":     "seq 1 200000",
		"both":      "seq 1 100000; seq 1 100000 >&2",
		"one line":  "head -c 3000000 /dev/zero | tr '\\0' x",
		"binary":    "head -c 300000 /dev/urandom",
		"wide":      "yes 漢字かな | head -c 300001",
		"escapes":   `yes "$(printf '\033[31mred\033[0m')" | head -c 300000`,
		"much of 2": "echo short >&2; seq 1 100000",
	} {
		for _, most := range []int{100, 500, 5000} {
			text, facts := ask(t, s, "run", args{"command": command, "max_tokens": most})
			if got := mcp.Tokens(text); got > most || got < most/3 {
				t.Errorf("%s: %d tokens of %d:\n%.300s", name, got, most, text)
			}
			wants(t, text, "bytes left out: std")
			grep, _ := ask(t, s, "output", args{"id": facts["id"], "grep": ".", "max_tokens": most})
			if got := mcp.Tokens(grep); got > most {
				t.Errorf("%s: grep has %d tokens of %d", name, got, most)
			}
			if name == "lines" {
				wants(t, text, "\n2\n3\n", "\n200000\n")
			}
			if name == "much of 2" {
				wants(t, text, "stderr 0 to 6:\nshort\n")
			}
		}
	}
	text, _ := ask(t, s, "run", args{"command": "true", "max_tokens": 1 << 40, "timeout_s": 1e9})
	wants(t, text, "max_tokens was 1099511627776; 100 to 50000 are allowed, and 50000 was used", "timeout_s was 1e+09; 0 to 3600 are allowed")
}

// TestWhatIsLeftOutIsNamedByOffset: head, the part that is named, and tail are all there
// is.
func TestWhatIsLeftOutIsNamedByOffset(t *testing.T) {
	w := newWorld(t)
	s := w.connect("", nil)
	for _, command := range []string{"seq 1 5000", "yes 漢字かな | head -n 3000"} {
		text, facts := ask(t, s, "run", args{"command": command, "max_tokens": 300})
		_, body, _ := strings.Cut(text, ":\n")
		head, rest, _ := strings.Cut(body, "[")
		mark, tail, _ := strings.Cut(rest, "]\n")
		var n, from, to, end int64
		if _, err := fmt.Sscanf(mark, "%d bytes left out: stdout %d to %d", &n, &from, &to); err != nil || n != to-from {
			t.Fatalf("%v: %q", err, mark)
		}
		end = int64(facts["stdout"].(map[string]any)["end"].(float64))
		p := proctest.Find(t, w.m, process.ID(facts["id"].(string)))
		whole := proctest.Output(t, p, process.Stdout)
		if int64(len(whole)) != end {
			t.Fatalf("%d bytes, and %d are told", len(whole), end)
		}
		if h := whole[:from]; h != head && h+"\n" != head {
			t.Errorf("%s: the head ends with %q, and %q is left out from %d on", command, head[len(head)-20:], whole[from:from+20], from)
		}
		if whole[to:] != tail {
			t.Errorf("%s: the tail begins with %.20q, and at %d is %.20q", command, tail, to, whole[to:])
		}
		middle, _ := ask(t, s, "output", args{"id": facts["id"], "stream": "stdout", "from": from, "max_tokens": 200})
		_, middle, _ = strings.Cut(middle, ":\n")
		middle, _, _ = strings.Cut(middle, "[")
		if !strings.HasPrefix(whole[from:], strings.TrimSuffix(middle, "\n")) || len(middle) < 100 {
			t.Errorf("%s: from %d on it is %.40q, want %.40q", command, from, middle, whole[from:])
		}
	}
}

func TestOutputIsSearched(t *testing.T) {
	w := newWorld(t)
	s := w.connect("", nil)
	_, facts := ask(t, s, "run", args{"command": `for i in 1 2 3 4 5; do echo line $i; done; printf '\033[31mred\033[0m line\n' >&2`})
	text, _ := ask(t, s, "output", args{"id": facts["id"], "grep": "e 3$", "context": 1})
	wants(t, text, "stdout 2@7- line 2\nstdout 3@14: line 3\nstdout 4@21- line 4\n")
	text, _ = ask(t, s, "output", args{"id": facts["id"], "grep": "red line"})
	wants(t, text, "stderr 1@0: red line\n")
	text, _ = ask(t, s, "output", args{"id": facts["id"], "grep": "nothing"})
	wants(t, text, "(no line matches)")
	text, _ = ask(t, s, "output", args{"id": facts["id"], "stream": "stderr", "raw": true})
	wants(t, text, "\x1b[31mred")
}

func TestFiles(t *testing.T) {
	w := newWorld(t)
	s := w.connect("", nil)
	text, _ := ask(t, s, "write_file", args{"path": "src/a.txt", "content": "one\ntwo\nthree\n"})
	wants(t, text, w.dir+"/src/a.txt has 14 bytes")
	text, _ = ask(t, s, "read_file", args{"path": "src/a.txt"})
	wants(t, text, "lines 1 to 3 of 3 lines\none\ntwo\nthree\n")
	text, _ = ask(t, s, "read_file", args{"path": "src/a.txt", "from_line": 2, "lines": 1})
	wants(t, text, "lines 2 to 2 of 3 lines\ntwo\n")
	text, _ = ask(t, s, "edit_file", args{"path": "src/a.txt", "old": "two\n", "new": "2\n"})
	wants(t, text, "replaced 1 times, first in line 2")
	ask(t, s, "edit_file", args{"path": "src/a.txt", "old": "e", "new": "E", "all": true})
	if got := string(proctest.Value(os.ReadFile(w.dir + "/src/a.txt"))(t)); got != "onE\n2\nthrEE\n" {
		t.Errorf("the file is %q", got)
	}
	text, _ = ask(t, s, "find_files", nil)
	wants(t, text, w.dir+":\nsrc/\n")
	text, _ = ask(t, s, "find_files", args{"glob": "**/*.txt"})
	wants(t, text, "src/a.txt\n")
	text, _ = ask(t, s, "find_files", args{"text": "thrE"})
	wants(t, text, "src/a.txt:3: thrEE\n")
	ask(t, s, "write_file", args{"path": "long", "content": strings.Repeat("0123456789\n", 100_000)})
	text, facts := ask(t, s, "read_file", args{"path": "long", "max_tokens": 200})
	if mcp.Tokens(text) > 200 || facts["lines"] != 100_000.0 || facts["to"].(float64) < 20 {
		t.Errorf("%d tokens, %v", mcp.Tokens(text), facts)
	}
	text, facts = ask(t, s, "read_file", args{"path": "long", "from_line": 99_999})
	wants(t, text, "lines 99999 to 100000 of 100000 lines")
	_ = facts
}

// TestEditsKeepTheEndsOfLines: models write \n, also for a file of Windows.
func TestEditsKeepTheEndsOfLines(t *testing.T) {
	w := newWorld(t)
	s := w.connect("", nil)
	for _, tt := range []struct{ was, old, new, want string }{
		{"one\r\ntwo\r\n", "one\ntwo\n", "1\n2\n3\n", "1\r\n2\r\n3\r\n"},
		{"one\r\ntwo\r\n", "one", "1\n2", "1\r\n2\r\ntwo\r\n"},
		{"one\r\ntwo\r\n", "one\r\n", "1\n", "1\ntwo\r\n"}, // said with the ends
		{"one\ntwo\n", "one\ntwo", "1\n2", "1\n2\n"},
		{"one\r\ntwo\nthree\n", "one\ntwo", "1\n2", "1\r\n2\nthree\n"},
		{"one\r\ntwo\nthree\n", "two\nthree", "2\n3", "one\r\n2\n3\n"},
	} {
		proctest.Must(t, os.WriteFile(w.dir+"/f", []byte(tt.was), 0o644))
		ask(t, s, "edit_file", args{"path": "f", "old": tt.old, "new": tt.new})
		if got := string(proctest.Value(os.ReadFile(w.dir + "/f"))(t)); got != tt.want {
			t.Errorf("%q with %q for %q becomes %q, not %q", tt.was, tt.new, tt.old, got, tt.want)
		}
	}
}

// TestEditsAtTheSameTimeAreAllThere: models call several tools at once.
func TestEditsAtTheSameTimeAreAllThere(t *testing.T) {
	w := newWorld(t)
	s := w.connect("", nil)
	var content strings.Builder
	const n = 40
	for i := range n {
		fmt.Fprintf(&content, "old %02d\n", i)
	}
	ask(t, s, "write_file", args{"path": "f", "content": content.String()})
	done := make(chan error, n)
	for i := range n {
		go func() {
			_, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "edit_file", Arguments: args{"path": "f", "old": fmt.Sprintf("old %02d", i), "new": fmt.Sprintf("new %02d", i)}})
			done <- err
		}()
	}
	for range n {
		proctest.Must(t, <-done)
	}
	if got := string(proctest.Value(os.ReadFile(w.dir + "/f"))(t)); strings.Contains(got, "old") {
		t.Errorf("an edit is lost:\n%s", got)
	}
}

// TestEditsBeyondTheLimitWait, as each holds its file in memory: for their turn, or until
// they are cancelled.
func TestEditsBeyondTheLimitWait(t *testing.T) {
	w := newWorld(t)
	s := w.connect("", nil)
	const all = 16
	edit := args{"old": "one", "new": "two"}
	name := func(i int) string { return fmt.Sprintf("%s/f%d", w.dir, i) }
	free := w.face.TakeEdits()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, all)
	for i := range all {
		proctest.Must(t, os.WriteFile(name(i), []byte("one"), 0o600))
		go func() {
			_, err := s.CallTool(ctx, &sdk.CallToolParams{Name: "edit_file", Arguments: args{"path": name(i), "old": "one", "new": "two"}})
			done <- err
		}()
	}
	proctest.Eventually(t, "the edits wait", func() bool { return w.face.Status()["calls"] == fmt.Sprint(all) })
	cancel()
	for range all {
		if err := <-done; err == nil {
			t.Error("an edit beyond the limit was made")
		}
	}
	proctest.Eventually(t, "the edits have ended", func() bool { return w.face.Status()["calls"] == "0" })
	free()
	for i := range all {
		if got := string(proctest.Value(os.ReadFile(name(i)))(t)); got != "one" {
			t.Errorf("a cancelled edit made it %q", got)
		}
	}
	edit["path"] = name(0)
	text, _ := ask(t, s, "edit_file", edit)
	wants(t, text, "replaced 1 times")
}

func TestSandboxesAndServices(t *testing.T) {
	w := newWorld(t)
	s := w.connect("", nil)
	text, facts := ask(t, s, "sandbox", args{"action": "create", "name": "box"})
	wants(t, text, "created box", "Give sandbox: box")
	text, in := ask(t, s, "run", args{"command": "echo inside", "sandbox": "box"})
	wants(t, text, "inside")
	_, out := ask(t, s, "run", args{"command": "echo outside"})
	text, _ = ask(t, s, "list", args{"all": true, "sandbox": "box"})
	if wants(t, text, in["id"].(string)); strings.Contains(text, out["id"].(string)) {
		t.Errorf("what runs on the machine is listed for a sandbox:\n%s", text)
	}
	text, _ = ask(t, s, "sandbox", args{"action": "list"})
	wants(t, text, "box (id "+facts["id"].(string)+") ready")
	ask(t, s, "write_file", args{"path": "x", "content": "y", "sandbox": "box"})
	text, _ = ask(t, s, "read_file", args{"path": "x", "sandbox": "box"})
	wants(t, text, "lines 1 to 1 of 1 lines\ny\n", "has no newline")
	ask(t, s, "sandbox", args{"action": "destroy", "name": "box"})
	if text, failed, _ := try(t, s, "run", args{"command": "true", "sandbox": "box"}); !failed || !strings.Contains(text, `no sandbox "box"`) {
		t.Errorf("a destroyed one: %s", text)
	}
}

func TestErrorsNameTheFieldAndTheLimit(t *testing.T) {
	w := newWorld(t)
	s := w.connect("", nil)
	_, facts := ask(t, s, "run", args{"command": "cat", "stdin": "pipe"})
	id := facts["id"]
	proctest.Must(t, os.WriteFile(w.dir+"/twice", []byte("ab ab"), 0o600))
	proctest.Must(t, os.WriteFile(w.dir+"/binary", []byte("a\x00b"), 0o600))
	for _, tt := range []struct {
		tool string
		args args
		want string
	}{
		{"run", args{}, "argv is empty"},
		{"run", args{"command": "a", "argv": []string{"b"}}, "argv is given together with shell"},
		{"run", args{"argv": []string{"/no/such"}}, "is not found"},
		{"run", args{"command": "a", "cwd": "/no/such"}, "/no/such"},
		{"run", args{"command": "a", "stdin": "all"}, "stdin is \"all\"; none, pipe or tty"},
		{"run", args{"command": "a", "match": "x", "port": 1}, "are given together"},
		{"run", args{"command": "a", "match": "("}, "missing closing )"},
		{"run", args{"command": "a", "port": 70000}, "port is 70000; 1 to 65535"},
		{"run", args{"command": "a", "kill_after_s": -1}, "kill_after_s is -1"},
		{"run", args{"command": "a", "max_token": 1}, `["max_token"]; run has argv, command, cwd, env, for_input,`},
		{"stop", args{"id": id, "force": true}, `["force"]; stop has grace_s, id, sandbox, signal`},
		{"run", args{"command": 7}, "command"},
		{"run", args{"command": "a", "input": strings.Repeat("x", 1<<20+1)}, "the limit is 1048576"},
		{"run", args{"command": "a", "name": strings.Repeat("x", 300)}, "name has 300 bytes; the limit is 256"},
		{"output", args{"id": ""}, "id has 0 bytes"},
		{"output", args{"id": strings.Repeat("x", 300)}, "id has 300 bytes"},
		{"output", args{"id": "nobody"}, `no process "nobody"`},
		{"output", args{"id": id, "from": 5}, "from needs stream"},
		{"output", args{"id": id, "from": -1, "stream": "stdout"}, "from is -1"},
		{"output", args{"id": id, "from": 1 << 40, "stream": "stdout"}, "past the end of the stream: stdout ends at"},
		{"output", args{"id": id, "from": 1 << 40, "stream": "stdout", "grep": "x"}, "past the end of the stream: stdout ends at"},
		{"output", args{"id": id, "stream": "pty"}, "stream is pty, which"},
		{"output", args{"id": id, "stream": "x"}, "stdout, stderr or pty"},
		{"output", args{"id": id, "grep": "["}, "missing closing ]"},
		{"input", args{"id": id}, "text is empty"},
		{"input", args{"id": id, "keys": []string{"f99"}}, "keys[0] is \"f99\""},
		{"stop", args{"id": id, "signal": "FOO"}, "signal is \"FOO\""},
		{"stop", args{"id": id, "grace_s": 1e6}, "grace_s is 1e+06; 0 to 300"},
		{"read_file", args{"path": "none"}, "no such file"},
		{"read_file", args{"path": "a\x00b"}, "NUL"},
		{"read_file", args{"path": "binary"}, "is no text"},
		{"read_file", args{"path": "."}, "is a directory"},
		{"edit_file", args{"path": "twice", "old": "ab", "new": "c"}, "2 times"},
		{"edit_file", args{"path": "twice", "old": "x", "new": "c"}, "nowhere in"},
		{"edit_file", args{"path": "twice", "old": "", "new": "c"}, "old is empty"},
		{"find_files", args{"glob": "["}, "glob is"},
		{"find_files", args{"glob": strings.Repeat("{a,aa}", 40)}, "braces for too many patterns; the limits are 4096 and 256"},
		{"find_files", args{"glob": strings.Repeat("*a", 3000)}, "glob has 6000 bytes"},
		{"wait", args{"id": id, "match": strings.Repeat("[^a]", 2000)}, "match has 8000 bytes; the limit is 4096"},
		{"sandbox", args{"action": "fly"}, "action is \"fly\""},
		{"sandbox", args{"action": "create", "name": "/"}, "name"},
		{"run", args{"command": "a", "sandbox": "none"}, `no sandbox "none"`},
	} {
		text, failed, _ := try(t, s, tt.tool, tt.args)
		if !failed || !strings.Contains(text, tt.want) {
			t.Errorf("%s %.80v: %v %s; want %q", tt.tool, tt.args, failed, text, tt.want)
		}
	}
	if _, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "nothing"}); err == nil || !strings.Contains(err.Error(), "nothing") {
		t.Errorf("an unknown tool: %v", err)
	}
}

func TestTheToolsAreFewAndShort(t *testing.T) {
	w := newWorld(t)
	s := w.connect("", nil)
	all := proctest.Value(s.ListTools(t.Context(), nil))(t)
	n := 0
	for _, tool := range all.Tools {
		// What a client passes on to a model.
		text := proctest.Value(json.Marshal(map[string]any{"name": tool.Name, "description": tool.Description, "input_schema": tool.InputSchema}))(t)
		n += (len(text) + 3) / 4
	}
	t.Logf("%d tools, about %d tokens", len(all.Tools), n)
	if len(all.Tools) > 12 || n > 2200 {
		t.Errorf("%d tools have about %d tokens", len(all.Tools), n)
	}
}

func TestResourcesAreLogs(t *testing.T) {
	w := newWorld(t)
	each(t, func(t *testing.T, version string) {
		s := w.connect(version, nil)
		_, facts := ask(t, s, "run", args{"command": "seq 1 100000"})
		read := func(uri string) string {
			res := proctest.Value(s.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri}))(t)
			return res.Contents[0].Text
		}
		text := read(fmt.Sprintf("tend://process/%s/stdout", facts["id"]))
		if len(text) > 65<<10 || !strings.HasSuffix(text, "\n99999\n100000\n") {
			t.Errorf("%d bytes, the end is %q", len(text), text[len(text)-20:])
		}
		wants(t, read("tend://processes"), facts["id"].(string))
		for _, uri := range []string{"tend://process/nobody/stdout", fmt.Sprintf("tend://process/%s/stdin", facts["id"]), "tend://process/../x", "file:///etc/passwd"} {
			if _, err := s.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri}); err == nil {
				t.Errorf("%s was read", uri)
			}
		}
		if got := proctest.Value(s.ListResourceTemplates(t.Context(), nil))(t).ResourceTemplates; len(got) != 1 || got[0].URITemplate != "tend://process/{id}/{stream}" {
			t.Errorf("templates: %v", got)
		}
	})
}

func TestAClientIsToldThatOutputHasCome(t *testing.T) {
	w := newWorld(t)
	told := make(chan string, 16)
	s := w.connect("2026-07-28", &sdk.ClientOptions{ResourceUpdatedHandler: func(_ context.Context, r *sdk.ResourceUpdatedNotificationRequest) { told <- r.Params.URI }})
	_, facts := ask(t, s, "run", args{"command": "cat", "stdin": "pipe"})
	uri := fmt.Sprintf("tend://process/%s/stdout", facts["id"])
	proctest.Must(t, s.Subscribe(t.Context(), &sdk.SubscribeParams{URI: uri}))
	ask(t, s, "input", args{"id": facts["id"], "text": "hello\n"})
	select {
	case got := <-told:
		if got != uri {
			t.Errorf("told of %s", got)
		}
	case <-t.Context().Done():
		t.Fatal("nothing was told")
	}
	proctest.Must(t, s.Unsubscribe(t.Context(), &sdk.UnsubscribeParams{URI: uri}))
}

func TestProgressIsTold(t *testing.T) {
	w := newWorld(t)
	each(t, func(t *testing.T, version string) {
		told := make(chan *sdk.ProgressNotificationParams, 16)
		s := w.connect(version, &sdk.ClientOptions{ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) { told <- r.Params }})
		p := &sdk.CallToolParams{Name: "run", Arguments: args{"command": "echo hi; sleep 2.5"}}
		p.SetProgressToken("t1")
		proctest.Value(s.CallTool(t.Context(), p))(t)
		first := <-told
		if first.ProgressToken != "t1" || !strings.Contains(first.Message, "stdout 3 bytes") {
			t.Errorf("progress is %+v", first)
		}
		if second := <-told; second.Progress <= first.Progress {
			t.Errorf("progress %v follows %v", second.Progress, first.Progress)
		}
	})
}

// post sends a body as a client does that has no SDK.
func (w *world) post(body string, headers ...string) (int, string, http.Header) {
	w.t.Helper()
	return w.send("POST", body, headers...)
}

func (w *world) send(method, body string, headers ...string) (int, string, http.Header) {
	w.t.Helper()
	r := proctest.Value(http.NewRequestWithContext(w.t.Context(), method, w.url, strings.NewReader(body)))(w.t)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp := proctest.Value(http.DefaultClient.Do(r))(w.t)
	defer resp.Body.Close()
	text := proctest.Value(io.ReadAll(resp.Body))(w.t)
	return resp.StatusCode, string(text), resp.Header
}
