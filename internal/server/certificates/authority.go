package certificates

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/lib/atomicfile"
)

const (
	caLifetime   = 10 * 365 * 24 * time.Hour
	leafLifetime = 7 * 24 * time.Hour
	// skew is how far the clock of a client may be behind.
	skew = time.Hour
	// maxPEM bounds each file that is read, in bytes.
	maxPEM = 1 << 20
)

// authority makes certificates for one domain.
type authority struct {
	domain string
	cert   *x509.Certificate
	key    crypto.Signer
	pem    []byte

	mu   sync.Mutex
	leaf *tls.Certificate // guarded by mu
}

// openAuthority reads the authority of a directory, or makes it. One that ends within a month is replaced.
func openAuthority(dir, domain string, now time.Time) (*authority, error) {
	certFile, keyFile := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "ca-key.pem")
	text, err := atomicfile.Read(certFile, maxPEM)
	if errors.Is(err, os.ErrNotExist) {
		return newAuthority(dir, domain, now)
	}
	if err != nil {
		return nil, fmt.Errorf("--tls own: %w", err)
	}
	keyText, err := atomicfile.Read(keyFile, maxPEM)
	if err != nil {
		return nil, fmt.Errorf("--tls own: %w; to get a new authority, which clients must trust anew, remove %s", err, certFile)
	}
	pair, err := tls.X509KeyPair(text, keyText)
	if err != nil {
		return nil, fmt.Errorf("--tls own: %s and %s: %w; to get a new authority, which clients must trust anew, remove both",
			certFile, keyFile, err)
	}
	if now.After(pair.Leaf.NotAfter.AddDate(0, -1, 0)) {
		return newAuthority(dir, domain, now)
	}
	return &authority{domain: domain, cert: pair.Leaf, key: pair.PrivateKey.(crypto.Signer), pem: text}, nil
}

func newAuthority(dir, domain string, now time.Time) (*authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	host, _ := os.Hostname() // it only tells authorities apart
	_, all4, _ := net.ParseCIDR("0.0.0.0/0")
	_, all6, _ := net.ParseCIDR("::/0")
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "tend on " + host + " for " + domain, Organization: []string{"tend"}},
		NotBefore: now.Add(-skew), NotAfter: now.Add(caLifetime),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		// A stolen key is good for nothing else.
		PermittedDNSDomainsCritical: true, PermittedDNSDomains: []string{domain}, ExcludedIPRanges: []*net.IPNet{all4, all6},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	a := &authority{domain: domain, cert: cert, key: key, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := writeKey(filepath.Join(dir, "ca-key.pem"), key); err != nil {
		return nil, err
	}
	return a, atomicfile.Synced(filepath.Join(dir, "ca.pem"), a.pem, 0o600)
}

// CheckAuthority reports as an error that PEM from a daemon is anything but one authority which can speak for a domain
// alone. A client that trusts it risks nothing else.
func CheckAuthority(text []byte, domain string) error {
	block, rest := pem.Decode(text)
	if block == nil || len(bytes.TrimSpace(rest)) > 0 {
		return errors.New("the daemon's authority is not one certificate")
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return fmt.Errorf("the daemon's authority: %w", err)
	}
	noAddress := func(bits int) bool {
		return slices.ContainsFunc(c.ExcludedIPRanges, func(r *net.IPNet) bool {
			ones, all := r.Mask.Size()
			return ones == 0 && all == bits
		})
	}
	if !c.IsCA || !c.PermittedDNSDomainsCritical || !slices.Equal(c.PermittedDNSDomains, []string{domain}) ||
		!noAddress(32) || !noAddress(128) {
		return fmt.Errorf("the daemon's authority could speak for more than %s, so it is not trusted", domain)
	}
	return nil
}

// certificate implements keeper.
func (a *authority) certificate(now time.Time) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.leaf != nil && now.Before(a.leaf.Leaf.NotAfter.Add(-leafLifetime/2)) && now.After(a.leaf.Leaf.NotBefore) {
		return a.leaf, nil
	}
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: a.domain}, DNSNames: []string{a.domain, "*." + a.domain},
		NotBefore: now.Add(-skew), NotAfter: now.Add(leafLifetime),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	a.leaf = &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
	return a.leaf, nil
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

func serial() *big.Int {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // it never fails
	b[0] &= 0x7f
	return new(big.Int).SetBytes(b)
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return atomicfile.Synced(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600)
}
