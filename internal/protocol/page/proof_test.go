package page

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tend-run/tend/internal/protocol/module"
	"github.com/tend-run/tend/internal/protocol/page/pagetest"
	"github.com/tend-run/tend/internal/support/proctest"
)

// Who has our port while we are away sees cookies and proofs. What he records is worth nothing
// then, and a proof that somebody records while we are there is for the one request that
// had it.
func TestAProofIsForOneRequestToOneServer(t *testing.T) {
	s := serve(t)
	b, other := s.login(t, byToken...), s.login(t, byToken...)
	// send sends a request with a proof that was made for POST /api?a=1 with the body "yes".
	send := func(b *browser, method, path, body, proof string, header ...string) (int, string) {
		t.Helper()
		status, _, resp := s.do(t, method, path, body, b, append(header, "Tend-Page", proof)...)
		return status, resp.Header.Get("WWW-Authenticate")
	}
	made := func() string { return s.proof(b, "POST", "/api?a=1", "yes", nil) }
	change := func(n int, to string) string {
		f := strings.Split(made(), ".")
		f[n] = to
		return strings.Join(f, ".")
	}
	challenge := func(least uint64) string {
		return fmt.Sprintf(`Tend-Page run=%q, least="%d"`, s.page.sessions.run, least)
	}
	for name, refused := range map[string]func() (int, string){
		"another path":              func() (int, string) { return send(b, "POST", "/api?a=2", "yes", made()) },
		"another method":            func() (int, string) { return send(b, "PUT", "/api?a=1", "yes", made()) },
		"no body":                   func() (int, string) { return send(b, "POST", "/api?a=1", "", made()) },
		"another sandbox":           func() (int, string) { return send(b, "POST", "/api?a=1", "yes", made(), "Tend-Sandbox", "x") },
		"another condition":         func() (int, string) { return send(b, "POST", "/api?a=1", "yes", made(), "If-Match", "*") },
		"the cookie of another":     func() (int, string) { return send(other, "POST", "/api?a=1", "yes", made()) },
		"no cookie":                 func() (int, string) { return send(b.page(), "POST", "/api?a=1", "yes", made()) },
		"another tag":               func() (int, string) { return send(b, "POST", "/api?a=1", "yes", change(0, other.tag)) },
		"another run":               func() (int, string) { return send(b, "POST", "/api?a=1", "yes", change(1, "ANOTHER")) },
		"another count":             func() (int, string) { return send(b, "POST", "/api?a=1", "yes", change(2, "999999")) },
		"another hash":              func() (int, string) { return send(b, "POST", "/api?a=1", "no", change(3, hashOf([]byte("no")))) },
		"another mac":               func() (int, string) { return send(b, "POST", "/api?a=1", "yes", change(4, strings.Repeat("0", 64))) },
		"no mac":                    func() (int, string) { return send(b, "POST", "/api?a=1", "yes", change(4, "")) },
		"a count that is no number": func() (int, string) { return send(b, "POST", "/api?a=1", "yes", change(2, "-1")) },
		"a tag that is none":        func() (int, string) { return send(b, "POST", "/api?a=1", "yes", change(0, "")) },
		"something more":            func() (int, string) { return send(b, "POST", "/api?a=1", "yes", made()+".") },
		"a page of another port": func() (int, string) {
			return send(b, "POST", "/api?a=1", "yes", made(), "Origin", "http://127.0.0.1:1")
		},
		"a request of another place": func() (int, string) { return send(b, "POST", "/api?a=1", "yes", made(), "Sec-Fetch-Site", "same-site") },
	} {
		t.Run(name, func(t *testing.T) {
			if status, says := refused(); status != http.StatusUnauthorized || says != challenge(0) {
				t.Errorf("it is %d and says %q", status, says)
			}
		})
	}
	if status, _ := send(b, "POST", "/api?a=1", "not", made()); status != http.StatusUnauthorized {
		t.Errorf("another body is %d", status)
	}
	// The same proof again, here and after a death of the server.
	proof := made()
	if status, _ := send(b, "POST", "/api?a=1", "yes", proof); status != http.StatusOK {
		t.Fatalf("a proof is %d", status)
	}
	if status, says := send(b, "POST", "/api?a=1", "yes", proof); status != http.StatusUnauthorized || says != challenge(s.count) {
		t.Errorf("the same one again is %d and says %q", status, says)
	}
	unused := made()
	s.open(t)
	for _, p := range []string{proof, unused} {
		if status, says := send(b, "POST", "/api?a=1", "yes", p); status != http.StatusUnauthorized || says != challenge(0) {
			t.Errorf("a proof for the server before is %d and says %q", status, says)
		}
	}
	if status, _ := send(b, "POST", "/api?a=1", "yes", made()); status != http.StatusOK {
		t.Errorf("a proof for this server is %d", status)
	}
}

