package interpreter_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	codes "github.com/tend-run/tend/internal/interpreter"
	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/protocol/interpreter"
	"github.com/tend-run/tend/internal/sandbox/host"
	"github.com/tend-run/tend/internal/sandbox/route"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve serves the face of a sandbox whose kernels are of this machine's bash.
func serve(t *testing.T, change func(*interpreter.Config)) *httptest.Server {
	t.Helper()
	_, hs, _ := serveAgain(t, change)
	return hs
}

// serveAgain is serve; again serves another face of the same sandbox.
func serveAgain(t *testing.T, change ...func(*interpreter.Config)) (f *interpreter.Face, hs *httptest.Server, again func() *httptest.Server) {
	t.Helper()
	dir := t.TempDir()
	python := proctest.Value(exec.Command("python3", "-c", "import sys; print(sys.executable)").Output())(t)
	proctest.Must(t, os.Mkdir(filepath.Join(dir, "bin"), 0o755))
	proctest.Must(t, os.Symlink(strings.TrimSpace(string(python)), filepath.Join(dir, "bin", "python")))
	proctest.Must(t, os.Symlink(proctest.Value(filepath.Abs("../../interpreter/kernels"))(t), filepath.Join(dir, "kernels")))
	cfg := interpreter.Config{Service: &codes.Service{Dir: dir}}
	for _, do := range change {
		do(&cfg)
	}
	f = interpreter.New(cfg)
	target := &route.Target{Access: host.NewMachine(testkeeper.New(t)), ID: "box", Port: interpreter.Port}
	own := f.Own(target)
	if own == nil {
		t.Fatal("the face does not serve the sandbox")
	}
	other := *target
	if other.Port++; f.Own(&other) != nil {
		t.Error("the face serves another port")
	}
	begin := func(h http.Handler) *httptest.Server {
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		return s
	}
	return f, begin(own), func() *httptest.Server { return begin(interpreter.New(cfg).Own(target)) }
}

// do makes a request, and returns the answer without its timestamps.
func do(t *testing.T, hs *httptest.Server, method, path, body string) (int, string, http.Header) {
	t.Helper()
	req := proctest.Value(http.NewRequestWithContext(t.Context(), method, hs.URL+path, strings.NewReader(body)))(t)
	res := proctest.Value(hs.Client().Do(req))(t)
	defer res.Body.Close()
	text := string(proctest.Value(io.ReadAll(res.Body))(t))
	return res.StatusCode, text, res.Header
}

func TestAnswersAreAsTheOriginals(t *testing.T) {
	t.Parallel()
	hs := serve(t, func(*interpreter.Config) {})
	status, text, header := do(t, hs, "POST", "/execute", `{"code": "echo a; false", "context_id": null, "language": "bash", "env_vars": null}`)
	lines := strings.Split(text, "\n")
	if status != 200 || len(lines) != 5 || lines[0] != `{"type": "number_of_executions", "execution_count": 1}` ||
		!strings.HasPrefix(lines[1], `{"type": "stdout", "text": "a\n", "timestamp": "2`) ||
		lines[2] != `{"type": "error", "name": "ExitStatus", "value": "1", "traceback": "the cell ended with the status 1"}` ||
		lines[3] != `{"type": "end_of_execution"}` || lines[4] != "" || header["Content-Type"] != nil {
		t.Errorf("%d %q %v", status, text, header)
	}
	// The same again, and from the third event on.
	execution := header.Get("Tend-Execution")
	if _, again, _ := do(t, hs, "GET", "/executions/"+execution, ""); again != text {
		t.Errorf("the same again is %q", again)
	}
	if _, again, _ := do(t, hs, "GET", "/executions/"+execution+"?from=2", ""); again != strings.Join(lines[2:], "\n") {
		t.Errorf("from the third event on it is %q", again)
	}
	for _, tc := range []struct {
		what, method, path, body string
		status                   int
		text                     string
	}{
		{"health", "GET", "/health", "", 200, `"OK"`},
		{"a context and a language", "POST", "/execute", `{"code": "1", "context_id": "x", "language": "bash"}`, 400,
			"Only one of context_id or language can be provided"},
		{"an unknown context", "POST", "/execute", `{"code": "1", "context_id": "x"}`, 404, "Context x not found"},
		{"an unknown language", "POST", "/execute", `{"code": "1", "language": "nope"}`, 500,
			`there is no kernel for the language "nope": there are python, javascript, typescript and bash`},
		{"no code", "POST", "/execute", `{}`, 422, "code: Field required"},
		{"no JSON", "POST", "/execute", `no`, 422, "body"},
		{"a variable with an equals sign", "POST", "/execute", `{"code": "1", "env_vars": {"a=b": "c"}}`, 422, "env_vars"},
		{"a relative directory", "POST", "/contexts", `{"cwd": "x"}`, 500, `Failed to set working directory: "x" is not absolute`},
		{"a directory that is missing", "POST", "/contexts", `{"language": "bash", "cwd": "/nope"}`, 500, "Failed to set working directory"},
		{"removal of an unknown context", "DELETE", "/contexts/x", "", 404, "Context x not found"},
		{"restart of an unknown context", "POST", "/contexts/x/restart", "", 404, "Context x not found"},
		{"an unknown execution", "GET", "/executions/x.y", "", 404, "no execution with this id"},
		{"a position that is none", "GET", "/executions/x.y?from=-1", "", 400, `from is "-1"`},
		{"too much code", "POST", "/execute", `{"code": "` + strings.Repeat("x", 17<<20) + `"}`, 413, "more than 16 MiB"},
		{"a path that is none", "GET", "/nope", "", 404, "404"},
	} {
		status, text, _ := do(t, hs, tc.method, tc.path, tc.body)
		if status != tc.status || !strings.Contains(text, tc.text) {
			t.Errorf("%s: %d %.300q, want %d %q", tc.what, status, text, tc.status, tc.text)
		}
	}
	status, text, _ = do(t, hs, "POST", "/contexts", `{"language": "bash", "cwd": "/"}`)
	if _, listed, _ := do(t, hs, "GET", "/contexts", ""); status != 200 || !strings.Contains(listed, strings.TrimSpace(text)) {
		t.Errorf("a new context is %d %s, and the list %s", status, text, listed)
	}
}

