package certificates

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"time"
)

// The ways to get a certificate.
const (
	Own   = "own"
	Files = "files"
	ACME  = "acme"
)

// Config of a source. Mode, Domain and Dir are required.
type Config struct {
	Mode string
	// Domain in lower case, without a port.
	Domain string
	// Dir is the state directory. The files are below tls/Domain in it.
	Dir string
	// CertFile and KeyFile are for Files: PEM, the certificate with its chain.
	CertFile, KeyFile string
	// Directory is the URL of the ACME server, and DNSHook the program that sets TXT records: for ACME.
	Directory, DNSHook string

	Log    *slog.Logger     // nil: nothing is logged
	Now    func() time.Time // nil: time.Now
	Client *http.Client     // to the ACME server; nil: one that trusts the system's authorities
}

// keeper is one way to get a certificate. certificate is called in each handshake, concurrently.
type keeper interface {
	certificate(now time.Time) (*tls.Certificate, error)
}

// Source has the certificate of this moment.
type Source struct {
	cfg  Config
	from keeper
	ca   []byte
}

// Open reads what is there, and makes an own authority if there is none.
func Open(c Config) (*Source, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	dir := filepath.Join(c.Dir, "tls", c.Domain)
	s := &Source{cfg: c}
	var err error
	switch c.Mode {
	case Own:
		var a *authority
		if a, err = openAuthority(dir, c.Domain, c.Now()); err == nil {
			s.from, s.ca = a, a.pem
		}
	case Files:
		s.from = openPair(c.CertFile, c.KeyFile, c.Domain, c.Log, c.Now())
	case ACME:
		s.from, err = openIssued(dir, &s.cfg)
	default:
		err = fmt.Errorf("certificates: there is no way %q", c.Mode)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// CA is the own authority's certificate as PEM, which clients must trust; nil: they trust the one that there is already.
func (s *Source) CA() []byte { return s.ca }

// Name implements module.Part.
func (s *Source) Name() string { return "tls" }

// Run implements module.Runner.
func (s *Source) Run(ctx context.Context) error {
	if i, ok := s.from.(*issued); ok {
		i.run(ctx)
	}
	return nil
}

// Status implements module.Reporter.
func (s *Source) Status() map[string]string {
	facts := map[string]string{"tls": s.cfg.Mode, "domain": s.cfg.Domain}
	if c, err := s.from.certificate(s.cfg.Now()); err != nil {
		facts["certificate"] = err.Error()
	} else {
		facts["certificate"] = "until " + c.Leaf.NotAfter.UTC().Format(time.RFC3339)
	}
	return facts
}

// TLS is the server's configuration: TLS 1.2 or newer, HTTP/2 and HTTP/1.1. Every handshake gets the same
// certificate, whatever name it asks for: the server answers a wrong name in words.
func (s *Source) TLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return s.from.certificate(s.cfg.Now())
		},
	}
}

var errNone = errors.New("there is no certificate yet")