// All that the page asks about its session goes by proofs, too; it learns what they are for.
func TestAProofOfTheSessionItselfCountsOnce(t *testing.T) {
	s := serve(t)
	b := s.login(t, byToken...)
	_, text, resp := s.do(t, "GET", "/ui/session", "", nil)
	says, wanted := resp.Header.Get("WWW-Authenticate"), fmt.Sprintf(`Tend-Page run=%q, least="0"`, s.page.sessions.run)
	if !strings.Contains(text, `"in":false`) || says != wanted {
		t.Errorf("a stranger is told %s and %q", text, says)
	}
	told, out := s.proof(b, "GET", "/ui/session", "", nil), s.proof(b, "DELETE", "/ui/session", "", nil)
	for n, in := range []bool{true, false} {
		_, text, resp := s.do(t, "GET", "/ui/session", "", b, "Tend-Page", told)
		if strings.Contains(text, `"in":true`) != in || (resp.Header.Get("WWW-Authenticate") == "") != in {
			t.Errorf("time %d it is %s %v", n, text, resp.Header)
		}
	}
	s.open(t)
	if status, _, _ := s.do(t, "DELETE", "/ui/session", "", b, "Tend-Page", out); status != http.StatusUnauthorized {
		t.Errorf("a recorded logout is %d", status)
	}
	s.admits(t, b, true)
}

// Of a long body the length is signed; no other one is read without its hash.
func TestOfALongBodyTheLengthIsSigned(t *testing.T) {
	s := serve(t)
	b := s.login(t, byToken...)
	short, long := strings.Repeat("x", maxSigned), strings.Repeat("x", maxSigned+2)
	for name, c := range map[string]struct {
		about, body string
		admitted    bool
	}{
		"a body as long as can be hashed":  {hashOf([]byte(short)), short, true},
		"the length of a long one":         {fmt.Sprint(len(long)), long, true},
		"a byte less":                      {fmt.Sprint(len(long)), long[1:], false},
		"a byte more":                      {fmt.Sprint(len(long)), long + "x", false},
		"nothing":                          {fmt.Sprint(len(long)), "", false},
		"the hash of a long one":           {hashOf([]byte(long)), long, false},
		"the length of a short one":        {fmt.Sprint(len(short)), short, false},
		"no hash":                          {"", short, false},
		"a negative length":                {"-2", short, false},
		"a length that no number has room": {strings.Repeat("9", 30), long, false},
	} {
		t.Run(name, func(t *testing.T) {
			proof := s.proofAbout(b, "POST", "/api", c.about, nil)
			if status, _, _ := s.do(t, "POST", "/api", c.body, b, "Tend-Page", proof); (status == http.StatusOK) != c.admitted {
				t.Errorf("it is %d; admitted is to be %v", status, c.admitted)
			}
		})
	}
}

// A proof that comes twice at once counts once.
func TestOfTheSameProofsAtOnceOneCounts(t *testing.T) {
	s := serve(t)
	b := s.login(t, byToken...)
	first := s.request(b)
	var admitted atomic.Int32
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if s.page.Login(first.Clone(t.Context())).Role == module.Owner {
				admitted.Add(1)
			}
		})
	}
	wg.Wait()
	if n := admitted.Load(); n != 1 {
		t.Errorf("it counts %d times", n)
	}
}

