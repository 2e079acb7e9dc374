package page

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/protocol/module"
	"github.com/tend-run/tend/internal/protocol/page/pagetest"
	"github.com/tend-run/tend/internal/support/proctest"
)

const token = "the-token"

// site is a server with the page, and a path /api that needs a session and reads its body.
type site struct {
	*httptest.Server
	page  *Page
	token protocol.Token
	now   time.Time
	cfg   Config
	count uint64 // of the last proof
}

func serve(t *testing.T) *site {
	t.Helper()
	s := &site{token: token, now: time.Now()}
	s.cfg = Config{
		Secret: protocol.NewSecret(), Token: func() protocol.Token { return s.token }, File: filepath.Join(t.TempDir(), "sessions"),
		Now: func() time.Time { return s.now },
	}
	s.open(t)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api" {
			l := s.page.Login(r)
			if l.Body != nil {
				r.Body = l.Body
			}
			if _, err := io.ReadAll(r.Body); l.Role == module.Nobody || err != nil {
				w.Header().Set("WWW-Authenticate", l.Challenge)
				w.WriteHeader(http.StatusUnauthorized)
			}
			return
		}
		mux := http.NewServeMux()
		proctest.Must(t, module.Mount(mux, s.page, nil))
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// open begins again with what the disk has, as a server does after kill -9.
func (s *site) open(t *testing.T) { s.page = proctest.Value(New(s.cfg))(t) }

// browser is what a browser keeps of a login.
type browser struct {
	cookie   *http.Cookie
	tag, key string
}

// browser is that of the session with an ID.
func (s *site) browser(id string) *browser {
	tag := s.page.sessions.tag(id)
	name := cookieName(&http.Request{Host: strings.TrimPrefix(s.URL, "http://")}, tag)
	return &browser{&http.Cookie{Name: name, Value: id}, tag, s.page.sessions.key(id)}
}

// page is what its page keeps.
func (b *browser) page() *browser { return &browser{tag: b.tag, key: b.key} }

// proof is the one for a request that the page makes now. None has the same count.
func (s *site) proof(b *browser, method, uri, body string, header http.Header) string {
	return s.proofAbout(b, method, uri, pagetest.Of(body), header)
}

// proofAbout is one that says something of the body.
func (s *site) proofAbout(b *browser, method, uri, about string, header http.Header) string {
	s.count++
	return pagetest.Login{Tag: b.tag, Key: b.key}.Proof(s.page.sessions.run, s.count, method, uri, about, header)
}

// request is one of a browser, as the server gets it.
func (s *site) request(b *browser) *http.Request {
	req := httptest.NewRequest("POST", "/api", nil)
	req.Host = strings.TrimPrefix(s.URL, "http://")
	req.AddCookie(b.cookie)
	req.Header.Set("Tend-Page", s.proof(b, "POST", "/api", "", nil))
	return req
}

func (s *site) do(t *testing.T, method, path, body string, b *browser, header ...string) (int, string, *http.Response) {
	t.Helper()
	req := proctest.Value(http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(body)))(t)
	if b != nil && b.cookie != nil {
		req.AddCookie(b.cookie)
	}
	for n := 0; n < len(header); n += 2 {
		if header[n] == "Host" {
			req.Host = header[n+1]
		}
		req.Header.Set(header[n], header[n+1])
	}
	if b != nil && b.key != "" && req.Header.Get("Tend-Page") == "" {
		req.Header.Set("Tend-Page", s.proof(b, method, path, body, req.Header))
	}
	resp := proctest.Value(http.DefaultTransport.RoundTrip(req))(t)
	defer resp.Body.Close()
	return resp.StatusCode, string(proctest.Value(io.ReadAll(resp.Body))(t)), resp
}

func (s *site) login(t *testing.T, header ...string) *browser {
	t.Helper()
	status, text, resp := s.do(t, "POST", "/ui/session", "", nil, header...)
	if status != http.StatusOK || len(resp.Cookies()) != 1 {
		t.Fatalf("the login is %d %s", status, text)
	}
	var a pagetest.Login
	proctest.Must(t, json.Unmarshal([]byte(text), &a))
	return &browser{resp.Cookies()[0], a.Tag, a.Key}
}

func (s *site) admits(t *testing.T, b *browser, want bool, header ...string) {
	t.Helper()
	if status, _, _ := s.do(t, "POST", "/api", "", b, header...); (status == http.StatusOK) != want {
		t.Errorf("a call is %d; admitted is to be %v", status, want)
	}
}

var byToken = []string{"Authorization", "Bearer " + token}

