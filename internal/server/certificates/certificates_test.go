package certificates

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/support/proctest"
)

const domain = "tend.localhost"

// clock is one that a test sets.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func shown(t *testing.T, s *Source) *tls.Certificate {
	t.Helper()
	return proctest.Value(s.TLS().GetCertificate(&tls.ClientHelloInfo{ServerName: "api." + domain}))(t)
}

// trusts reports what a client that trusts an authority says of a certificate for a name.
func trusts(ca []byte, c *tls.Certificate, name string, at time.Time) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	leaf, err := x509.ParseCertificate(c.Certificate[0])
	if err != nil {
		return err
	}
	_, err = leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots, CurrentTime: at})
	return err
}

func TestTheOwnAuthority(t *testing.T) {
	dir, at := t.TempDir(), &clock{time.Now()}
	s := proctest.Value(Open(Config{Mode: Own, Domain: domain, Dir: dir, Now: at.Now}))(t)
	first := shown(t, s)
	for _, name := range []string{domain, "api." + domain, "3000-abc." + domain} {
		if err := trusts(s.CA(), first, name, at.now); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := trusts(s.CA(), first, "a.b."+domain, at.now); err == nil {
		t.Error("it is for a name two levels below")
	}
	again := proctest.Value(Open(Config{Mode: Own, Domain: domain, Dir: dir, Now: at.Now}))(t)
	if !bytes.Equal(again.CA(), s.CA()) {
		t.Error("a second start makes another authority")
	}
	proctest.Must(t, filepath.WalkDir(filepath.Join(dir, "tls"), func(path string, d fs.DirEntry, err error) error {
		proctest.Must(t, err)
		if mode := proctest.Value(d.Info())(t).Mode(); mode.Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, mode)
		}
		return nil
	}))
}

