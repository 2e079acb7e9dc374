package envd_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tend-run/tend/internal/protocol/envd"
	"github.com/tend-run/tend/internal/support/proctest"
)

// fileStore is a [envd.Store] in one file.
type fileStore string

func (f fileStore) Load() ([]byte, error) {
	b, err := os.ReadFile(string(f))
	if os.IsNotExist(err) {
		return nil, nil
	}
	return b, err
}
func (f fileStore) Save(b []byte) error { return os.WriteFile(string(f), b, 0o600) }

func (s *server) do(method, path, body string, headers ...string) (*http.Response, string) {
	s.t.Helper()
	c := s.dial()
	c.send(method, path, headers, []byte(body))
	res := c.response()
	text := proctest.Value(io.ReadAll(res.Body))(s.t)
	c.Close()
	return res, string(text)
}

func TestInit(t *testing.T) {
	t.Parallel()
	store := fileStore(filepath.Join(t.TempDir(), "envd.json"))
	dir := t.TempDir()
	s := serve(t, func(c *envd.Config) { c.Store = store })
	const unauthorized = `{"code":401,"message":"unauthorized access, please provide a valid access token or method signing if supported"}`
	for _, tc := range []struct {
		name, method, path, body string
		headers                  []string
		code                     int
		want                     string
	}{
		{"health", "GET", "/health", "", nil, 204, ""},
		{"variables before /init", "GET", "/envs", "", nil, 200, `{"E2B_SANDBOX":"true"}`},
		{"an empty init", "POST", "/init", "", nil, 204, ""},
		{"a broken init", "POST", "/init", "{", nil, 400, ""},
		{"settings without a token", "POST", "/init", `{"envVars":{"A":"1","E2B_SANDBOX":"no"},"timestamp":"2026-01-02T00:00:00Z","unknown":{}}`, nil, 204, ""},
		{"internal variables stay", "GET", "/envs", "", nil, 200, `{"A":"1","E2B_SANDBOX":"true"}`},
		{"an older timestamp is ignored", "POST", "/init", `{"envVars":{},"timestamp":"2026-01-01T00:00:00Z"}`, nil, 204, ""},
		{"and changed nothing", "GET", "/envs", "", nil, 200, `{"A":"1","E2B_SANDBOX":"true"}`},
		{"the first token", "POST", "/init", `{"accessToken":"secret","envVars":{"B":"2"},"defaultWorkdir":"` + dir + `"}`, nil, 204, ""},
		{"another token", "POST", "/init", `{"accessToken":"other"}`, nil, 401, `{"code":401,"message":"access token validation failed"}`},
		{"no token", "POST", "/init", `{}`, nil, 401, `{"code":401,"message":"access token reset not authorized"}`},
		{"a wrong token in the header", "POST", "/init", `{"accessToken":"secret"}`, []string{"X-Access-Token: secre"}, 401, unauthorized},
		{"a token in a body that is too large to be read first", "POST", "/init", `{"accessToken":"secret","envVars":{"A":"` + strings.Repeat("a", 16<<10) + `"}}`, nil, 401, unauthorized},
		{"the same with the header", "POST", "/init", `{"accessToken":"secret","envVars":{"A":"` + strings.Repeat("a", 16<<10) + `"}}`, []string{"X-Access-Token: secret"}, 204, ""},
		{"an init again", "POST", "/init", `{"accessToken":"secret","envVars":{"B":"2"}}`, []string{"X-Access-Token: secret"}, 204, ""},
		{"the same token", "POST", "/init", `{"accessToken":"secret"}`, nil, 204, ""},
		{"health needs none", "GET", "/health", "", nil, 204, ""},
		{"variables need it", "GET", "/envs", "", nil, 401, unauthorized},
		{"a wrong one", "GET", "/envs", "", []string{"X-Access-Token: secre"}, 401, unauthorized},
		{"the right one", "GET", "/envs", "", []string{"X-Access-Token: secret"}, 200, `{"B":"2","E2B_SANDBOX":"true"}`},
		{"calls need it", "POST", "/process.Process/List", "{}", []string{"Content-Type: application/json"}, 401, unauthorized},
		{"streams need it", "POST", "/process.Process/Start", "", []string{"Content-Type: application/connect+json"}, 401, unauthorized},
	} {
		res, body := s.do(tc.method, tc.path, tc.body, tc.headers...)
		if body = strings.TrimSpace(body); res.StatusCode != tc.code || tc.want != "" && body != tc.want {
			t.Errorf("%s: got %d %s, want %d %s", tc.name, res.StatusCode, body, tc.code, tc.want)
		}
	}
	if st, err := os.Stat(string(store)); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the settings are not private: %v %v", st, err)
	}
	// A new server knows the settings.
	s = serve(t, func(c *envd.Config) { c.Store = store })
	got := s.stream("Start", sh("printf $B,$PWD"), "X-Access-Token: secret").started().rest()
	if want := "2," + dir; got.Stdout != want {
		t.Errorf("after a restart the process says %q, want %q", got.Stdout, want)
	}
	if res, _ := s.do("GET", "/envs", ""); res.StatusCode != 401 {
		t.Errorf("after a restart no token is needed: %s", res.Status)
	}
}

