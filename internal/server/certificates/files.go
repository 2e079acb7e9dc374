package certificates

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/lib/atomicfile"
)

// look is how often the operator's files are looked at, at most.
const look = time.Second

// pair is a certificate of files.
type pair struct {
	certFile, keyFile, domain string
	log                       *slog.Logger

	mu     sync.Mutex       // guards what follows
	now    *tls.Certificate // the last good one
	looked time.Time
	seen   [2]atomicfile.Seen
	wrong  error  // what is wrong with the files
	told   string // what the log has about them, if anything is wrong
}

// openPair is no error if the files are no good: a server that starts again must serve. The person is told by its log and
// by tend status.
func openPair(certFile, keyFile, domain string, log *slog.Logger, now time.Time) *pair {
	p := &pair{certFile: certFile, keyFile: keyFile, domain: domain, log: log}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.look(now)
	return p
}

// LoadPair reads a certificate with its key, and checks that it is for a domain and all names below it. The errors name
// the option of tend serve.
func LoadPair(certFile, keyFile, domain string) (*tls.Certificate, error) {
	cert, err := atomicfile.Read(certFile, maxPEM)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert: %w", err)
	}
	key, err := atomicfile.Read(keyFile, maxPEM)
	if err != nil {
		return nil, fmt.Errorf("--tls-key: %w", err)
	}
	c, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert %s and --tls-key %s are no pair: %w", certFile, keyFile, err)
	}
	for _, name := range []string{domain, "api." + domain, "49983-id." + domain} {
		if err := c.Leaf.VerifyHostname(name); err != nil {
			return nil, fmt.Errorf("--tls-cert %s is for %v; --domain %s needs one for %[3]s and *.%[3]s", certFile, c.Leaf.DNSNames, domain)
		}
	}
	return &c, nil
}

// Expired reports as an error that a certificate of files is not valid at a time.
func Expired(c *tls.Certificate, certFile string, now time.Time) error {
	if now.After(c.Leaf.NotAfter) || now.Before(c.Leaf.NotBefore) {
		return fmt.Errorf("--tls-cert %s is valid from %s to %s: no client accepts it now; renew it", certFile,
			c.Leaf.NotBefore.UTC().Format(time.RFC3339), c.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return nil
}

func (p *pair) versions() (all [2]atomicfile.Seen) {
	for i, path := range []string{p.certFile, p.keyFile} {
		all[i], _ = atomicfile.Look(path) // a file that is gone differs from any
	}
	return all
}

// certificate implements keeper. While new files are no good pair, as between the writing of both, the last good one stays.
func (p *pair) certificate(now time.Time) (*tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if since := now.Sub(p.looked); since >= look || since < 0 {
		p.look(now)
	}
	if p.now == nil {
		return nil, p.wrong
	}
	return p.now, nil
}

// look reads the files if they have changed, and logs once what is wrong.
func (p *pair) look(now time.Time) {
	p.looked = now
	if seen := p.versions(); !seen[0].Same(p.seen[0]) || !seen[1].Same(p.seen[1]) || p.now == nil {
		p.seen = seen
		var c *tls.Certificate
		if c, p.wrong = LoadPair(p.certFile, p.keyFile, p.domain); p.wrong == nil {
			p.now = c
		}
	}
	err := p.wrong
	if err == nil {
		err = Expired(p.now, p.certFile, now)
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != p.told && text != "" {
		p.log.Error("certificate", slog.String("err", text))
	}
	p.told = text
}