func TestALoginLastsOverServersAndEndsAtItsTime(t *testing.T) {
	s := serve(t)
	b := s.login(t, byToken...)
	s.admits(t, b, true)
	s.open(t)
	s.admits(t, b, true)
	if c := b.cookie; !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Secure || c.Path != "/" {
		t.Errorf("the cookie is %+v", c)
	}
	data := string(proctest.Value(os.ReadFile(s.cfg.File))(t))
	if strings.Contains(data, b.cookie.Value) || strings.Contains(data, b.key) || strings.Contains(data, token) {
		t.Errorf("what logs in is on the disk: %s", data)
	}
	if mode := proctest.Value(os.Stat(s.cfg.File))(t).Mode().Perm(); mode != 0o600 {
		t.Errorf("the file of the sessions has the mode %v", mode)
	}
	s.now = s.now.Add(lifetime - time.Minute)
	s.admits(t, b, true)
	s.now = s.now.Add(time.Minute)
	s.admits(t, b, false)
}

func TestASessionEndsWithItsTokenAndByLoggingOut(t *testing.T) {
	s := serve(t)
	one, two := s.login(t, byToken...), s.login(t, byToken...)
	if status, text, _ := s.do(t, "DELETE", "/ui/session", "", one); status != http.StatusOK {
		t.Fatalf("the logout is %d %s", status, text)
	}
	s.admits(t, one, false)
	s.admits(t, two, true)
	s.open(t)
	s.admits(t, one, false)
	s.admits(t, two, true)
	s.token = "another"
	s.admits(t, two, false)
	s.token = token
	s.admits(t, two, true)
	proctest.Must(t, os.WriteFile(s.cfg.File, []byte("{damaged"), 0o600))
	s.open(t)
	s.admits(t, two, false)
	s.admits(t, s.login(t, byToken...), true)
}

func TestNeitherTheCookieNorTheProofIsEnough(t *testing.T) {
	s := serve(t)
	one, two := s.login(t, byToken...), s.login(t, byToken...)
	for name, b := range map[string]*browser{
		"nothing":                     nil,
		"the cookie alone":            {cookie: one.cookie},
		"the key alone":               one.page(),
		"the key of another session":  {one.cookie, one.tag, two.key},
		"the page of another session": {one.cookie, two.tag, two.key},
		"a key that is made up":       {one.cookie, one.tag, strings.Repeat("0", 64)},
		"a cookie that is made up":    {&http.Cookie{Name: one.cookie.Name, Value: "AAAA"}, one.tag, one.key},
		"the cookie of another port":  {&http.Cookie{Name: "tend-session-1-" + one.tag, Value: one.cookie.Value}, one.tag, one.key},
	} {
		t.Run(name, func(t *testing.T) { s.admits(t, b, false) })
	}
	s.admits(t, one, true)
}

// TestACookieOfAnotherPortLocksNobodyOut: browsers keep the cookies of all ports together,
// and show one that has a longer path first.
func TestACookieOfAnotherPortLocksNobodyOut(t *testing.T) {
	s := serve(t)
	b := s.login(t, byToken...)
	tossed := func(n int) []string {
		return []string{"Cookie", strings.Repeat(b.cookie.Name+"=AAAA; ", n) + b.cookie.Name + "=" + b.cookie.Value}
	}
	page := b.page()
	s.admits(t, page, true, tossed(1)...)
	s.admits(t, page, true, tossed(maxCookies-1)...)
	s.admits(t, page, false, tossed(maxCookies)...)
	if status, text, _ := s.do(t, "DELETE", "/ui/session", "", page, tossed(1)...); status != http.StatusOK {
		t.Fatalf("the logout is %d %s", status, text)
	}
	s.admits(t, b, false)
}

// A server on another port sets cookies for this one. It knows the port and, as a daemon like
// this one, all that is the same in each: a browser that has its cookies stays logged in.
func TestAnotherPortReplacesNoCookieOfALogin(t *testing.T) {
	s := serve(t)
	b, other := s.login(t, byToken...), s.login(t, byToken...)
	port := s.URL[strings.LastIndexByte(s.URL, ':')+1:]
	jar := map[string]string{b.cookie.Name: b.cookie.Value}
	for _, name := range []string{"tend-session", "tend-session-" + port, other.cookie.Name, "tend-session-" + port + "-00000000"} {
		jar[name] = "AAAA"
	}
	var all []string
	for name, value := range jar {
		all = append(all, name+"="+value)
	}
	header := []string{"Cookie", strings.Join(all, "; ")}
	s.admits(t, b.page(), true, header...)
	// Logging out, and in again, leaves nothing behind.
	for _, method := range []string{"POST", "DELETE"} {
		status, text, resp := s.do(t, method, "/ui/session", "", b.page(), append(header, byToken...)...)
		forgotten := 0
		for _, c := range resp.Cookies() {
			if c.MaxAge < 0 && jar[c.Name] != "" {
				forgotten++
			}
		}
		if status != http.StatusOK || forgotten != len(jar)-1 { // not that of the port 80
			t.Errorf("%s is %d %s and forgets %d cookies: %v", method, status, text, forgotten, resp.Cookies())
		}
	}
	s.admits(t, b.page(), false, header...)
}

