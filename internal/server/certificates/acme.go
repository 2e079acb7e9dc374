package certificates

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/acme"

	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/internal/lib/backoff"
)

const (
	hookTime  = 10 * time.Minute // of one call of the program
	orderTime = 30 * time.Minute // of a whole order
	// firstRetry and lastRetry bound the pause after an order that failed: Let's Encrypt allows five in an hour.
	firstRetry, lastRetry = 5 * time.Minute, 6 * time.Hour
	maxHookText           = 2 << 10 // bytes of the program's output that an error shows
)

// issued is the certificate of an ACME server.
type issued struct {
	dir string
	cfg *Config

	mu   sync.Mutex
	now  *tls.Certificate // guarded by mu
	last error            // of the last order; guarded by mu
}

func openIssued(dir string, c *Config) (*issued, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	i := &issued{dir: dir, cfg: c}
	if cert, err := i.load(); err == nil {
		i.now = cert
	} else if !errors.Is(err, os.ErrNotExist) {
		c.Log.Warn("stored certificate not used", slog.Any("err", err))
	}
	return i, nil
}

func (i *issued) path(name string) string { return filepath.Join(i.dir, name) }

// load reads what was issued before. Certificate and key are in one file, so that both always fit.
func (i *issued) load() (*tls.Certificate, error) {
	text, err := atomicfile.Read(i.path("certificate.pem"), maxPEM)
	if err != nil {
		return nil, err
	}
	c, err := tls.X509KeyPair(text, text)
	if err != nil {
		return nil, err
	}
	return &c, nil
}

// certificate implements keeper.
func (i *issued) certificate(time.Time) (*tls.Certificate, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.now != nil:
		return i.now, nil
	case i.last != nil:
		return nil, fmt.Errorf("%w: %w", errNone, i.last)
	}
	return nil, fmt.Errorf("%w: it is being ordered", errNone)
}

// due is when the next order is: at once without a certificate.
func (i *issued) due(now time.Time) time.Duration {
	c, err := i.certificate(now)
	if err != nil {
		return 0
	}
	third := c.Leaf.NotAfter.Sub(c.Leaf.NotBefore) / 3
	return max(0, c.Leaf.NotAfter.Add(-third).Sub(now))
}

// run orders certificates until ctx ends.
func (i *issued) run(ctx context.Context) {
	pause := firstRetry
	// A machine that slept, or whose clock was set, is noticed within an hour.
	for backoff.Wait(ctx, min(i.due(i.cfg.Now()), time.Hour)) {
		if i.due(i.cfg.Now()) > 0 {
			continue
		}
		err := i.renew(ctx)
		i.mu.Lock()
		i.last = err
		i.mu.Unlock()
		if err == nil {
			i.cfg.Log.Info("certificate issued", slog.String("domain", i.cfg.Domain))
			pause = firstRetry
			continue
		}
		if ctx.Err() != nil {
			return
		}
		i.cfg.Log.Error("certificate not issued", slog.String("domain", i.cfg.Domain), slog.Any("err", err), slog.Duration("again_in", pause))
		if !backoff.Wait(ctx, pause) {
			return
		}
		pause = min(2*pause, lastRetry)
	}
}

func (i *issued) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, orderTime)
	defer cancel()
	client, err := i.account(ctx)
	if err != nil {
		return fmt.Errorf("--acme-directory %s: %w", i.cfg.Directory, err)
	}
	names := []string{i.cfg.Domain, "*." + i.cfg.Domain}
	order, err := client.AuthorizeOrder(ctx, acme.DomainIDs(names...))
	if err != nil {
		return fmt.Errorf("order: %w", err)
	}
	// One after the other: both records have the same name.
	for _, url := range order.AuthzURLs {
		if err := i.prove(ctx, client, url); err != nil {
			return err
		}
	}
	if order, err = client.WaitOrder(ctx, order.URI); err != nil {
		return fmt.Errorf("order: %w", err)
	}
	key, err := newKey()
	if err != nil {
		return err
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{DNSNames: names}, key)
	if err != nil {
		return err
	}
	chain, _, err := client.CreateCertFromOrder(ctx, order, csr, true)
	if err != nil {
		return fmt.Errorf("finalize the order: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	for _, one := range chain {
		_ = pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: one}) // a Buffer takes everything
	}
	_ = pem.Encode(&text, &pem.Block{Type: "PRIVATE KEY", Bytes: der})
	if err := atomicfile.Synced(i.path("certificate.pem"), text.Bytes(), 0o600); err != nil {
		return err
	}
	c, err := i.load()
	if err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.now = c
	return nil
}

