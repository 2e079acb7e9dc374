//go:build linux

package cli

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

// speaker is a program that speaks MCP on stdin and stdout, as an agent starts it.
type speaker struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Scanner
	n     int
}

func speak(t *testing.T, env []string, argv ...string) *speaker {
	t.Helper()
	s := &speaker{cmd: exec.CommandContext(t.Context(), argv[0], argv[1:]...)}
	s.cmd.Path = filepath.Join(binaries, argv[0])
	s.cmd.Err = nil
	s.cmd.Env = append(os.Environ(), env...)
	s.in = proctest.Value(s.cmd.StdinPipe())(t)
	s.lines = bufio.NewScanner(proctest.Value(s.cmd.StdoutPipe())(t))
	s.lines.Buffer(nil, 1<<20)
	proctest.Must(t, s.cmd.Start())
	return s
}

// ask sends a request and returns its answer.
func (s *speaker) ask(t *testing.T, method, params string) string {
	t.Helper()
	s.n++
	proctest.Value(fmt.Fprintf(s.in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", s.n, method, params))(t)
	for s.lines.Scan() {
		if line := s.lines.Text(); strings.Contains(line, fmt.Sprintf(`"id":%d`, s.n)) {
			return line
		}
	}
	t.Fatalf("no answer to %s: %v", method, s.lines.Err())
	return ""
}

// end closes its stdin, after which it ends by itself.
func (s *speaker) end(t *testing.T) {
	t.Helper()
	s.in.Close()
	for s.lines.Scan() {
	}
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("%q ended with %v", s.cmd.Args, err)
	}
}

const initialize = `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}`

// TestMCPOverADaemonThatComesAndGoes: it is not there at first, ends in between, and each
// call is answered by the one that is there then.
func TestMCPOverADaemonThatComesAndGoes(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	defer endDaemon(t, state)
	s := speak(t, []string{"TEND_STATE_DIR=" + state}, "tend", "mcp") // it starts one
	if got := s.ask(t, "initialize", initialize); !strings.Contains(got, "serverInfo") {
		t.Fatal(got)
	}
	for range 2 {
		got := s.ask(t, "tools/call", `{"name":"run","arguments":{"command":"echo here; exit 3"}}`)
		if !strings.Contains(got, "exited with code 3") || !strings.Contains(got, `\nhere`) {
			t.Errorf("a run: %s", got)
		}
		tendOn(t, state, "shutdown")
	}
	s.end(t)

	// One that was named is not started, but waited for once it has been there.
	socket := filepath.Join(state, "named.sock")
	serve := func() (stop func()) {
		cmd := exec.Command(filepath.Join(binaries, "tend"), "--state-dir", state, "serve", "--listen", "none", "--socket", socket)
		proctest.Must(t, cmd.Start())
		return func() {
			proctest.Must(t, cmd.Process.Signal(syscall.SIGTERM))
			_ = cmd.Wait()
		}
	}
	stop := serve()
	proctest.Eventually(t, "it serves", func() bool {
		return exec.Command(filepath.Join(binaries, "tend"), "--url", "unix:"+socket, "status").Run() == nil
	})
	s = speak(t, []string{"TEND_STATE_DIR=" + state, "TEND_URL=unix:" + socket}, "tend", "mcp")
	s.ask(t, "initialize", initialize)
	stop()
	stop = serve()
	if got := s.ask(t, "tools/call", `{"name":"run","arguments":{"command":"echo again"}}`); !strings.Contains(got, `\nagain`) {
		t.Errorf("with the next one: %s", got)
	}
	s.end(t)
	stop()
}

var inline = regexp.MustCompile("(?m)`(\\{\".*?\\}+)`|^(\\{.*\\})$")

// form is what agents read of how to reach a server of MCP.
type form struct {
	Command any      `json:"command"` // a string; of opencode the whole line
	Args    []string `json:"args"`
	URL     string   `json:"url"`
	HTTPURL string   `json:"httpUrl"`
}

// TestFormsForAgentsServe: each form of docs/mcp.md is well formed, and what it names serves.
func TestFormsForAgentsServe(t *testing.T) {
	t.Parallel()
	doc := string(proctest.Value(os.ReadFile("../../docs/mcp.md"))(t))
	var texts []string
	for _, m := range inline.FindAllStringSubmatch(doc, -1) {
		texts = append(texts, m[1]+m[2])
	}
	if len(texts) < 6 {
		t.Fatalf("docs/mcp.md has %d forms in JSON: %q", len(texts), texts)
	}
	lines, urls := map[string]bool{}, map[string]bool{}
	for _, text := range texts {
		var file map[string]map[string]form
		d := json.NewDecoder(strings.NewReader(text))
		if err := d.Decode(&file); err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		for _, servers := range file {
			for name, f := range servers {
				if name != "tend" {
					t.Errorf("%s: the server is named %q", text, name)
				}
				switch c := f.Command.(type) {
				case string:
					lines[strings.Join(append([]string{c}, f.Args...), " ")] = true
				case []any:
					lines[strings.Trim(fmt.Sprint(c), "[]")] = true
				default:
					urls[f.URL+f.HTTPURL] = true
				}
			}
		}
	}
	// TOML of this kind is JSON line by line.
	_, toml, _ := strings.Cut(doc, "```toml\n")
	toml, _, _ = strings.Cut(toml, "```")
	table, rest, _ := strings.Cut(toml, "\n")
	if table != "[mcp_servers.tend]" {
		t.Errorf("the form in TOML is of %q", table)
	}
	values := map[string]any{}
	for line := range strings.Lines(rest) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), " = ")
		var v any
		if err := json.Unmarshal([]byte(value), &v); !ok || err != nil {
			t.Errorf("%q: %v", line, err)
		}
		values[key] = v
	}
	if values["command"] != "tend" || fmt.Sprint(values["args"]) != "[mcp]" {
		t.Errorf("the form in TOML is %v", values)
	}
	for _, m := range regexp.MustCompile("`claude mcp add [^`]*-- ([^`]*)`").FindAllStringSubmatch(doc, -1) {
		lines[m[1]] = true
	}

	state := t.TempDir()
	defer endDaemon(t, state)
	for line := range lines {
		s := speak(t, []string{"TEND_STATE_DIR=" + state}, strings.Fields(line)...)
		if got := s.ask(t, "initialize", initialize); !strings.Contains(got, "serverInfo") {
			t.Errorf("%s: %s", line, got)
		}
		if got := s.ask(t, "tools/list", "{}"); !strings.Contains(got, `"run"`) {
			t.Errorf("%s: %s", line, got)
		}
		s.end(t)
	}
	tendOn(t, state, "shutdown")
	// The port of the documents is that of a daemon that nobody gave another.
	port := filepath.Join(t.TempDir(), "url")
	cmd := exec.Command(filepath.Join(binaries, "tend"), "--state-dir", state, "serve", "--listen", "127.0.0.1:0", "--socket", "none", "--port-file", port)
	proctest.Must(t, cmd.Start())
	proctest.Eventually(t, "it serves", func() bool { _, err := os.Stat(port); return err == nil })
	base := strings.TrimSpace(string(proctest.Value(os.ReadFile(port))(t)))
	for _, url := range slices.Sorted(maps.Keys(urls)) {
		path, ok := strings.CutPrefix(url, "http://127.0.0.1:49983")
		if !ok {
			t.Errorf("%s is not where tend serve listens", url)
		}
		req := proctest.Value(http.NewRequestWithContext(t.Context(), "POST", base+path, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":`+initialize+`}`)))(t)
		req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
		res := proctest.Value(http.DefaultClient.Do(req))(t)
		if all, err := io.ReadAll(res.Body); err != nil || !strings.Contains(string(all), "serverInfo") {
			t.Errorf("%s: %s %s, %v", url, res.Status, all, err)
		}
		res.Body.Close()
	}
	proctest.Must(t, cmd.Process.Signal(syscall.SIGTERM))
	_ = cmd.Wait()
}
