package langsmith_test

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/protocol/langsmith"
	"github.com/tend-run/tend/internal/support/proctest"
)

// serviceLink is what a link to a port comes to.
type serviceLink struct {
	ServiceURL string `json:"service_url"`
	BrowserURL string `json:"browser_url"`
	Token      string `json:"token"`
}

// inside runs a server as a program in the box would, and makes a link to it.
func (s *server) inside(h http.HandlerFunc) serviceLink {
	s.t.Helper()
	hs := httptest.NewServer(h)
	s.t.Cleanup(hs.Close)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(hs.URL, "http://"))
	if err != nil {
		s.t.Fatal(err)
	}
	var link serviceLink
	_, text := s.call("POST", "/v2/sandboxes/boxes/box/service-url", `{"port":`+port+`}`)
	if err := json.Unmarshal([]byte(text), &link); err != nil {
		s.t.Fatal(text, err)
	}
	return link
}

func TestLinksTellNobodyWhatNamesThereAre(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *langsmith.Config) { c.Token = func() protocol.Token { return "secret" } })
	for _, rest := range []string{"/link/x", "/link/a.b", "/service/80/", "/service/80/~a.b/", "/service/x/", "/service/80/?_langsmith_service_token=a.b"} {
		wantStatus, want := s.call("GET", s.url+"/langsmith/no-such-box"+rest, "")
		for _, name := range []string{s.box.Name, string(s.box.ID)} {
			if status, got := s.call("GET", s.url+"/langsmith/"+name+rest, ""); status != wantStatus || got != want || status != 403 {
				t.Errorf("%s of %s: %d %s; of a box that is not there: %d %s", rest, name, status, got, wantStatus, want)
			}
		}
	}
}

func TestAServiceIsNotGivenWhatIsForThisServer(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *langsmith.Config) { c.Token = func() protocol.Token { return "secret" } })
	s.key = "secret"
	link := s.inside(func(w http.ResponseWriter, r *http.Request) {
		text, err := json.Marshal(map[string]any{"headers": r.Header, "query": r.URL.RawQuery})
		if err != nil {
			t.Error(err)
		}
		w.Write(text)
	})
	s.key = ""
	b64 := base64.StdEncoding.EncodeToString
	for _, tt := range []struct{ name, header string }{
		{"the key", "X-Api-Key: secret"},
		{"envd's token", "X-Access-Token: secret"},
		{"any token of envd's", "X-Access-Token: other-secret"},
		{"the bearer token", "Authorization: Bearer secret"},
		{"the token as a password", "Authorization: Basic " + b64([]byte("me:secret"))},
		{"the token as a name", "Authorization: Basic " + b64([]byte("secret:x"))},
		{"envd's user", "Authorization: Basic " + b64([]byte("secret-user:"))},
		{"the token as it is", "Authorization: secret"},
		{"the token in another scheme", "Authorization: Token secret"},
		{"the link's token", "Cookie: langsmith-sandbox-service-token=secret; own=1"},
		{"the login to tend's page", "Cookie: own=1; tend-session-49983-0123abcd=secret"},
	} {
		_, got := s.call("POST", link.ServiceURL+"?q=1&_langsmith_service_token="+link.Token, "", "X-Langsmith-Sandbox-Service-Token: "+link.Token, tt.header)
		_, value, _ := strings.Cut(tt.header, ": ")
		if strings.Contains(got, "secret") || strings.Contains(got, value) || strings.Contains(got, link.Token) || !strings.Contains(got, "q=1") {
			t.Errorf("%s reaches the service: %s", tt.name, got)
		}
	}
	query := "a;b=1&c=%zz&_langsmith_service_toke=x&100%"
	if _, got := s.call("POST", link.ServiceURL+"?a;b=1&%5flangsmith_service_token="+link.Token+"&c=%zz&_langsmith_service_toke=x&100%", ""); !strings.Contains(got, strings.ReplaceAll(query, "&", `\u0026`)) {
		t.Errorf("a query reaches the service as %s", got)
	}
	for _, own := range []string{"Authorization: Bearer the-apps-own", "Authorization: Basic " + b64([]byte("me:the-apps-own")), "Cookie: own=1"} {
		_, value, _ := strings.Cut(own, ": ")
		if _, got := s.call("GET", link.ServiceURL, "", "X-Langsmith-Sandbox-Service-Token: "+link.Token, own); !strings.Contains(got, value) {
			t.Errorf("%s does not reach the service: %s", own, got)
		}
	}
}

