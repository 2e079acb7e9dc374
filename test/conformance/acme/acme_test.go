//go:build linux

package acme

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testbin"
	"github.com/tend-run/tend/internal/support/testdaemon"
)

const (
	pebble = "github.com/letsencrypt/pebble/v2/cmd/pebble@v2.10.3"
	dns    = "github.com/letsencrypt/pebble/v2/cmd/pebble-challtestsrv@v2.10.3"
	domain = "sandbox.example.com"
	// lifetime of a certificate, seconds: the daemon renews it after two thirds.
	lifetime = 20
	// asHook makes this program the operator's.
	asHook = "acme-hook"
)

var bin string

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == asHook {
		if err := hook(os.Args[2], os.Args[3:]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	os.Exit(testbin.Main(func(dir string) int {
		bin = testbin.Released.Tend(dir)
		return m.Run()
	}, testbin.Released))
}

// hook sets or clears a TXT record, as the operator's program does at a provider.
func hook(dns string, args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("the arguments are %q", args)
	}
	path := map[string]string{"present": "/set-txt", "cleanup": "/clear-txt"}[args[0]]
	body, err := json.Marshal(map[string]string{"host": args[1] + ".", "value": args[2]})
	if err != nil {
		return err
	}
	res, err := http.Post(dns+path, "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, res.Status)
	}
	return nil
}

// ca is a running pebble.
type ca struct {
	directory, management, records string
	cert                           string // the file of the certificate of its own HTTPS
	client                         *http.Client
}

func start(t *testing.T) *ca {
	t.Helper()
	dir := t.TempDir()
	for _, module := range []string{pebble, dns} {
		build := exec.CommandContext(t.Context(), "go", "install", module)
		build.Env, build.Dir = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=-mod=mod", "CGO_ENABLED=0"), dir
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", module, err, out)
		}
	}
	address := func() string { return fmt.Sprintf("127.0.0.1:%d", proctest.FreePort(t)) }
	api, management, records, names := address(), address(), address(), address()
	c := &ca{directory: "https://" + api + "/dir", management: "https://" + management, records: "http://" + records,
		cert: filepath.Join(dir, "cert.pem")}
	keyFile := filepath.Join(dir, "key.pem")
	c.client = selfSigned(t, c.cert, keyFile)
	config := filepath.Join(dir, "config.json")
	proctest.Must(t, os.WriteFile(config, proctest.Value(json.Marshal(map[string]any{"pebble": map[string]any{
		"listenAddress": api, "managementListenAddress": management, "certificate": c.cert, "privateKey": keyFile, "httpPort": 1, "tlsPort": 1,
		"retryAfter": map[string]int{"authz": 1, "order": 1}, "keyAlgorithm": "ecdsa",
		"profiles": map[string]any{"default": map[string]any{"description": "short", "validityPeriod": lifetime}},
	}}))(t), 0o600))
	run(t, filepath.Join(dir, "pebble-challtestsrv"), "-dnsserver", names, "-management", records, "-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", "")
	run(t, filepath.Join(dir, "pebble"), "-config", config, "-dnsserver", names)
	proctest.Eventually(t, "pebble serves", func() bool {
		res, err := c.client.Get(c.directory)
		if err == nil {
			res.Body.Close()
		}
		return err == nil
	})
	return c
}

// run runs a program until the test ends.
func run(t *testing.T, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "PEBBLE_VA_NOSLEEP=1")
	proctest.Must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	})
}

// selfSigned writes a certificate for 127.0.0.1, and returns a client that trusts it.
func selfSigned(t *testing.T, certFile, keyFile string) *http.Client {
	t.Helper()
	key := proctest.Value(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	cert := proctest.Value(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))(t)
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})
	proctest.Must(t, os.WriteFile(certFile, text, 0o600))
	proctest.Must(t, os.WriteFile(keyFile,
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: proctest.Value(x509.MarshalPKCS8PrivateKey(key))(t)}), 0o600))
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
}