func TestGuardAndCORS(t *testing.T) {
	t.Parallel()
	plain := func(c *envd.Config) { c.Guard.Domains = []string{"box.example"} }
	named := func(c *envd.Config) { c.Guard.Origins = []string{"http://localhost:3000"} }
	secret := func(c *envd.Config) { c.Token = "secret" }
	for _, tc := range []struct {
		name    string
		change  func(*envd.Config)
		method  string
		headers []string
		code    int
		want    map[string]string
	}{
		{"no origin", plain, "GET", nil, 200, map[string]string{"Vary": "Origin", "Access-Control-Allow-Origin": ""}},
		{"a loopback page", plain, "GET", []string{"Origin: http://localhost:3000"}, 403, map[string]string{"Access-Control-Allow-Origin": ""}},
		{"a loopback page's preflight", plain, "OPTIONS", []string{"Origin: http://localhost:3000", "Access-Control-Request-Method: POST"}, 403, map[string]string{"Access-Control-Allow-Origin": ""}},
		{"a loopback page's image", plain, "GET", []string{"Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: no-cors"}, 403, nil},
		{"a page that is named", named, "GET", []string{"Origin: http://localhost:3000"}, 200, map[string]string{"Access-Control-Allow-Origin": "*",
			"Access-Control-Expose-Headers": "Grpc-Status, Grpc-Message, Grpc-Status-Details-Bin, Location, Cache-Control, X-Content-Type-Options, Tend-Id, Tend-Offset, Tend-Owner"}},
		{"a loopback address", plain, "GET", []string{"Origin: http://[::1]:3000", "Host: 127.0.0.1:1"}, 403, nil},
		{"the same address", plain, "GET", []string{"Origin: http://[::1]:3000", "Host: [::1]:3000"}, 200, nil},
		{"the same host", plain, "GET", []string{"Origin: http://10.1.2.3:1", "Host: 10.1.2.3:1"}, 200, nil},
		{"a foreign page", plain, "GET", []string{"Origin: https://evil.example"}, 403, nil},
		{"a sandboxed page", plain, "GET", []string{"Origin: null"}, 403, nil},
		{"a page of another machine", plain, "GET", []string{"Origin: http://10.9.9.9"}, 403, nil},
		{"a foreign page's preflight", plain, "OPTIONS", []string{"Origin: https://evil.example", "Access-Control-Request-Method: POST"}, 403, map[string]string{"Access-Control-Allow-Origin": ""}},
		{"a rebound name", plain, "GET", []string{"Host: evil.example:49983"}, 403, nil},
		{"a foreign page's image", plain, "GET", []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors"}, 403, nil},
		{"a link on a foreign page", plain, "GET", []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate"}, 200, nil},
		{"an own page's image", plain, "GET", []string{"Sec-Fetch-Site: same-origin", "Sec-Fetch-Mode: no-cors"}, 200, nil},
		{"any page's image with a token", secret, "GET", []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors", "X-Access-Token: secret"}, 200, nil},
		{"a name below a domain", plain, "GET", []string{"Host: 49983-x.Box.example.:49983"}, 200, nil},
		{"a page of the same name", plain, "GET", []string{"Host: 49983-x.box.example", "Origin: https://49983-x.box.example"}, 200, nil},
		{"a page of another name below a domain", plain, "GET", []string{"Host: 49983-x.box.example", "Origin: https://8080-x.box.example"}, 403, nil},
		{"an image on such a page", plain, "GET", []string{"Host: 49983-x.box.example", "Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: no-cors"}, 403, nil},
		{"a name that ends like a domain", plain, "GET", []string{"Host: evilbox.example"}, 403, nil},
		{"localhost with a dot", plain, "GET", []string{"Host: localhost.:1"}, 200, nil},
		{"a preflight", named, "OPTIONS", []string{"Origin: http://localhost:3000", "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: x-a,x-b"}, 204,
			map[string]string{"Access-Control-Allow-Origin": "*", "Access-Control-Allow-Methods": "POST", "Access-Control-Allow-Headers": "x-a,x-b", "Access-Control-Max-Age": "7200",
				"Vary": "Origin, Access-Control-Request-Method, Access-Control-Request-Headers"}},
		{"a preflight for a method that is not allowed", named, "OPTIONS", []string{"Origin: http://localhost:3000", "Access-Control-Request-Method: BREW"}, 204, map[string]string{"Access-Control-Allow-Origin": ""}},
		{"any page with a token", secret, "GET", []string{"Origin: https://app.example", "X-Access-Token: secret"}, 200, map[string]string{"Access-Control-Allow-Origin": "*"}},
		{"any host with a token", secret, "GET", []string{"Host: 49983-abc.example", "X-Access-Token: secret"}, 200, nil},
		{"any page's preflight with a token", secret, "OPTIONS", []string{"Origin: https://app.example", "Access-Control-Request-Method: POST"}, 204, map[string]string{"Access-Control-Allow-Origin": "*"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := serve(t, tc.change)
			for _, path := range []string{"/envs", "/process.Process/List"} {
				method := tc.method
				headers := tc.headers
				body := ""
				code := tc.code
				if path != "/envs" && method == "GET" {
					method, body = "POST", "{}"
					headers = append(headers, "Content-Type: application/json")
					if slices.Contains(headers, "Sec-Fetch-Mode: navigate") {
						code = 403 // a link sends no POST
					}
				}
				res, text := s.do(method, path, body, headers...)
				if res.StatusCode != code {
					t.Errorf("%s: got %s %s, want %d", path, res.Status, text, code)
				}
				got := map[string]string{}
				for k := range tc.want {
					got[k] = res.Header.Get(k)
				}
				if d := cmp.Diff(tc.want, got); len(tc.want) > 0 && d != "" {
					t.Errorf("%s: headers -want +got:\n%s", path, d)
				}
			}
		})
	}
}

func TestHTTPForms(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for _, tc := range []struct {
		name, method, path string
		headers            []string
		body               string
		code               int
		want               string
		header             [2]string
	}{
		{"GET on a call", "GET", "/process.Process/List", nil, "", 405, "", [2]string{"Allow", "POST"}},
		{"GET on a stream", "GET", "/process.Process/Start", nil, "", 405, "", [2]string{"Allow", "POST"}},
		{"an unknown method", "POST", "/process.Process/Nope", nil, "{}", 404, "404 page not found\n", [2]string{"Content-Type", "text/plain; charset=utf-8"}},
		{"an unknown path", "GET", "/nope", nil, "", 404, "404 page not found\n", [2]string{"Content-Type", "text/plain; charset=utf-8"}},
		{"a stream with a foreign content type", "POST", "/process.Process/Start", []string{"Content-Type: text/plain"}, "{}", 415, "", [2]string{}},
		{"a call with a stream's content type", "POST", "/process.Process/List", []string{"Content-Type: application/connect+json"}, "{}", 415, "", [2]string{}},
		{"an unknown user in a call", "POST", "/process.Process/List", []string{"Content-Type: application/json", "Authorization: Basic " + b64("who-is:")}, "{}", 401,
			`{"code":"unauthenticated","message":"invalid username: 'who-is'"}`, [2]string{"Content-Type", "application/json"}},
		{"a Basic header without a colon", "POST", "/process.Process/List", []string{"Content-Type: application/json", "Authorization: Basic " + b64("root")}, "{}", 401,
			`{"code":"unauthenticated","message":"the Authorization header names no user: Basic is followed by the base64 text of name and colon"}`, [2]string{}},
		{"a Basic header that is no base64", "POST", "/process.Process/Start", []string{"Content-Type: application/json", "Authorization: basic ?"}, sh("true"), 401,
			`{"code":"unauthenticated","message":"the Authorization header names no user: Basic is followed by the base64 text of name and colon"}`, [2]string{}},
		{"another scheme names no user", "POST", "/process.Process/List", []string{"Content-Type: application/json", "Authorization: Bearer x"}, "{}", 200, "", [2]string{}},
		{"health is never cached", "GET", "/health", nil, "", 204, "", [2]string{"Cache-Control", "no-store"}},
		{"init tells the version", "POST", "/init", nil, "{}", 204, "", [2]string{"X-Envd-Version", "0.6.13"}},
		{"an empty call body", "POST", "/process.Process/List", []string{"Content-Type: application/json"}, "", 400, "", [2]string{}},
		{"a stream in plain JSON with a broken body", "POST", "/process.Process/Start", []string{"Content-Type: application/json"}, "{", 400, "", [2]string{}},
		{"a stream in plain JSON with a time that is none", "POST", "/process.Process/Start", []string{"Content-Type: application/json", "Connect-Timeout-Ms: 1e9"}, sh("true"), 400,
			`{"code":"invalid_argument","message":"Connect-Timeout-Ms is \"1e9\"; a whole number of milliseconds of at most 10 digits is needed"}`, [2]string{"Content-Type", "application/json"}},
		{"a stream in plain JSON to nobody", "POST", "/process.Process/Connect", []string{"Content-Type: application/json"}, `{"process":{"pid":4194305}}`, 404,
			`{"code":"not_found","message":"process with pid 4194305 not found"}`, [2]string{"Content-Type", "application/json"}},
	} {
		res, body := s.do(tc.method, tc.path, tc.body, tc.headers...)
		if res.StatusCode != tc.code || tc.want != "" && body != tc.want {
			t.Errorf("%s: got %d %q, want %d %q", tc.name, res.StatusCode, body, tc.code, tc.want)
		}
		if tc.header[0] != "" && res.Header.Get(tc.header[0]) != tc.header[1] {
			t.Errorf("%s: %s is %q", tc.name, tc.header[0], res.Header.Get(tc.header[0]))
		}
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	res, body := s.do("GET", "/metrics", "")
	if res.StatusCode != 200 {
		t.Fatal(res.Status)
	}
	for _, key := range []string{"ts", "cpu_count", "cpu_used_pct", "mem_total_mib", "mem_used_mib", "mem_total", "mem_used", "mem_cache", "disk_used", "disk_total"} {
		if !strings.Contains(body, fmt.Sprintf("%q:", key)) {
			t.Errorf("%s is missing in %s", key, body)
		}
	}
}
