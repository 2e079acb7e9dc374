package envd_test

import (
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/protocol/envd"
	"github.com/tend-run/tend/internal/protocol/envd/envdfs"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/host"
	"github.com/tend-run/tend/internal/support/proctest"
)

// tokens is a server with sandboxes of the host driver: two that need their own
// tokens, one that does not, one that sleeps, and one that was destroyed.
type tokens struct {
	*server
	secret                       *protocol.Secret
	one, two, open, asleep, gone string
	oneSandbox, asleepSandbox    driver.Sandbox
}

func serveTokens(t *testing.T, token protocol.Token) *tokens {
	t.Helper()
	s := &tokens{secret: protocol.NewSecret()}
	s.server = serve(t, func(c *envd.Config) {
		d := proctest.Value(host.Open(host.Config{Dir: filepath.Join(t.TempDir(), "boxes"), Manager: c.Sandboxes.Default.Processes()}))(t)
		c.Sandboxes.Driver, c.Secret, c.Token = d, s.secret, token
		make := func(spec driver.Spec) (driver.Sandbox, string) {
			sandbox := proctest.Value(d.Create(t.Context(), spec))(t)
			info := proctest.Value(sandbox.Info(t.Context()))(t)
			return sandbox, string(info.ID)
		}
		secure := map[string]string{protocol.NoteSecure: "yes"}
		s.oneSandbox, s.one = make(driver.Spec{Notes: secure})
		_, s.two = make(driver.Spec{Notes: secure})
		_, s.open = make(driver.Spec{})
		s.asleepSandbox, s.asleep = make(driver.Spec{Notes: secure, Wake: true})
		gone, id := make(driver.Spec{Notes: secure})
		s.gone = id
		for _, err := range []error{s.asleepSandbox.Stop(t.Context()), gone.Destroy(t.Context())} {
			if err != nil {
				t.Fatal(err)
			}
		}
	})
	return s
}

func TestASandboxNeedsItsOwnToken(t *testing.T) {
	t.Parallel()
	for _, token := range []protocol.Token{"", "the server's"} {
		s := serveTokens(t, token)
		own := string(s.secret.SandboxToken(s.one))
		for _, tt := range []struct {
			name, id, shown string
			want            int
		}{
			{"its own", s.one, own, 200},
			{"none", s.one, "", 401},
			{"another's", s.one, string(s.secret.SandboxToken(s.two)), 401},
			{"the one of its ports", s.one, string(s.secret.TrafficToken(s.one)), 401},
			{"another server's", s.one, string(protocol.NewSecret().SandboxToken(s.one)), 401},
			{"its own in capitals", s.one, strings.ToUpper(own), 401},
			{"its own for another", s.two, own, 401},
			{"its own, the ID in capitals", strings.ToUpper(s.one), own, 200},
			{"the server's", s.one, "the server's", map[bool]int{true: 200, false: 401}[token.Set()]},
			{"none, for one of another protocol", s.open, "", map[bool]int{true: 401, false: 200}[token.Set()]},
			{"its own, for one of another protocol", s.open, string(s.secret.SandboxToken(s.open)), 200},
			{"its own, of one that is gone", s.gone, string(s.secret.SandboxToken(s.gone)), 502},
			{"none, of one that is gone", s.gone, "", 502},
			{"a sandbox's, for the machine", "debug_sandbox_id", own, map[bool]int{true: 401, false: 200}[token.Set()]},
		} {
			headers := []string{"E2b-Sandbox-Id: " + tt.id, "E2b-Sandbox-Port: 49983"}
			if tt.shown != "" {
				headers = append(headers, "X-Access-Token: "+tt.shown)
			}
			for path, body := range map[string]string{"/process.Process/List": "{}", "/process.Process/SendSignal": "{}", "/envs": ""} {
				method, all, want := "POST", append(headers, "Content-Type: application/json"), tt.want
				if body == "" {
					method, all = "GET", headers
				}
				if strings.HasSuffix(path, "SendSignal") && want == 200 {
					want = 501 // as the original refuses a signal for nobody
				}
				if res, text := s.do(method, path, body, all...); res.StatusCode != want {
					t.Errorf("server's token %q, %s: %s %s: %s %s; want %d", token, tt.name, method, path, res.Status, text, want)
				}
			}
		}
		// Whether it lives is no secret, and nothing is woken by the question.
		for id, want := range map[string]int{s.one: 204, s.gone: 502, s.asleep: 502} {
			if res, text := s.do("GET", "/health", "", "E2b-Sandbox-Id: "+id); res.StatusCode != want || want == 502 && !strings.Contains(text, `"message":"The sandbox was not found"`) {
				t.Errorf("health of %s: %s %s; want %d", id, res.Status, text, want)
			}
		}
	}
}

func TestOnlyTheAllowedWakeASandbox(t *testing.T) {
	t.Parallel()
	s := serveTokens(t, "")
	state := func() driver.State {
		info := proctest.Value(s.asleepSandbox.Info(t.Context()))(t)
		return info.State
	}
	id := "E2b-Sandbox-Id: " + s.asleep
	for _, headers := range [][]string{{id}, {id, "X-Access-Token: x"}, {id, "X-Access-Token: " + string(s.secret.SandboxToken(s.one))}} {
		for method, path := range map[string]string{"POST": "/init", "GET": "/files?path=/etc/hostname", "PUT": "/process.Process/List"} {
			if res, text := s.do(method, path, "", headers...); res.StatusCode < 400 || state() != driver.Stopped {
				t.Fatalf("%s %s: %s %s; it is %v", method, path, res.Status, text, state())
			}
		}
	}
	if res, text := s.do("POST", "/process.Process/List", "{}", id, "Content-Type: application/json", "X-Access-Token: "+string(s.secret.SandboxToken(s.asleep))); res.StatusCode != 200 || state() != driver.Ready {
		t.Errorf("its own token: %s %s; it is %v", res.Status, text, state())
	}
}

