package envd_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/protocol/envd"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/host"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// TestEachSandboxIsApart: what a request names is where its process runs, what it
// lists and what it can feed.
func TestEachSandboxIsApart(t *testing.T) {
	t.Parallel()
	var sandboxes []driver.Sandbox
	s := serve(t, func(c *envd.Config) {
		d := proctest.Value(host.Open(host.Config{Dir: filepath.Join(t.TempDir(), "boxes"), Manager: c.Sandboxes.Default.Processes()}))(t)
		for _, where := range []string{"one", "two"} {
			sandbox := proctest.Value(d.Create(t.Context(), driver.Spec{Name: where, Env: map[string]string{"WHERE": where}}))(t)
			sandboxes = append(sandboxes, sandbox)
		}
		c.Sandboxes.Driver, c.Sandboxes.Domains, c.Guard.Domains = d, []string{"box.example"}, []string{"box.example"}
	})
	of := func(sandbox driver.Sandbox) driver.Info {
		info := proctest.Value(sandbox.Info(t.Context()))(t)
		return info
	}
	unary := func(method, body string, headers ...string) (int, string) {
		res, text := s.do("POST", "/process.Process/"+method, body, append(headers, "Content-Type: application/json")...)
		return res.StatusCode, text
	}
	pids := map[driver.ID]int{}
	for i, sandbox := range sandboxes {
		info := of(sandbox)
		by := []string{"Host: 49983-" + string(info.ID) + ".box.example", "E2b-Sandbox-Id: " + string(info.ID)}[i]
		res, _ := s.do("POST", "/process.Process/Start", string(envelope([]byte(`{"process":{"cmd":"sh","args":["-c","test $WHERE = `+info.Name+` && test $PWD = `+info.Dir+` && exit 7"]}}`))),
			by, "Content-Type: application/connect+json")
		p := proctest.Value(sandbox.Processes().Start(t.Context(), process.Spec{Shell: "cat", Stdin: process.StdinPipe}))(t)
		in := proctest.Info(t, p)
		pids[info.ID] = in.PID
		all, err := sandbox.Processes().List(t.Context(), process.Filter{})
		if err != nil || res.StatusCode != 200 || len(all) != 2 || all[0].Exit == nil || all[0].Exit.Code != 7 {
			t.Errorf("%s, by %s: %s; its processes are %+v, %v", info.Name, by, res.Status, all, err)
		}
		if code, text := unary("List", "{}", by); code != 200 || strings.Count(text, `"pid"`) != 1 || !strings.Contains(text, fmt.Sprint(in.PID)) {
			t.Errorf("%s lists %d %s", info.Name, code, text)
		}
	}
	if code, text := unary("List", "{}", "E2b-Sandbox-Id: debug_sandbox_id"); code != 200 || strings.Count(text, `"pid"`) != len(sandboxes) {
		t.Errorf("the machine lists %d %s", code, text)
	}
	one, two := of(sandboxes[0]).ID, of(sandboxes[1]).ID
	feed := fmt.Sprintf(`{"process":{"pid":%d},"input":{"stdin":"aGk="}}`, pids[one])
	for id, want := range map[driver.ID]int{one: 200, two: 404} {
		for range 2 { // it may be remembered
			if code, text := unary("SendInput", feed, "E2b-Sandbox-Id: "+string(id)); code != want {
				t.Errorf("input for a process of %s in %s: %d %s; want %d", one, id, code, text, want)
			}
		}
	}

	host := "Host: 49983-" + string(two) + ".box.example"
	if res, text := s.do("POST", "/init", `{"envVars":{"A":"1"}}`, host); res.StatusCode != 400 {
		t.Errorf("/init of a sandbox: %s %s", res.Status, text)
	}
	if res, text := s.do("GET", "/envs", "", host); res.StatusCode != 200 || strings.TrimSpace(text) != `{"E2B_SANDBOX":"true"}` {
		t.Errorf("/envs of a sandbox: %s %s", res.Status, text)
	}
	const ok = "200 Health check successful"
	for name, want := range map[string]string{"api.box.example": ok, "API.box.example:443": ok} {
		if res, text := s.do("GET", "/health", "", "Host: "+name); fmt.Sprint(res.StatusCode, " ", text) != want {
			t.Errorf("/health of the control plane by %s: %s %s", name, res.Status, text)
		}
	}
	for _, name := range []string{"api.other.example", "xapi.box.example", "api.localhost"} { // the machine, or no sandbox
		if _, text := s.do("GET", "/health", "", "Host: "+name); strings.Contains(text, "successful") {
			t.Errorf("/health by %s: %s", name, text)
		}
	}
	if res, text := s.do("GET", "/health", "", "Host: 8080-"+string(two)+".box.example"); res.StatusCode != 502 || text != `{"sandboxId":"`+string(two)+`","message":"The sandbox is running but port is not open","port":8080,"code":502}` {
		t.Errorf("another port: %s %s", res.Status, text)
	}
	running := make(chan string)
	go func() {
		req := proctest.Value(http.NewRequest("POST", "http://"+s.addr+"/process.Process/Start", bytes.NewReader(envelope([]byte(`{"process":{"cmd":"sleep","args":["1000"]}}`)))))(t)
		req.Host = strings.TrimPrefix(host, "Host: ")
		req.Header.Set("Content-Type", "application/connect+json")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			running <- err.Error()
			return
		}
		text, err := io.ReadAll(res.Body)
		res.Body.Close()
		running <- fmt.Sprintf("%s %v", text, err)
	}()
	proctest.Eventually(t, "it runs", func() bool { _, text := unary("List", "{}", host); return strings.Contains(text, "sleep") })
	proctest.Must(t, sandboxes[1].Destroy(t.Context()))
	if text := <-running; !strings.Contains(text, `"start"`) || !strings.HasSuffix(text, io.ErrUnexpectedEOF.Error()) || strings.Contains(text, `"end"`) {
		t.Errorf("what ran when the sandbox was ended was told %q", text)
	}
	for _, path := range []string{"/health", "/envs"} {
		res, text := s.do("GET", path, "", host)
		var said struct {
			SandboxID, Message string
			Code               int
		}
		if err := json.Unmarshal([]byte(text), &said); err != nil || res.StatusCode != 502 || said.Code != 502 || said.SandboxID != string(two) || said.Message != "The sandbox was not found" {
			t.Errorf("%s of a sandbox that is gone: %s %s, %v", path, res.Status, text, err)
		}
	}
}
