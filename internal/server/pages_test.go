package server

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A program of another user can serve a page on a port of this machine. Without a token such a
// page is let in nowhere, whichever face answers.
func TestNoPageOfAnotherPortIsLetIn(t *testing.T) {
	s := serve(t, nil)
	c := s.client(t, "h1", "tcp")
	own := strings.TrimPrefix(s.tcp, "http://")
	local := "localhost" + own[strings.LastIndexByte(own, ':'):]
	file := filepath.Join(t.TempDir(), "up")
	calls := [][3]string{
		{"POST", "/tend.v1.ProcessService/List", "{}"}, {"GET", "/tend.v1.SandboxService/Dial", ""}, {"POST", "/process.Process/List", "{}"}, {"GET", "/envs", ""}, {"POST", "/filesystem.Filesystem/Stat", `{"path":"/"}`},
		{"POST", "/files?path=" + file, "a"}, {"GET", "/files?path=/etc/hostname", ""}, {"GET", "/v2/sandboxes/boxes", ""}, {"GET", "/sandboxes", ""},
		{"POST", "/mcp", "{}"}, {"GET", "/api/gateway/openai/v1/models", ""}, {"POST", "/ui/session", ""}, {"GET", "/-/metrics", ""}, {"GET", "/-/healthz", ""},
	}
	for name, header := range map[string]map[string]string{
		"of localhost":                  {"Origin": "http://localhost:3000", "Sec-Fetch-Site": "same-site", "Host": local},
		"of an address":                 {"Origin": "http://127.0.0.1:8080"},
		"of the port of another scheme": {"Origin": "http://127.0.0.1"},
		"of IPv6":                       {"Origin": "http://[::1]:5173"},
		"below localhost":               {"Origin": "http://app.localhost:3000"},
		"of another address's port":     {"Origin": "http://127.0.0.2" + own[strings.LastIndexByte(own, ':'):]},
		"whose image it is":             {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors", "Host": local},
		"whose form it is":              {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Origin": "null"},
		"that asks first":               {"Origin": "http://localhost:3000", "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"},
		"by the header of a port":       {"Origin": "http://localhost:3000", "E2b-Sandbox-Id": "none", "E2b-Sandbox-Port": "80"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, call := range calls {
				method := call[0]
				if header["Access-Control-Request-Method"] != "" {
					method = "OPTIONS"
				}
				got, text := do(t, c, method, s.tcp+call[1], call[2], with(header, "Content-Type", "application/json"))
				if got != http.StatusForbidden || !strings.Contains(text, "refused while no token is set") {
					t.Errorf("%s %s is %d %.100s", method, call[1], got, text)
				}
			}
		})
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("a page has uploaded a file")
	}
	for name, header := range map[string]map[string]string{
		"the daemon's own":           {"Origin": s.tcp, "Sec-Fetch-Site": "same-origin"},
		"its own by name":            {"Origin": "http://" + local, "Host": local},
		"a link that is followed":    {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Host": local},
		"an image on the own page":   {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "no-cors"},
		"what is no browser":         nil,
		"an address typed by a hand": {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"},
	} {
		if got, text := get(t, c, s.tcp+"/envs", header); got != http.StatusOK {
			t.Errorf("%s is %d %s", name, got, text)
		}
	}
}

// Who names a page lets in that one, on all faces.
func TestAPageThatIsNamedIsLetIn(t *testing.T) {
	s := serve(t, func(c *Config) { c.Origins = []string{"http://localhost:5173"} })
	c := s.client(t, "h1", "tcp")
	for _, path := range []string{"/envs", "/sandboxes", "/-/metrics", "/v2/sandboxes/boxes"} {
		for origin, want := range map[string]int{"http://localhost:5173": 200, "http://localhost:5174": 403, "https://localhost:5173": 403} {
			if got, text := get(t, c, s.tcp+path, map[string]string{"Origin": origin}); got != want {
				t.Errorf("%s for a page of %s is %d %.100s; want %d", path, origin, got, text, want)
			}
		}
	}
}

func TestCheckOrigin(t *testing.T) {
	for o, hint := range map[string]string{
		"http://localhost:5173": "", "https://app.example": "",
		"http://localhost:5173/": "write http://localhost:5173", "https://App.example": "write https://app.example", "http://localhost:80": "write http://localhost",
		"localhost:5173": "such as", "*": "such as", "null": "such as", "": "such as",
	} {
		if err := CheckOrigin(o); (err == nil) != (hint == "") || err != nil && !strings.Contains(err.Error(), hint) {
			t.Errorf("%q: %v", o, err)
		}
	}
}

// with is a copy of a header with one field more.
func with(header map[string]string, name, value string) map[string]string {
	all := map[string]string{name: value}
	for k, v := range header {
		all[k] = v
	}
	return all
}