// Some clients name no sandbox by a fixed address, and show its token: what they ask for is never done on the machine.
func TestATokenFindsItsSandbox(t *testing.T) {
	t.Parallel()
	for _, token := range []protocol.Token{"", "tsb_the server's"} {
		s := serveTokens(t, token)
		fs := proctest.Value(s.oneSandbox.Files("", ""))(t)
		proctest.Value(fs.Write("f", strings.NewReader("of one"), nil))(t)
		for _, tt := range []struct {
			name, shown string
			want        int
		}{
			{"one's", string(s.secret.SandboxToken(s.one)), 200},
			{"that of a sandbox of another protocol", string(s.secret.SandboxToken(s.open)), 200},
			{"that of one that is gone", string(s.secret.SandboxToken(s.gone)), 502},
			{"another server's", string(protocol.NewSecret().SandboxToken(s.one)), 502},
			{"what only begins as one", "tsb_", 502},
			{"the server's", "tsb_the server's", map[bool]int{true: 200, false: 502}[token.Set()]},
		} {
			header := "X-Access-Token: " + tt.shown
			if res, text := s.do("POST", "/process.Process/List", "{}", header, "Content-Type: application/json"); res.StatusCode != tt.want {
				t.Errorf("server's token %q, %s: %s %s; want %d", token, tt.name, res.Status, text, tt.want)
			}
			if res, text := s.do("GET", "/files?path=f", "", header); (res.StatusCode == 200) != (tt.name == "one's") || res.StatusCode == 200 && text != "of one" {
				t.Errorf("server's token %q, a file of one by %s: %s %.200s", token, tt.name, res.Status, text)
			}
		}
		if res, text := s.do("POST", "/process.Process/List", "{}", "X-Access-Token: "+string(s.secret.SandboxToken(s.one)), "E2b-Sandbox-Id: "+s.two,
			"Content-Type: application/json"); res.StatusCode != 401 {
			t.Errorf("one's, with the header of two: %s %s", res.Status, text)
		}
	}
}

// TestSignedURLsFindTheirSandbox: who opens one sends no header.
func TestSignedURLsFindTheirSandbox(t *testing.T) {
	t.Parallel()
	for _, token := range []protocol.Token{"", "the server's"} {
		s := serveTokens(t, token)
		fs := proctest.Value(s.oneSandbox.Files("", ""))(t)
		proctest.Value(fs.Write("f", strings.NewReader("of one"), nil))(t)
		past, future := time.Now().Unix()-1, time.Now().Unix()+3600
		link := func(path, op, token string, expires *int64) string {
			q := url.Values{"path": {path}, "signature": {envdfs.Sign(path, op, "", token, expires)}}
			if expires != nil {
				q.Set("signature_expiration", strconv.FormatInt(*expires, 10))
			}
			return "/files?" + q.Encode()
		}
		own := string(s.secret.SandboxToken(s.one))
		wrong := 401
		for _, tt := range []struct {
			name, method, path, header string
			want                       int
		}{
			{"signed", "GET", link("f", "read", own, nil), "", 200},
			{"signed for a time", "GET", link("f", "read", own, &future), "", 200},
			{"signed, with the header", "GET", link("f", "read", own, nil), "E2b-Sandbox-Id: " + s.one, 200},
			{"signed with the token of two, which has no such file", "GET", link("f", "read", string(s.secret.SandboxToken(s.two)), nil), "", 404},
			{"a time that has passed", "GET", link("f", "read", own, &past), "", 401},
			{"another path", "GET", strings.Replace(link("f", "read", own, nil), "path=f", "path=g", 1), "", wrong},
			{"another operation", "POST", link("f", "read", own, nil), "", wrong},
			{"a signature of nobody", "GET", link("/etc/hostname", "read", "x", nil), "", wrong},
			{"a signature with no token at all", "GET", link("/etc/hostname", "read", "", nil), "", wrong},
			{"one that is gone", "GET", link("/etc/hostname", "read", string(s.secret.SandboxToken(s.gone)), nil), "", wrong},
			{"an upload to one that is gone", "POST", link("/tmp/never", "write", string(s.secret.SandboxToken(s.gone)), nil), "", wrong},
			{"signed for one, with the header of two", "GET", link("f", "read", own, nil), "E2b-Sandbox-Id: " + s.two, 401},
			{"not signed, with the header", "GET", "/files?path=f", "E2b-Sandbox-Id: " + s.one, 401},
			{"a token that is wrong beside a signature", "GET", link("f", "read", own, nil), "X-Access-Token: x", map[bool]int{true: 401, false: 404}[token.Set()]},
		} {
			var headers []string
			if tt.header != "" {
				headers = append(headers, tt.header)
			}
			res, text := s.do(tt.method, tt.path, "", headers...)
			if res.StatusCode != tt.want || tt.want == 200 && text != "of one" {
				t.Errorf("server's token %q, %s: %s %.200s; want %d", token, tt.name, res.Status, text, tt.want)
			}
		}
	}
}