// serve starts a daemon with a program for TXT records, and returns its address of TLS.
func (c *ca) serve(t *testing.T, program string) (*testdaemon.Daemon, string) {
	t.Helper()
	dir := proctest.Value(os.MkdirTemp("", "tend-acme-"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	file := filepath.Join(dir, "hook")
	proctest.Must(t, os.WriteFile(file, []byte("#!/bin/sh\necho \"$@\" >> "+dir+"/calls\n"+program), 0o700))
	port := proctest.FreePort(t)
	address := fmt.Sprintf("127.0.0.1:%d", port)
	return testdaemon.Serve(t, testdaemon.Config{Command: []string{bin}, Dir: dir,
		Env: append(os.Environ(), "SSL_CERT_FILE="+c.cert),
		Flags: []string{"--tls", "acme", "--domain", fmt.Sprintf("%s:%d", domain, port), "--tls-listen", address, "--acme-dns", file,
			"--acme-directory", c.directory}}), address
}

// shown is the certificate that the daemon shows for a name; nil: none yet.
func shown(address, name string) (chain []*x509.Certificate) {
	conn, err := tls.Dial("tcp", address, &tls.Config{ServerName: name, InsecureSkipVerify: true})
	if err != nil {
		return nil
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates
}

func TestACertificateIsIssuedAndRenewed(t *testing.T) {
	c := start(t)
	d, address := c.serve(t, "exec "+proctest.Value(os.Executable())(t)+" "+asHook+" "+c.records+" \"$@\"\n")
	var first []*x509.Certificate
	proctest.Eventually(t, "there is a certificate", func() bool { first = shown(address, "api."+domain); return first != nil })
	if want := []string{domain, "*." + domain}; !slices.Equal(slices.Sorted(slices.Values(first[0].DNSNames)), slices.Sorted(slices.Values(want))) {
		t.Errorf("it is for %v", first[0].DNSNames)
	}
	// A client that trusts this authority alone.
	roots := x509.NewCertPool()
	res := proctest.Value(c.client.Get(c.management + "/roots/0"))(t)
	roots.AppendCertsFromPEM(proctest.Value(io.ReadAll(res.Body))(t))
	res.Body.Close()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		}}}
	ask := func() {
		t.Helper()
		res := proctest.Value(client.Get("https://api." + domain + "/-/healthz"))(t)
		res.Body.Close()
		if res.StatusCode != http.StatusOK {
			t.Errorf("it answers %s", res.Status)
		}
	}
	ask()
	roles := d.Roles()
	proctest.Eventually(t, "it is renewed", func() bool {
		next := shown(address, "3000-any."+domain)
		return next != nil && next[0].SerialNumber.Cmp(first[0].SerialNumber) != 0
	})
	ask() // on the connection that was opened before
	if now := d.Roles(); now[testdaemon.Server] != roles[testdaemon.Server] {
		t.Errorf("the server was pid %d, and is %d", roles[testdaemon.Server], now[testdaemon.Server])
	}
	// A server that starts again shows what was issued, though the ACME server may be away.
	before := shown(address, domain)
	proctest.Must(t, d.Replace(t.Context(), testdaemon.Server))
	proctest.Eventually(t, "the next server shows a certificate", func() bool { return shown(address, domain) != nil })
	if after := shown(address, domain); after[0].NotBefore.Before(before[0].NotBefore) {
		t.Errorf("the next server shows one of %v, the server before had one of %v", after[0].NotBefore, before[0].NotBefore)
	}
	for _, name := range []string{"account-key.pem", "certificate.pem"} {
		path := filepath.Join(d.StateDir(), "tls", domain, name)
		if mode := proctest.Value(os.Stat(path))(t).Mode().Perm(); mode != 0o600 {
			t.Errorf("%s has mode %o", path, mode)
		}
	}
	calls := string(proctest.Value(os.ReadFile(filepath.Join(d.Dir(), "calls")))(t))
	if p, c := strings.Count(calls, "present _acme-challenge."+domain+" "), strings.Count(calls, "cleanup _acme-challenge."+domain+" "); p < 2 || c < p-1 {
		t.Errorf("records were set %d times and removed %d times:\n%s", p, c, calls)
	}
}

func TestAProgramThatFailsIsNamed(t *testing.T) {
	c := start(t)
	for name, test := range map[string]struct{ program, want string }{
		"it ends with 1":    {"echo the provider is away; exit 1\n", "present _acme-challenge." + domain + ": exit status 1: the provider is away"},
		"it sets no record": {"exit 0\n", "does not see the TXT record of _acme-challenge." + domain},
	} {
		t.Run(name, func(t *testing.T) {
			d, address := c.serve(t, test.program)
			proctest.Eventually(t, "the log says so", func() bool { return strings.Contains(d.Log(), test.want) })
			if !strings.Contains(d.Log(), "--acme-dns ") {
				t.Errorf("the log does not name the option:\n%s", d.Log())
			}
			if got := shown(address, "api."+domain); got != nil {
				t.Errorf("it shows a certificate for %v", got[0].DNSNames)
			}
			if code, text := d.Ask(t, "GET", "/-/healthz", ""); code != http.StatusOK {
				t.Errorf("without TLS: %d %s", code, text)
			}
		})
	}
}
