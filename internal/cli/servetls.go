package cli

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/acme"

	"github.com/tend-run/tend/internal/server"
	"github.com/tend-run/tend/internal/server/certificates"
	"github.com/tend-run/tend/internal/server/operator"
)

const (
	// ownDomain needs no DNS, and its names never leave the machine.
	ownDomain = "tend.localhost"
	// ownPort needs no rights.
	ownPort   = 49443
	httpsPort = 443
)

// planTLS checks the flags about domains and TLS, fills in what they leave out, and returns the addresses to listen on.
func (f *serveFlags) planTLS(listen []string) (addrs []string, err error) {
	if f.TLS == certificates.Own && len(f.Domain) == 0 {
		f.Domain = []string{ownDomain}
	}
	for _, d := range f.Domain {
		name, port, err := splitDomain(d)
		if err != nil {
			return nil, usageError("--domain " + err.Error())
		}
		if err := server.CheckDomain(name); err != nil {
			return nil, usageError("--domain " + err.Error())
		}
		if port != 0 && f.TLS == "" {
			return nil, usageError(fmt.Sprintf("--domain %s has a port, which is for --tls alone: "+
				"a proxy in front has its own; leave out :%d, or add --tls own", d, port))
		}
	}
	if err := f.checkTLSFlags(listen); err != nil || f.TLS == "" {
		return nil, err
	}
	name, port, _ := splitDomain(f.Domain[0])
	if port == 0 && f.TLS == certificates.Own {
		port = ownPort
	}
	port = cmp.Or(port, httpsPort)
	if len(listen) == 0 {
		listen = []string{net.JoinHostPort("", strconv.Itoa(port))}
		if strings.HasSuffix(name, ".localhost") {
			listen = []string{net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
			// Some resolvers give ::1 first. A machine without IPv6 has no such address.
			if l, err := net.Listen("tcp", "[::1]:0"); err == nil {
				l.Close()
				listen = append(listen, net.JoinHostPort("::1", strconv.Itoa(port)))
			}
		}
	}
	for _, addr := range listen {
		resolved, err := resolve("--tls-listen", addr)
		if err != nil {
			return nil, err
		}
		addrs = append(addrs, resolved)
	}
	return addrs, nil
}

// checkTLSFlags: each flag is there with what needs it, and what it names is good.
func (f *serveFlags) checkTLSFlags(listen []string) error {
	for _, flag := range []struct {
		name, value string
		needs       string // of --tls
	}{
		{"--tls-cert", f.TLSCert, certificates.Files}, {"--tls-key", f.TLSKey, certificates.Files},
		{"--acme-dns", f.ACMEDNS, certificates.ACME}, {"--acme-directory", f.ACMEDirectory, certificates.ACME},
		{"--tls-listen", strings.Join(listen, " "), f.TLS},
	} {
		switch {
		case flag.value != "" && (flag.needs != f.TLS || f.TLS == ""):
			return usageError(fmt.Sprintf("%s needs --tls %s", flag.name, cmp.Or(flag.needs, "own, files or acme")))
		case flag.value == "" && flag.needs == f.TLS && flag.name != "--acme-directory" && flag.name != "--tls-listen" && f.TLS != "":
			return usageError(fmt.Sprintf("--tls %s needs %s", f.TLS, flag.name))
		}
	}
	if f.TLS == "" {
		return nil
	}
	if len(f.Domain) != 1 {
		return usageError(fmt.Sprintf("--tls %s needs one --domain, and %d are given", f.TLS, len(f.Domain)))
	}
	name, _, _ := splitDomain(f.Domain[0])
	switch f.TLS {
	case certificates.Files:
		if _, shared, err := readSecret(f.TLSKey); err != nil || shared != nil {
			return fmt.Errorf("--tls-key: %w", errors.Join(err, shared))
		}
		c, err := certificates.LoadPair(f.TLSCert, f.TLSKey, name)
		if err != nil {
			return err
		}
		return certificates.Expired(c, f.TLSCert, time.Now())
	case certificates.ACME:
		return f.checkACME(name)
	}
	return nil
}

func (f *serveFlags) checkACME(domain string) error {
	if strings.HasSuffix(domain, ".localhost") {
		return usageError(fmt.Sprintf("--tls acme: no ACME server issues a certificate for %s; use --tls own, or another --domain", domain))
	}
	f.ACMEDirectory = cmp.Or(f.ACMEDirectory, acme.LetsEncryptURL)
	if u, err := url.Parse(f.ACMEDirectory); err != nil || u.Scheme != "https" || u.Host == "" {
		return usageError(fmt.Sprintf("--acme-directory %s is no URL of an ACME server; it begins with https://", f.ACMEDirectory))
	}
	program, err := exec.LookPath(f.ACMEDNS)
	if err == nil {
		program, err = filepath.Abs(program)
	}
	if err != nil {
		return fmt.Errorf("--acme-dns %s: %w; name a program that sets TXT records", f.ACMEDNS, err)
	}
	f.ACMEDNS = program
	return nil
}

// splitDomain takes the port from a domain; 0: it has none.
func splitDomain(text string) (name string, port int, err error) {
	name, digits, ok := strings.Cut(text, ":")
	if !ok || strings.Contains(digits, ":") { // an address of IPv6 is no domain, and refused as one
		return text, 0, nil
	}
	n, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || n == 0 {
		return "", 0, fmt.Errorf("%.200q has no port after the colon; write DOMAIN:PORT, with 1 to 65535", text)
	}
	return name, int(n), nil
}

// operatorTLS takes the listeners of TLS, the last n, from all.
func (f *serveFlags) operatorTLS(all *[]net.Listener, n int) (domains []string, t operator.TLS, err error) {
	for _, d := range f.Domain {
		name, port, err := splitDomain(d)
		if err != nil {
			return nil, t, err
		}
		domains, t.Port = append(domains, name), port
	}
	if f.TLS == "" || n == 0 || n >= len(*all) {
		return domains, operator.TLS{}, nil
	}
	rest := len(*all) - n
	t.Mode, t.CertFile, t.KeyFile, t.Directory, t.DNSHook = f.TLS, f.TLSCert, f.TLSKey, f.ACMEDirectory, f.ACMEDNS
	*all, t.Listeners = (*all)[:rest:rest], (*all)[rest:]
	if a, ok := t.Listeners[0].Addr().(*net.TCPAddr); ok && t.Port == 0 {
		t.Port = a.Port
	}
	return domains, t, nil
}