// A server before this one had the page send what proved its login: who has seen that is not
// let in.
func TestWhatAFormerPageSentLogsNobodyIn(t *testing.T) {
	s := serve(t)
	b := s.login(t, byToken...)
	former := s.cfg.Secret.Sign("page proof", b.cookie.Value)
	s.admits(t, &browser{b.cookie, b.tag, former}, false)
	tag := s.cfg.Secret.Sign("page cookie", former)[:tagLength]
	for _, name := range []string{b.cookie.Name, strings.TrimSuffix(b.cookie.Name, "-"+b.tag), cookieName(s.request(b), tag)} {
		s.admits(t, &browser{cookie: &http.Cookie{Name: name, Value: b.cookie.Value}}, false, "Tend-Page", former)
	}
	s.admits(t, b, true)
}

// What a login has opened asks whether it lasts.
func TestALoginSaysWhenItIsOver(t *testing.T) {
	s := serve(t)
	lasts := func(b *browser) func() bool {
		l := s.page.Login(s.request(b))
		if l.Role == module.Nobody || !l.Lasts() {
			t.Fatal("a login does not begin")
		}
		return l.Lasts
	}
	enter := func() *browser { return s.login(t, byToken...) }
	out := enter()
	byLogout, byTime := lasts(out), lasts(enter())
	s.do(t, "DELETE", "/ui/session", "", out)
	if byLogout() || !byTime() {
		t.Errorf("after the logout of one they last: %v, %v", byLogout(), byTime())
	}
	s.now = s.now.Add(lifetime)
	if byTime() {
		t.Error("after its time a login lasts")
	}
	byToken := lasts(enter())
	s.token = "another"
	if byToken() {
		t.Error("a login outlives the token")
	}
}

// Read-only logins are ended by the owner, on the disk too, with the links that nobody has
// used; nothing else is.
func TestTheOwnerEndsReadOnlyLogins(t *testing.T) {
	s := serve(t)
	one, two, owner := s.login(t, "Tend-Code", s.page.Code(true, false)), s.login(t, "Tend-Code", s.page.Code(true, false)), s.login(t, byToken...)
	unused := s.page.Code(true, false)
	if status, text, _ := s.do(t, "DELETE", "/ui/readers", "", nil); status != http.StatusOK || strings.TrimSpace(text) != `{"ended":2}` {
		t.Fatalf("it is %d %s", status, text)
	}
	for range 2 {
		s.admits(t, one, false)
		s.admits(t, two, false)
		s.admits(t, owner, true)
		s.open(t)
	}
	if status, _, _ := s.do(t, "POST", "/ui/session", "", nil, "Tend-Code", unused); status != http.StatusUnauthorized {
		t.Errorf("a link that was not used yet logs in: %d", status)
	}
}

func TestAForeignPageNeitherCallsNorLogsIn(t *testing.T) {
	s := serve(t)
	b := s.login(t, byToken...)
	for name, header := range map[string][]string{
		"its origin":                     {"Origin", "https://evil.example"},
		"another port of this host":      {"Origin", "http://127.0.0.1:3000"},
		"no origin, as in a sandbox":     {"Origin", "null"},
		"another site":                   {"Sec-Fetch-Site", "cross-site"},
		"the same site, on another port": {"Sec-Fetch-Site", "same-site"},
	} {
		t.Run(name, func(t *testing.T) {
			s.admits(t, b, false, header...)
			if status, _, resp := s.do(t, "POST", "/ui/session", "", nil, append(header, byToken...)...); status != http.StatusForbidden || len(resp.Cookies()) > 0 {
				t.Errorf("a foreign page logs in: %d", status)
			}
			if status, _, _ := s.do(t, "DELETE", "/ui/session", "", b, header...); status != http.StatusUnauthorized {
				t.Errorf("a foreign page logs out: %d", status)
			}
		})
	}
	s.admits(t, b, true, "Origin", s.URL, "Sec-Fetch-Site", "same-origin")
	// DNS rebinding: the page's name leads here, and the browser has no cookie for it.
	s.admits(t, b.page(), false, "Host", "evil.example", "Origin", "http://evil.example")
}