func TestCodeOfTheLargestSizeRuns(t *testing.T) {
	t.Parallel()
	hs := serve(t, func(*interpreter.Config) {})
	status, text, _ := do(t, hs, "POST", "/execute", `{"language": "bash", "code": ": `+strings.Repeat("x", 15<<20)+`; echo ran"}`)
	if status != 200 || !strings.Contains(text, `"ran\n"`) {
		t.Errorf("%d %.300q", status, text)
	}
}

func TestSilenceIsKeptAlive(t *testing.T) {
	t.Parallel()
	hs := serve(t, func(c *interpreter.Config) { c.Quiet = 10 * time.Millisecond })
	_, text, _ := do(t, hs, "POST", "/execute", `{"code": "sleep 0.5", "language": "bash"}`)
	if !strings.Contains(text, "{\"type\": \"keepalive\"}\n") {
		t.Errorf("%q", text)
	}
}

// begin starts a cell and returns when it has begun.
func begin(t *testing.T, hs *httptest.Server, code string) (*bufio.Reader, string, func()) {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	body := fmt.Sprintf(`{"code": %q, "language": "bash"}`, code)
	res := proctest.Value(hs.Client().Do(proctest.Value(http.NewRequestWithContext(ctx, "POST", hs.URL+"/execute", strings.NewReader(body)))(t)))(t)
	t.Cleanup(func() { leave(); res.Body.Close() })
	r := bufio.NewReader(res.Body)
	proctest.Value(r.ReadString('\n'))(t)
	return r, res.Header.Get("Tend-Execution"), leave
}

func TestAClientThatLeavesInterruptsItsCell(t *testing.T) {
	t.Parallel()
	hs := serve(t, func(*interpreter.Config) {})
	answer, execution, leave := begin(t, hs, "kept=5; echo up; sleep 600")
	proctest.Value(answer.ReadString('\n'))(t) // an interrupt may come before any of its code has run
	leave()
	_, text, _ := do(t, hs, "POST", "/execute", `{"code": "echo $kept", "language": "bash"}`)
	if !strings.Contains(text, `"5\n"`) {
		t.Errorf("the next cell: %q", text)
	}
	if _, text, _ = do(t, hs, "GET", "/executions/"+execution, ""); !strings.Contains(text, "KeyboardInterrupt") {
		t.Errorf("the cell: %q", text)
	}
}

func TestAServerThatEndsInterruptsNothing(t *testing.T) {
	t.Parallel()
	f, hs, again := serveAgain(t)
	file := filepath.Join(t.TempDir(), "go")
	answer, execution, _ := begin(t, hs, "while [ ! -e "+file+" ]; do sleep 0.01; done; echo well")
	proctest.Must(t, f.Close())
	if rest, err := io.ReadAll(answer); err == nil {
		t.Errorf("the answer has ended as if it were whole: %q", rest)
	}
	proctest.Must(t, os.WriteFile(file, nil, 0o644))
	next := again() // a server after it
	_, text, _ := do(t, next, "GET", "/executions/"+execution, "")
	if !strings.Contains(text, `"well\n"`) || strings.Contains(text, "KeyboardInterrupt") {
		t.Errorf("the cell: %q", text)
	}
}

func TestABodyThatTheBudgetHasNoRoomForIsRefused(t *testing.T) {
	t.Parallel()
	hs := serve(t, func(c *interpreter.Config) { c.Budget = budget.New(1 << 20) })
	status, text, header := do(t, hs, "POST", "/execute", `{"language": "bash", "code": "`+strings.Repeat("x", 1<<20)+`"}`)
	if status != 503 || header.Get("Retry-After") == "" {
		t.Errorf("%d %q", status, text)
	}
}

func TestCodeNeedsTheTokenThatEnvdNeeds(t *testing.T) {
	t.Parallel()
	secret, own := protocol.NewSecret(), protocol.Token("")
	hs := serve(t, func(c *interpreter.Config) { c.Secret, c.Token = secret, func() protocol.Token { return own } })
	run := func(token string) int {
		req := proctest.Value(http.NewRequestWithContext(t.Context(), "POST", hs.URL+"/execute", strings.NewReader(`{"code": ":", "language": "bash"}`)))(t)
		req.Header.Set("X-Access-Token", token)
		res := proctest.Value(hs.Client().Do(req))(t)
		defer res.Body.Close()
		proctest.Value(io.Copy(io.Discard, res.Body))(t)
		return res.StatusCode
	}
	if got := run(""); got != 200 {
		t.Errorf("without a token of the server: %d", got)
	}
	own = "owner"
	for token, want := range map[string]int{"": 401, "x": 401, "owner": 200, string(secret.SandboxToken("box")): 200, string(secret.SandboxToken("other")): 401} {
		if got := run(token); got != want {
			t.Errorf("with the token %q: %d, want %d", token, got, want)
		}
	}
	if status, _, _ := do(t, hs, "GET", "/executions/x.y", ""); status != 401 {
		t.Errorf("an execution without the token: %d", status)
	}
}