// account registers at the ACME server, with the key that is kept.
func (i *issued) account(ctx context.Context) (*acme.Client, error) {
	key, err := i.accountKey()
	if err != nil {
		return nil, err
	}
	client := &acme.Client{Key: key, DirectoryURL: i.cfg.Directory, HTTPClient: i.cfg.Client, UserAgent: "tend"}
	_, err = client.Register(ctx, new(acme.Account), acme.AcceptTOS)
	if errors.Is(err, acme.ErrAccountAlreadyExists) {
		err = nil
	}
	return client, err
}

func (i *issued) accountKey() (crypto.Signer, error) {
	path := i.path("account-key.pem")
	text, err := atomicfile.Read(path, maxPEM)
	if errors.Is(err, os.ErrNotExist) {
		key, err := newKey()
		if err != nil {
			return nil, err
		}
		return key, writeKey(path, key)
	}
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s has no key; remove it, and another account is made", path)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	signer, ok := key.(crypto.Signer)
	if err != nil || !ok {
		return nil, fmt.Errorf("%s has no key that signs; remove it, and another account is made", path)
	}
	return signer, nil
}

// prove shows the ACME server that the domain is the operator's.
func (i *issued) prove(ctx context.Context, client *acme.Client, url string) (err error) {
	auth, err := client.GetAuthorization(ctx, url)
	if err != nil {
		return fmt.Errorf("authorization: %w", err)
	}
	if auth.Status == acme.StatusValid {
		return nil
	}
	var challenge *acme.Challenge
	for _, c := range auth.Challenges {
		if c.Type == "dns-01" {
			challenge = c
		}
	}
	if challenge == nil {
		return fmt.Errorf("--acme-directory %s offers no DNS-01 for %s, which a wildcard needs", i.cfg.Directory, auth.Identifier.Value)
	}
	value, err := client.DNS01ChallengeRecord(challenge.Token)
	if err != nil {
		return err
	}
	name := "_acme-challenge." + auth.Identifier.Value
	defer func() {
		// Also when ctx has ended: the record would stay.
		if e := i.hook(context.WithoutCancel(ctx), "cleanup", name, value); e != nil {
			i.cfg.Log.Warn("TXT record not removed", slog.Any("err", e))
		}
	}()
	if err := i.hook(ctx, "present", name, value); err != nil {
		return err
	}
	if _, err := client.Accept(ctx, challenge); err != nil {
		return fmt.Errorf("challenge for %s: %w", auth.Identifier.Value, err)
	}
	if _, err := client.WaitAuthorization(ctx, auth.URI); err != nil {
		return fmt.Errorf("the ACME server does not see the TXT record of %s, which --acme-dns %s has set: %w", name, i.cfg.DNSHook, err)
	}
	return nil
}

// hook calls the operator's program.
func (i *issued) hook(ctx context.Context, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, hookTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, i.cfg.DNSHook, args...)
	cmd.WaitDelay = time.Second // a child of it may hold its output
	var out lastText
	cmd.Stdout, cmd.Stderr = &out, &out // one writer: os/exec writes to it from one goroutine
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("--acme-dns %s %s: %w: %s", i.cfg.DNSHook, strings.Join(args[:2], " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// lastText keeps the end of what is written to it.
type lastText []byte

func (t *lastText) Write(p []byte) (int, error) {
	*t = append(*t, p[max(0, len(p)-maxHookText):]...)
	*t = slices.Delete(*t, 0, max(0, len(*t)-maxHookText))
	return len(p), nil
}
