package cli

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/server/certificates"
	"github.com/tend-run/tend/internal/server/operator"
	"github.com/tend-run/tend/internal/support/proctest"
)

// tend env calls the daemon as a client would, and says of what stands in the way which option or variable it is about.
func TestWhatStandsInAClientsWayIsNamed(t *testing.T) {
	t.Parallel()
	const name = "tend.localhost"
	// serve shows the certificate of a domain, as it was at a time, and returns the port and the authority.
	serve := func(domain string, at time.Time) (port int, ca string) {
		s := proctest.Value(certificates.Open(certificates.Config{Mode: certificates.Own, Domain: domain, Dir: t.TempDir(),
			Now: func() time.Time { return at }}))(t)
		l := proctest.Value(tls.Listen("tcp", "127.0.0.1:0", s.TLS()))(t)
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_ = c.(*tls.Conn).Handshake() // the client says why it does not go on
				c.Close()
			}
		}()
		return l.Addr().(*net.TCPAddr).Port, string(s.CA())
	}
	good, ca := serve(name, time.Now())
	old, oldCA := serve(name, time.Now().AddDate(0, -1, 0))
	other, otherCA := serve("other.localhost", time.Now())
	closed := proctest.FreePort(t)
	for what, c := range map[string]struct {
		domain   string
		port     int
		ca, want string
	}{
		"nothing":              {name, good, ca, ""},
		"an authority":         {name, good, "", "E2B_DOMAIN: the certificate of api.tend.localhost is of an authority that this machine does not trust: put that authority into the files that SSL_CERT_FILE and NODE_EXTRA_CA_CERTS name"},
		"the time":             {name, old, oldCA, "E2B_DOMAIN: the certificate of api.tend.localhost has expired, or this machine's clock is wrong"},
		"the name":             {name, other, otherCA, "E2B_DOMAIN: the certificate is not for api.tend.localhost: give --domain the domain of the certificate"},
		"a closed port":        {name, closed, ca, "E2B_DOMAIN: 127.0.0.1:" + fmt.Sprint(closed) + " cannot be reached"},
		"a name without a DNS": {"tend.invalid", good, ca, "E2B_DOMAIN: api.tend.invalid does not resolve here: the domain needs a DNS record of *.tend.invalid"},
	} {
		got := strings.Join(problemsOf(t.Context(), &operator.Clients{Domain: fmt.Sprintf("%s:%d", c.domain, c.port), CA: c.ca}, c.domain), "\n")
		if !strings.Contains(got, c.want) || (c.want == "") != (got == "") {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
}

// What a daemon answers becomes lines of a shell and names of files.
func TestAnAnswerOfTheDaemonIsNoCommand(t *testing.T) {
	t.Parallel()
	if got, want := quoted("a'b $(x)"), `'a'\''b $(x)'`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	files := clientFiles{dir: filepath.Join(t.TempDir(), "with space"), getenv: func(string) string { return "" }}
	if _, _, err := files.hooks(); err == nil || !strings.Contains(err.Error(), "--state-dir") {
		t.Errorf("a path with a space: %v", err)
	}
}

// A shell may have authorities of its own, which stay, in files of their own for each set.
func TestAuthoritiesOfTheShellStay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	company := filepath.Join(dir, "company.pem")
	proctest.Must(t, os.WriteFile(company, []byte("# company"), 0o600))
	env := map[string]string{}
	files := clientFiles{dir: filepath.Join(dir, "env"), getenv: func(name string) string { return env[name] }}
	plain := proctest.Value(files.nodeCA("CA\n"))(t)
	env["NODE_EXTRA_CA_CERTS"] = company
	first := proctest.Value(files.nodeCA("CA\n"))(t)
	env["NODE_EXTRA_CA_CERTS"] = first
	second := proctest.Value(files.nodeCA("CB\n"))(t)
	text := string(proctest.Value(os.ReadFile(second))(t))
	if first != second || plain == first || !strings.Contains(text, "# company\n") || !strings.HasSuffix(text, "CB\n") || strings.Contains(text, "CA\n") {
		t.Errorf("%s, %s, %s has %q", plain, first, second, text)
	}
	if text := string(proctest.Value(os.ReadFile(plain))(t)); text != "CA\n" {
		t.Errorf("another shell has %q", text)
	}
}