// Counts come in any order, as several windows of a browser send them: none counts twice, few are
// remembered, and one above what the refusal says is good.
func TestCountsAreRememberedWithinABound(t *testing.T) {
	var c counts
	seen := map[uint64]bool{}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20 * maxCounts {
		n := 1 + random.Uint64N(30*maxCounts)
		ok, least := c.use(n)
		if ok && seen[n] {
			t.Fatalf("%d counts twice", n)
		}
		if !ok && least < n {
			t.Fatalf("%d is refused, and more than %d is asked for", n, least)
		}
		seen[n] = seen[n] || ok
		if len(c.used) > maxCounts || !slices.IsSorted(c.used) {
			t.Fatalf("%d counts are remembered", len(c.used))
		}
	}
	_, least := c.use(c.floor)
	if ok, _ := c.use(least); ok {
		t.Errorf("%d, which was used, is good", least)
	}
	// It is good still when other windows have sent nearly as many as are remembered.
	for n := range uint64(maxCounts - 1) {
		c.use(least + 2 + n)
	}
	if ok, _ := c.use(least + 1); !ok {
		t.Errorf("%d is refused, and more than %d was asked for", least+1, least)
	}
	if ok, least := new(counts).use(0); ok || least != 0 {
		t.Errorf("0 is %v, and more than %d is asked for", ok, least)
	}
}

// Counts are kept for sessions that last, and for nobody who only sends proofs.
func TestCountsAreKeptForSessionsAlone(t *testing.T) {
	s := serve(t)
	all := s.page.sessions
	var last *browser
	for range maxSessions + 10 {
		last = s.browser(proctest.Value(all.begin(false))(t))
		if s.page.Login(s.request(last)).Role != module.Owner {
			t.Fatal("a session is not admitted")
		}
	}
	if n := len(all.counts); n != maxSessions {
		t.Errorf("counts of %d sessions are kept, of %d that there are", n, maxSessions)
	}
	strangers := []*browser{
		{&http.Cookie{Name: last.cookie.Name, Value: "AAAA"}, last.tag, last.key},
		{last.cookie, last.tag, strings.Repeat("1", 64)},
		{&http.Cookie{Name: last.cookie.Name, Value: "AAAA"}, last.tag, all.key("AAAA")}, // a session that has ended
	}
	for _, b := range strangers {
		if s.page.Login(s.request(b)).Role != module.Nobody {
			t.Fatal("a stranger is admitted")
		}
	}
	if n := len(all.counts); n != maxSessions {
		t.Errorf("after strangers came, counts of %d sessions are kept", n)
	}
	proctest.Must(t, all.end(last.cookie.Value))
	if _, kept := all.counts[all.hash(last.cookie.Value)]; kept {
		t.Error("the counts of a session that has ended are kept")
	}
}

// FuzzProof: no header but the one that was made is for a request.
func FuzzProof(f *testing.F) {
	login := pagetest.Login{Tag: "0123abcd", Key: strings.Repeat("ab", 32)}
	const path = "/tend.v1.ProcessService/List?x=1"
	r := httptest.NewRequest("POST", path, nil)
	made := login.Proof("RUN", 7, "POST", path, pagetest.Of(""), nil)
	r.Header.Set(proofHeader, made)
	p, ok := readProof(r)
	if !ok || !p.by(login.Key, r) {
		f.Fatalf("%q is refused", made)
	}
	f.Add(made)
	f.Add(strings.Replace(made, ".7.", ".07.", 1))
	f.Add("....")
	f.Add(strings.Repeat(".", 5000))
	f.Fuzz(func(t *testing.T, header string) {
		r.Header.Set(proofHeader, header)
		got, ok := readProof(r)
		if ok && got.by(login.Key, r) && got != p {
			t.Errorf("%q passes", header)
		}
	})
}