func TestAPageOfAServiceIsNoPageOfThisServer(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	link := s.inside(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "img-src 'self'")
		h.Set("Clear-Site-Data", "*")
		h.Set("Service-Worker-Allowed", "/")
		h.Add("Set-Cookie", "a=1; Path=/; Domain=127.0.0.1")
		h.Add("Set-Cookie", "langsmith-sandbox-service-token=stolen; Path=/")
		if r.URL.Path == "/away" {
			http.Redirect(w, r, "/login", http.StatusFound)
			return
		}
		io.WriteString(w, r.URL.Path)
	})
	res := s.do("GET", link.BrowserURL, "")
	res.Body.Close()
	at, err := url.Parse(res.Header.Get("Location"))
	if err != nil || res.StatusCode != 302 {
		t.Fatalf("%s %v", res.Status, err)
	}
	page := s.url + at.Path
	if strings.Contains(page, link.Token) || !langsmith.CarriesToken(at.Path) {
		t.Errorf("the page is at %s", page)
	}
	res = s.do("GET", page+"deep/app.js", "", "Origin: null")
	body, err := io.ReadAll(res.Body)
	res.Body.Close()
	h := res.Header
	policies := h.Values("Content-Security-Policy")
	if err != nil || string(body) != "/deep/app.js" || len(policies) != 2 || !strings.HasPrefix(policies[1], "sandbox ") || strings.Contains(policies[1], "allow-same-origin") {
		t.Errorf("%q %q", body, policies)
	}
	if h.Get("Clear-Site-Data")+h.Get("Service-Worker-Allowed") != "" || h.Get("Access-Control-Allow-Origin") != "*" || h.Get("Referrer-Policy") != "no-referrer" {
		t.Errorf("%v", h)
	}
	if cookies := res.Cookies(); len(cookies) != 1 || cookies[0].Name != "a" || cookies[0].Domain != "" || cookies[0].Path != at.Path {
		t.Errorf("cookies %v", cookies)
	}
	res = s.do("GET", page+"away", "")
	res.Body.Close()
	if to := res.Header.Get("Location"); to != at.Path+"login" {
		t.Errorf("a redirection leads to %s", to)
	}
	res = s.do("OPTIONS", page+"api", "", "Origin: null", "Access-Control-Request-Method: PUT", "Access-Control-Request-Headers: content-type")
	res.Body.Close()
	if res.StatusCode != 204 || res.Header.Get("Access-Control-Allow-Methods") != "PUT" || res.Header.Get("Access-Control-Allow-Headers") != "content-type" {
		t.Errorf("a preflight: %s %v", res.Status, res.Header)
	}
	// The page's token opens its path, and nothing else.
	token := strings.Trim(at.Path[strings.Index(at.Path, "~")+1:], "/")
	for name, ask := range map[string][2]string{
		"another port":     {strings.Replace(page, "/service/", "/service/1", 1), ""},
		"as a header":      {link.ServiceURL, "X-Langsmith-Sandbox-Service-Token: " + token},
		"as a file's":      {s.data() + "/link/" + token, ""},
		"changed":          {strings.Replace(page, "~", "~A", 1), ""},
		"as another box's": {strings.Replace(page, string(s.box.ID), "other", 1), ""},
	} {
		headers := []string{}
		if ask[1] != "" {
			headers = append(headers, ask[1])
		}
		if status, body := s.call("GET", ask[0], "", headers...); status != 403 {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
}

// Browsers send the cookie of a link with the requests of pages of all ports of the host, which
// other users may serve.
func TestThePageOfAnotherPortDoesNotActWithTheCookieOfALink(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *langsmith.Config) { c.Token = func() protocol.Token { return "secret" } })
	s.key = "secret"
	came := 0
	link := s.inside(func(w http.ResponseWriter, _ *http.Request) {
		came++
		io.WriteString(w, "the program")
	})
	s.key = ""
	res := s.do("GET", link.BrowserURL, "")
	res.Body.Close()
	cookie, _, _ := strings.Cut(res.Header.Get("Set-Cookie"), ";")
	cookie = "Cookie: " + cookie
	for what, ask := range map[string][]string{
		"a POST of a form": {"POST", cookie, "Origin: http://127.0.0.1:41249", "Sec-Fetch-Site: same-site",
			"Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"},
		"a POST of a script": {"POST", cookie, "Origin: http://127.0.0.1:41249", "Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: no-cors",
			"Sec-Fetch-Dest: empty"},
		"a POST without an origin": {"POST", cookie},
		"an image":                 {"GET", cookie, "Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: image"},
		"a frame":                  {"GET", cookie, "Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"},
		"a WebSocket":              {"GET", cookie, "Origin: http://127.0.0.1:41249", "Connection: Upgrade", "Upgrade: websocket"},
	} {
		if status, text := s.call(ask[0], link.ServiceURL, "", ask[1:]...); status != 403 || came > 0 {
			t.Errorf("%s of another port is %d %s, and came to the program %d times", what, status, text, came)
		}
		if status, text := s.call(ask[0], link.ServiceURL+"~a.b/", "", ask[1:]...); status != 403 || came > 0 {
			t.Errorf("%s of another port, with a mark of pages, is %d %s, and came to the program %d times", what, status, text, came)
		}
	}
	for what, headers := range map[string][]string{
		"a typed address":     {cookie, "Sec-Fetch-Site: none", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"},
		"a link of a page":    {cookie, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"},
		"no browser of today": {cookie},
	} {
		if status, text := s.call("GET", link.ServiceURL, "", headers...); status != 200 || text != "the program" {
			t.Errorf("%s is %d %s", what, status, text)
		}
	}
}

func TestDownloadsAreData(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for _, name := range []string{"page.html", "picture.svg", "doc.xhtml", "plain"} {
		proctest.Must(t, os.WriteFile(filepath.Join(s.box.Dir, name), []byte("<script>alert(1)</script>"), 0o644))
		res := s.do("GET", s.data()+"/download?path="+name, "")
		res.Body.Close()
		h := res.Header
		if res.StatusCode != 200 || !strings.Contains(h.Get("Content-Security-Policy"), "sandbox") || h.Get("X-Content-Type-Options") != "nosniff" || !strings.HasPrefix(h.Get("Content-Disposition"), "attachment") {
			t.Errorf("%s: %s %v", name, res.Status, h)
		}
	}
}

func FuzzCarriesToken(f *testing.F) {
	for _, s := range []string{"/langsmith/b/service/80/~a.b/", "/langsmith/b/service/80/x", "/langsmith//service//~.", "/files"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		if langsmith.CarriesToken(path) && (!strings.HasPrefix(path, "/langsmith/") || !strings.Contains(path, "/service/")) {
			t.Errorf("%q", path)
		}
	})
}
