//go:build linux

package raw

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

func TestHealth(t *testing.T) {
	t.Parallel()
	status, text := shared.get(t, "/health")
	if status != http.StatusNoContent || text != "" {
		t.Errorf("status %d with %q", status, text)
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	status, text := shared.get(t, "/metrics")
	if status != http.StatusOK {
		t.Fatalf("status %d with %q", status, text)
	}
	var m map[string]float64
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	for _, name := range []string{"ts", "cpu_count", "mem_total", "mem_used", "mem_total_mib", "mem_used_mib", "disk_used", "disk_total"} {
		if m[name] <= 0 {
			t.Errorf("%s is %v", name, m[name])
		}
	}
	if _, ok := m["cpu_used_pct"]; !ok {
		t.Error("cpu_used_pct is missing")
	}
}

// TestTheTokenOfInit follows a sandbox from before its first token on.
func TestTheTokenOfInit(t *testing.T) {
	t.Parallel()
	d := own(t)
	init := func(body string, header ...string) int {
		status, _ := d.Ask(t, http.MethodPost, "/init", body, append(header, "Content-Type", "application/json")...)
		return status
	}
	list := func(header ...string) (int, string) {
		return d.Ask(t, http.MethodPost, "/process.Process/List", "{}", append(header, "Content-Type", "application/json")...)
	}
	if status, text := list(); status != 200 {
		t.Fatalf("before any token: %d %q", status, text)
	}
	if status := init(`{"accessToken":"first"}`); status != 204 {
		t.Fatalf("the first token: %d", status)
	}
	status, text := list()
	if status != 401 || !strings.Contains(text, `"code":401`) || !strings.Contains(text, "unauthorized access, please provide a valid access token or method signing if supported") {
		t.Errorf("without it: %d %q", status, text)
	}
	if status, _ := list("X-Access-Token", "wrong"); status != 401 {
		t.Errorf("with a wrong one: %d", status)
	}
	if status, _ := list("X-Access-Token", "first"); status != 200 {
		t.Errorf("with it: %d", status)
	}
	if status, _ := d.get(t, "/health"); status != 204 {
		t.Errorf("health without it: %d", status)
	}
	if status := init(`{"accessToken":"second"}`); status != 401 {
		t.Errorf("another token: %d", status)
	}
	if status := init(`{"accessToken":"first","envVars":{"A":"b"}}`); status != 204 {
		t.Errorf("the same token: %d", status)
	}
	if status, text := d.get(t, "/envs", "X-Access-Token", "first"); status != 200 || !strings.Contains(text, `"A":"b"`) {
		t.Errorf("envs: %d %q", status, text)
	}
	if status := init(`{"accessToken":`); status != 400 {
		t.Errorf("half a body: %d", status)
	}
}

func TestInitSetsUserAndDirectory(t *testing.T) {
	t.Parallel()
	d := own(t)
	dir := t.TempDir()
	if status, text := d.Post(t, "/init", `{"defaultWorkdir":"`+dir+`","envVars":{"A":"b"}}`); status != 204 {
		t.Fatalf("%d %q", status, text)
	}
	s := d.start(t, `pwd; echo "$A"`).finish(t)
	if want := dir + "\nb\n"; string(s.stdout) != want {
		t.Errorf("got %q, want %q", s.stdout, want)
	}
	if status, _ := d.Post(t, "/init", `{"defaultUser":"nobody-here"}`); status == 204 {
		if f := d.open(t, inJSON, "Start", sh("true")).refused(t); f.Code != "unauthenticated" || !strings.Contains(f.Message, "invalid default user: 'nobody-here'") {
			t.Errorf("an unknown default user: %v", f)
		}
	}
}

func TestFilesByRawHTTP(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/f"
	if status, text := shared.Ask(t, http.MethodPost, "/files?path="+path, "0123456789", "Content-Type", "application/octet-stream"); status != 200 || !strings.Contains(text, `"path":"`+path+`"`) {
		t.Fatalf("upload: %d %q", status, text)
	}
	if status, text := shared.get(t, "/files?path="+path, "Range", "bytes=2-4"); status != http.StatusPartialContent || text != "234" {
		t.Errorf("a range: %d %q", status, text)
	}
	if status, _ := shared.get(t, "/files?path="+path+"-none"); status != 404 {
		t.Errorf("a missing file: %d", status)
	}
	if status, _ := shared.get(t, "/files?path=/tmp"); status != 400 {
		t.Errorf("a directory: %d", status)
	}
	if status, _ := shared.get(t, "/files?path="+path+"&username=nobody-here"); status != 401 {
		t.Errorf("an unknown user: %d", status)
	}
	if status, _ := shared.Ask(t, http.MethodPost, "/files?path="+path, "x", "Content-Type", "text/plain"); status != 400 {
		t.Errorf("another content type: %d", status)
	}
}