func TestAStolenAuthorityIsGoodForNoOtherName(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	a := proctest.Value(openAuthority(dir, domain, now))(t)
	key := proctest.Value(newKey())(t)
	for _, names := range []*x509.Certificate{
		{DNSNames: []string{"example.com"}}, {DNSNames: []string{"localhost"}}, {DNSNames: []string{"eviltend.localhost"}},
		{IPAddresses: []net.IP{net.IPv4(192, 0, 2, 1).To4()}}, {IPAddresses: []net.IP{net.ParseIP("2001:db8::1")}},
		{DNSNames: []string{"api." + domain}, IsCA: true, BasicConstraintsValid: true},
	} {
		names.SerialNumber, names.NotBefore, names.NotAfter = serial(), now.Add(-time.Hour), now.Add(time.Hour)
		names.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		der := proctest.Value(x509.CreateCertificate(rand.Reader, names, a.cert, key.Public(), a.key))(t)
		c := &tls.Certificate{Certificate: [][]byte{der}}
		if names.IsCA { // a second authority below it
			leaf := &x509.Certificate{SerialNumber: serial(), NotBefore: names.NotBefore, NotAfter: names.NotAfter, DNSNames: []string{"api." + domain}}
			below := proctest.Value(x509.ParseCertificate(der))(t)
			end := proctest.Value(x509.ParseCertificate(proctest.Value(x509.CreateCertificate(rand.Reader, leaf, below, key.Public(), key))(t)))(t)
			roots, middle := x509.NewCertPool(), x509.NewCertPool()
			roots.AddCert(a.cert)
			middle.AddCert(below)
			if _, err := end.Verify(x509.VerifyOptions{Roots: roots, Intermediates: middle}); err == nil {
				t.Error("a second authority is accepted")
			}
			continue
		}
		name := ""
		if len(names.DNSNames) > 0 {
			name = names.DNSNames[0]
		} else {
			name = "[" + names.IPAddresses[0].String() + "]"
		}
		if err := trusts(a.pem, c, name, now); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

func TestALeafIsShortAndRenewedWithoutARestart(t *testing.T) {
	at := &clock{time.Now()}
	s := proctest.Value(Open(Config{Mode: Own, Domain: domain, Dir: t.TempDir(), Now: at.Now}))(t)
	first := shown(t, s)
	if life := first.Leaf.NotAfter.Sub(first.Leaf.NotBefore); life > 8*24*time.Hour {
		t.Errorf("it is valid for %v", life)
	}
	at.now = at.now.Add(leafLifetime/2 - time.Minute)
	if shown(t, s) != first {
		t.Error("it is replaced before its half")
	}
	at.now = at.now.Add(time.Hour)
	second := shown(t, s)
	if second == first || trusts(s.CA(), second, "api."+domain, at.now) != nil {
		t.Error("it is not replaced after its half")
	}
	at.now = at.now.Add(-30 * 24 * time.Hour) // the machine's clock was wrong
	third := shown(t, s)
	if at.now.Before(third.Leaf.NotBefore) {
		t.Errorf("after the clock was set back, it is valid from %v", third.Leaf.NotBefore)
	}
}

func TestAnAuthorityThatEndsIsReplaced(t *testing.T) {
	dir, at := t.TempDir(), time.Now()
	first := proctest.Value(openAuthority(dir, domain, at))(t)
	last := proctest.Value(openAuthority(dir, domain, at.Add(caLifetime-40*24*time.Hour)))(t)
	if !bytes.Equal(first.pem, last.pem) {
		t.Error("it is replaced 40 days before its end")
	}
	later := proctest.Value(openAuthority(dir, domain, at.Add(caLifetime-20*24*time.Hour)))(t)
	if bytes.Equal(first.pem, later.pem) {
		t.Error("it is not replaced 20 days before its end")
	}
}

func TestDamagedFilesOfTheAuthorityAreNamed(t *testing.T) {
	dir := t.TempDir()
	proctest.Value(Open(Config{Mode: Own, Domain: domain, Dir: dir}))(t)
	key := filepath.Join(dir, "tls", domain, "ca-key.pem")
	proctest.Must(t, os.WriteFile(key, []byte("nothing"), 0o600))
	if _, err := Open(Config{Mode: Own, Domain: domain, Dir: dir}); err == nil || !strings.Contains(err.Error(), key) ||
		!strings.Contains(err.Error(), "--tls own") || !strings.Contains(err.Error(), "remove both") {
		t.Errorf("a key that is none: %v", err)
	}
	proctest.Must(t, os.Remove(key))
	if _, err := Open(Config{Mode: Own, Domain: domain, Dir: dir}); err == nil || !strings.Contains(err.Error(), key) {
		t.Errorf("no key: %v", err)
	}
}

// writePair writes a certificate for names, valid until then, and its key.
func writePair(t *testing.T, dir string, until time.Time, names ...string) (cert, key string) {
	t.Helper()
	k := proctest.Value(newKey())(t)
	template := &x509.Certificate{SerialNumber: serial(), NotBefore: until.Add(-90 * 24 * time.Hour), NotAfter: until, DNSNames: names}
	der := proctest.Value(x509.CreateCertificate(rand.Reader, template, template, k.Public(), k))(t)
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	proctest.Must(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	proctest.Must(t, writeKey(key, (*ecdsa.PrivateKey)(k)))
	return cert, key
}

func TestFilesAreReadAgainWhenTheyChange(t *testing.T) {
	dir, at := t.TempDir(), &clock{time.Now()}
	var log bytes.Buffer
	cert, key := writePair(t, dir, at.now.Add(24*time.Hour), domain, "*."+domain)
	s := proctest.Value(Open(Config{Mode: Files, Domain: domain, Dir: t.TempDir(), CertFile: cert, KeyFile: key, Now: at.Now,
		Log: slog.New(slog.NewTextHandler(&log, nil))}))(t)
	first := shown(t, s)
	// Half of a change: the certificate is there, the key not yet.
	old := proctest.Value(os.ReadFile(key))(t)
	writePair(t, dir, at.now.Add(48*time.Hour), domain, "*."+domain)
	fresh := proctest.Value(os.ReadFile(key))(t)
	proctest.Must(t, os.WriteFile(key, old, 0o600))
	at.now = at.now.Add(2 * look)
	if got := shown(t, s); got != first || !strings.Contains(log.String(), "are no pair") {
		t.Errorf("half of a change: %v, and the log has %q", got == first, log.String())
	}
	proctest.Must(t, os.WriteFile(key, fresh, 0o600))
	at.now = at.now.Add(2 * look)
	if got := shown(t, s); got.Leaf.NotAfter.Before(at.now.Add(40 * time.Hour)) {
		t.Errorf("after the change it is valid until %v", got.Leaf.NotAfter)
	}
	// Nobody renews it: the log says so, once.
	for range 3 {
		at.now = at.now.Add(72 * time.Hour)
		shown(t, s)
	}
	if n := strings.Count(log.String(), "no client accepts it now; renew it"); n != 1 {
		t.Errorf("the log says %d times that it has expired: %s", n, log.String())
	}
	if ca := s.CA(); ca != nil {
		t.Errorf("files have an authority: %q", ca)
	}
}

func TestFilesThatAreNoGoodAreNamed(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	cert, key := writePair(t, dir, now.Add(time.Hour), domain, "*."+domain)
	_, other := writePair(t, t.TempDir(), now.Add(time.Hour), domain)
	single, singleKey := writePair(t, t.TempDir(), now.Add(time.Hour), domain)
	for _, c := range []struct{ cert, key, want string }{
		{filepath.Join(dir, "none"), key, "--tls-cert: open"},
		{cert, filepath.Join(dir, "none"), "--tls-key: open"},
		{cert, other, "are no pair: tls: private key does not match public key"},
		{single, singleKey, "--domain tend.localhost needs one for tend.localhost and *.tend.localhost"},
	} {
		if _, err := LoadPair(c.cert, c.key, domain); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
	good := proctest.Value(LoadPair(cert, key, domain))(t)
	proctest.Must(t, Expired(good, cert, now))
	if err := Expired(good, cert, now.Add(2*time.Hour)); err == nil || !strings.Contains(err.Error(), "--tls-cert "+cert+" is valid from") {
		t.Errorf("expired: %v", err)
	}
}

// A shell that calls tend env for a daemon elsewhere trusts what it answers: for names below its domain, and for no other.
func TestAnAuthorityForMoreThanTheDomainIsNotTrusted(t *testing.T) {
	a := proctest.Value(openAuthority(t.TempDir(), domain, time.Now()))(t)
	proctest.Must(t, CheckAuthority(a.pem, domain))
	key := proctest.Value(newKey())(t)
	open := &x509.Certificate{SerialNumber: serial(), NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der := proctest.Value(x509.CreateCertificate(rand.Reader, open, open, key.Public(), key))(t)
	_, one, err := net.ParseCIDR("192.0.2.1/32")
	proctest.Must(t, err)
	_, all4, err := net.ParseCIDR("0.0.0.0/0")
	proctest.Must(t, err)
	open.PermittedDNSDomainsCritical, open.PermittedDNSDomains, open.ExcludedIPRanges = true, []string{domain}, []*net.IPNet{all4, one}
	addresses := proctest.Value(x509.CreateCertificate(rand.Reader, open, open, key.Public(), key))(t)
	for name, text := range map[string][]byte{
		"none": nil, "for another domain": proctest.Value(openAuthority(t.TempDir(), "localhost", time.Now()))(t).pem,
		"for all":       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		"for addresses": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: addresses}),
		"two":           slices.Concat(a.pem, a.pem),
	} {
		if CheckAuthority(text, domain) == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

// The operator's program may print without an end.
func TestTheEndOfAProgramsOutputIsKept(t *testing.T) {
	var text lastText
	for range 3 {
		for _, piece := range []string{strings.Repeat("a", maxHookText-1), strings.Repeat("b", 3*maxHookText), "end"} {
			if n, err := text.Write([]byte(piece)); n != len(piece) || err != nil || len(text) > maxHookText {
				t.Fatalf("%d %v, %d are kept", n, err, len(text))
			}
		}
	}
	if want := strings.Repeat("b", maxHookText-3) + "end"; string(text) != want {
		t.Errorf("%q is kept", text)
	}
}