func TestBehindTLSTheCookieStaysThere(t *testing.T) {
	s := serve(t)
	tls := []string{"Host", "tend.example", "X-Forwarded-Proto", "https", "Origin", "https://tend.example"}
	b := s.login(t, append(tls, byToken...)...)
	if !b.cookie.Secure || !strings.HasPrefix(b.cookie.Name, "__Host-") {
		t.Errorf("the cookie is %+v", b.cookie)
	}
	s.admits(t, b, true, tls...)
}

func TestACodeLogsInOnceWithinAMinute(t *testing.T) {
	s := serve(t)
	first, late := s.page.Code(false, false), s.page.Code(false, false)
	s.admits(t, s.login(t, "Tend-Code", first), true)
	refused := func(header ...string) {
		t.Helper()
		if status, text, resp := s.do(t, "POST", "/ui/session", "", nil, header...); status != http.StatusUnauthorized || len(resp.Cookies()) > 0 || !strings.Contains(text, `"message"`) {
			t.Errorf("%q is %d %s", header, status, text)
		}
	}
	refused("Tend-Code", first)
	refused("Tend-Code", "AAAA")
	s.now = s.now.Add(codeLifetime)
	refused("Tend-Code", late)
	forgotten := s.page.Code(false, false)
	for range maxCodes {
		s.page.Code(false, false)
	}
	refused("Tend-Code", forgotten)
	refused("Authorization", "Bearer the-toke")
	refused("Authorization", "Bearer ")
	refused()
}

func TestWithoutATokenNoLoginIsNeeded(t *testing.T) {
	s := serve(t)
	told := func() string { _, text, _ := s.do(t, "GET", "/ui/session", "", nil); return strings.TrimSpace(text) }
	if got := told(); got != `{"in":false,"needed":true,"reads":false}` {
		t.Errorf("with a token: %s", got)
	}
	s.token = ""
	if got := told(); got != `{"in":true,"needed":false,"reads":false}` || s.page.Code(false, false) != "" {
		t.Errorf("without: %s, code %q", got, s.page.Code(false, false))
	}
}

func TestTheOldestOfManySessionsEnds(t *testing.T) {
	s := serve(t)
	id := func() *browser {
		return s.browser(proctest.Value(s.page.sessions.begin(false))(t))
	}
	oldest, next := id(), id()
	for range maxSessions - 1 {
		id()
	}
	s.admits(t, oldest, false)
	s.admits(t, next, true)
}

// A code for reading alone makes a login that does, over servers too; no other does.
func TestACodeForReadingLogsInToReadAlone(t *testing.T) {
	s := serve(t)
	role := func(b *browser) module.Role { return s.page.Login(s.request(b)).Role }
	reader, owner, token := s.login(t, "Tend-Code", s.page.Code(true, false)), s.login(t, "Tend-Code", s.page.Code(false, false)), s.login(t, byToken...)
	for range 2 {
		if role(reader) != module.Reader || role(owner) != module.Owner || role(token) != module.Owner {
			t.Errorf("they are %v, %v and %v", role(reader), role(owner), role(token))
		}
		s.open(t)
	}
	if _, text, _ := s.do(t, "GET", "/ui/session", "", reader); strings.TrimSpace(text) != `{"in":true,"needed":true,"reads":true}` {
		t.Errorf("the reader is told %s", text)
	}
	// Both halves of a login are needed, and of the same one.
	if got := role(&browser{reader.cookie, reader.tag, owner.key}); got != module.Nobody {
		t.Errorf("the cookie of one with the key of another is %v", got)
	}
}

// A server from before there were logins for reading alone knows nothing of Reads: to it such
// a login is none, whereas that of an owner lasts.
func TestAServerFromBeforeReadersAdmitsNone(t *testing.T) {
	s := serve(t)
	reader, owner := s.login(t, "Tend-Code", s.page.Code(true, false)), s.login(t, byToken...)
	data := string(proctest.Value(os.ReadFile(s.cfg.File))(t))
	old := strings.Replace(data, `"reads":true,`, "", 1)
	if old == data {
		t.Fatalf("no session is for reading alone: %s", data)
	}
	proctest.Must(t, os.WriteFile(s.cfg.File, []byte(old), 0o600)) // as that server reads and writes it
	s.open(t)
	s.admits(t, reader, false)
	s.admits(t, owner, true)
}
