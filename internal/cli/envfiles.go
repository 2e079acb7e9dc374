package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	_ "embed" // the hooks
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/internal/server/operator"
)

//go:embed hooks/resolve.cjs
var nodeHook []byte

//go:embed hooks/sitecustomize.py
var pythonHook []byte

const (
	resolveTime = 500 * time.Millisecond
	checkTime   = 2 * time.Second
	maxBundle   = 16 << 20 // bytes of a list of authorities
	// madeFrom begins the lines of a bundle of ours that name its sources.
	madeFrom = "# tend env: from "
)

// bundleVariables name a file that replaces a program's list of authorities.
var bundleVariables = []string{"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO"}

// clientFiles are the files that variables name. They are the caller's, who may be on another machine than the daemon.
type clientFiles struct {
	dir    string // tend env's alone
	getenv func(string) string
}

type bundle struct {
	path  string
	alone bool // there is no other authority in it
}

// bundle writes the list of authorities that programs of this shell had until now, with the daemon's at the end.
func (c *clientFiles) bundle(ca string) (bundle, error) {
	sources := c.sources(bundleVariables...)
	if system := systemBundle(); len(sources) == 0 && system != "" {
		sources = []string{system}
	}
	path, err := c.join("bundle", sources, ca)
	return bundle{path, len(sources) == 0}, err
}

// nodeCA writes what Node.js adds to its own list.
func (c *clientFiles) nodeCA(ca string) (string, error) {
	return c.join("ca", c.sources("NODE_EXTRA_CA_CERTS"), ca)
}

// join writes one file of several. Other sources make another file: a second shell may have others.
func (c *clientFiles) join(name string, sources []string, ca string) (string, error) {
	var text bytes.Buffer
	for _, path := range sources {
		fmt.Fprintf(&text, "%s%s\n", madeFrom, path)
	}
	for _, path := range sources {
		data, err := atomicfile.Read(path, maxBundle)
		if err != nil {
			return "", fmt.Errorf("read the authorities that are trusted now: %w", err)
		}
		text.Write(data)
		text.WriteByte('\n')
	}
	text.WriteString(ca)
	sum := sha256.Sum256([]byte(strings.Join(sources, "\n")))
	return c.write(name+"-"+hex.EncodeToString(sum[:4])+".pem", text.Bytes())
}

// madeOf are the sources of a file of ours.
func madeOf(path string) (all []string) {
	data, err := atomicfile.Read(path, maxBundle)
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(data)) {
		source, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), madeFrom)
		if !ok {
			break
		}
		all = append(all, source)
	}
	return all
}

// hooks writes what makes Node.js and Python find names below localhost: a file, and a directory.
func (c *clientFiles) hooks() (node, python string, err error) {
	if node, err = c.write("resolve.cjs", nodeHook); err != nil {
		return "", "", err
	}
	file, err := c.write(filepath.Join("python", "sitecustomize.py"), pythonHook)
	return node, filepath.Dir(file), err
}

func (c *clientFiles) write(name string, data []byte) (string, error) {
	path := filepath.Join(c.dir, name)
	if strings.ContainsAny(path, " :\"") {
		return "", fmt.Errorf("%s has a space, a colon or a quote, which NODE_OPTIONS and PYTHONPATH cannot name; give another --state-dir", path)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", err
	}
	if old, err := atomicfile.Read(path, maxBundle); err == nil && bytes.Equal(old, data) {
		return path, nil
	}
	return path, atomicfile.File(path, data, 0o600)
}

// problemsOf calls the daemon as a client would, and says why one could not.
func problemsOf(ctx context.Context, f *operator.Clients, name string) []string {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	host, at := "api."+name, "api."+f.Domain
	if _, port, err := net.SplitHostPort(f.Domain); err != nil {
		at = host + ":443"
	} else if strings.HasSuffix(name, ".localhost") {
		at = net.JoinHostPort("127.0.0.1", port)
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	roots.AppendCertsFromPEM([]byte(f.CA))
	dialer := &tls.Dialer{Config: &tls.Config{ServerName: host, RootCAs: roots}}
	conn, err := dialer.DialContext(ctx, "tcp", at)
	if err == nil {
		conn.Close()
		return nil
	}
	invalid, isInvalid := errors.AsType[x509.CertificateInvalidError](err)
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	_, wrongName := errors.AsType[x509.HostnameError](err)
	_, noName := errors.AsType[*net.DNSError](err)
	switch {
	case noName:
		return []string{fmt.Sprintf("E2B_DOMAIN: %s does not resolve here: "+
			"the domain needs a DNS record of *.%s with the address of the daemon (tend serve --domain)",
			host, name)}
	case isInvalid && invalid.Reason == x509.Expired:
		return []string{fmt.Sprintf("E2B_DOMAIN: the certificate of %s has expired, or this machine's clock is wrong: no client will accept it "+
			"(tend serve --tls-cert, or --tls acme: see the daemon's log)", host)}
	case unknown:
		return []string{fmt.Sprintf("E2B_DOMAIN: the certificate of %s is of an authority that this machine does not trust: "+
			"put that authority into the files that "+
			"SSL_CERT_FILE and NODE_EXTRA_CA_CERTS name", host)}
	case wrongName:
		return []string{fmt.Sprintf("E2B_DOMAIN: the certificate is not for %s: give --domain the domain of the certificate (%v)", host, err)}
	}
	return []string{fmt.Sprintf("E2B_DOMAIN: %s cannot be reached: %v", at, err)}
}
