package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tend-run/tend/internal/server"
	"github.com/tend-run/tend/internal/server/certificates"
	"github.com/tend-run/tend/internal/server/operator"
)

// envCmd is the part of the grammar about clients of other protocols.
type envCmd struct {
	E2B       envE2BCmd       `cmd:"" name:"e2b" help:"Print the variables for E2B's SDKs and command line, for a shell: eval \"$(tend env e2b)\"."`
	LangSmith envLangSmithCmd `cmd:"" name:"langsmith" help:"Print the variables for LangSmith's SDKs, for a shell: eval \"$(tend env langsmith)\"."`
}

// anyKey is what E2B's SDKs send to a daemon without a token: they do not start without a key of this form.
var anyKey = "e2b_" + strings.Repeat("0", 40)

type envE2BCmd struct {
	Plain bool `help:"Print the URL of the daemon without TLS, though it has a domain with TLS. E2B's SDKs will drop these variables."`
}

func (c *envE2BCmd) Ask(ctx context.Context, inv *invocation, d *daemon) error {
	facts, err := clientsOf(ctx, inv, d)
	if err != nil {
		return err
	}
	vars := &variables{inv: inv}
	if facts.Domain == "" || c.Plain {
		base, err := plainURL(facts, d)
		if err != nil {
			return err
		}
		vars.set("E2B_API_URL", base, "where sandboxes are created")
		vars.set("E2B_SANDBOX_URL", base, "where sandboxes are used")
		vars.set("E2B_VOLUME_API_URL", base, "where files of volumes are")
		vars.set("E2B_API_KEY", keyOr(facts, facts.E2BKey, anyKey), "the key of this daemon")
		vars.unset("E2B_DOMAIN", "E2B_DEBUG")
		if facts.Domain == "" {
			inv.note("this daemon has no domain with TLS, so these are variables that E2B's SDKs will drop; start it with: tend serve --tls own")
		}
		return vars.print()
	}
	vars.set("E2B_DOMAIN", facts.Domain, "the daemon in place of e2b.app")
	vars.set("E2B_API_KEY", keyOr(facts, facts.E2BKey, anyKey), "the key of this daemon")
	vars.unset("E2B_API_URL", "E2B_SANDBOX_URL", "E2B_VOLUME_API_URL", "E2B_DEBUG")
	if err := vars.trust(ctx, facts, d); err != nil {
		return err
	}
	return vars.print()
}

type envLangSmithCmd struct{}

func (c *envLangSmithCmd) Ask(ctx context.Context, inv *invocation, d *daemon) error {
	facts, err := clientsOf(ctx, inv, d)
	if err != nil {
		return err
	}
	vars := &variables{inv: inv}
	base, err := plainURL(facts, d)
	// LangSmith's SDKs use one URL, and no names of sandboxes: on this machine nothing is won by TLS.
	byTLS := facts.Domain != "" && (err != nil || !onThisMachine(base))
	if byTLS {
		base, err = "https://api."+facts.Domain, nil
	}
	if err != nil {
		return err
	}
	vars.set("LANGSMITH_ENDPOINT", base, "the daemon in place of LangSmith")
	vars.set("LANGSMITH_API_KEY", keyOr(facts, facts.Token, "tend"), "the key of this daemon")
	if byTLS {
		if err := vars.trust(ctx, facts, d); err != nil {
			return err
		}
	}
	return vars.print()
}

// keyOr is the key of a daemon, or anything if it needs none.
func keyOr(f *operator.Clients, key, anything string) string {
	if f.Locked {
		return key
	}
	return anything
}

// clientsOf asks the daemon what its clients need to know.
func clientsOf(ctx context.Context, inv *invocation, d *daemon) (*operator.Clients, error) {
	client, at := d.plainHTTP(operator.ClientsPath)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, err
	}
	if inv.flags.Token != "" {
		req.Header.Set("Authorization", "Bearer "+inv.flags.Token)
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		return nil, err
	}
	facts := new(operator.Clients)
	switch {
	case res.StatusCode == http.StatusNotFound:
		return nil, fmt.Errorf("the daemon is older than this command; replace it with: tend upgrade")
	case res.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("the daemon answers %s: %s", res.Status, strings.TrimSpace(string(text)))
	}
	if err := json.Unmarshal(text, facts); err != nil || facts.Domain == "" {
		return facts, err
	}
	// It becomes the name of a directory.
	name, _, err := splitDomain(facts.Domain)
	if err == nil {
		err = server.CheckDomain(name)
	}
	if err == nil && facts.CA != "" {
		err = certificates.CheckAuthority([]byte(facts.CA), name)
	}
	return facts, err
}

// plainURL is where clients on this machine reach the daemon without TLS.
func plainURL(f *operator.Clients, d *daemon) (string, error) {
	base := f.URL
	if !d.local { // the daemon may know another name of itself
		base = strings.TrimSuffix(d.url, "/")
	}
	if strings.HasPrefix(base, "unix:") {
		return "", fmt.Errorf("the daemon listens on its socket alone, which these SDKs cannot use; " +
			"start it with --tls own, or --listen 127.0.0.1:49983")
	}
	return base, nil
}

// onThisMachine reports whether a URL is one of a loopback address.
func onThisMachine(base string) bool {
	u, err := url.Parse(base)
	if err != nil {
		return false
	}
	a, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() == "localhost" || err == nil && a.Unmap().IsLoopback()
}

// variables are what a shell is to set.
type variables struct {
	inv   *invocation
	names []string // in order
	value map[string]string
	why   map[string]string
	gone  []string
}

func (v *variables) set(name, value, why string) {
	if v.value == nil {
		v.value, v.why = map[string]string{}, map[string]string{}
	}
	v.names = append(v.names, name)
	v.value[name], v.why[name] = value, why
}

func (v *variables) unset(names ...string) { v.gone = append(v.gone, names...) }

// trust makes clients accept the certificate and find the names.
func (v *variables) trust(ctx context.Context, f *operator.Clients, d *daemon) error {
	name, _, err := net.SplitHostPort(f.Domain)
	if err != nil {
		name = f.Domain
	}
	dir, err := v.inv.stateDir()
	if err != nil {
		return err
	}
	files := clientFiles{dir: filepath.Join(dir, "env", name), getenv: v.inv.getenv}
	if f.CA != "" {
		bundle, err := files.bundle(f.CA)
		if err != nil {
			return err
		}
		if bundle.alone {
			v.inv.note("this machine has no list of authorities (package ca-certificates), so programs with these variables trust this daemon alone")
		}
		if !d.local && !strings.HasSuffix(name, ".localhost") { // whose names are this machine's
			v.inv.note("programs with these variables trust the daemon at %s for %s and all names below it", d.url, name)
		}
		v.set("SSL_CERT_FILE", bundle.path, "the authorities of this machine and the daemon's own, for Python, Go and OpenSSL")
		for _, name := range bundleVariables[1:] {
			v.set(name, bundle.path, "the same for other programs")
		}
		node, err := files.nodeCA(f.CA)
		if err != nil {
			return err
		}
		v.set("NODE_EXTRA_CA_CERTS", node, "the daemon's authority, for Node.js")
	}
	if strings.HasSuffix(name, ".localhost") && !resolvesHere(ctx, "api."+name) {
		node, python, err := files.hooks()
		if err != nil {
			return err
		}
		require := "--require=" + node
		options := v.inv.getenv("NODE_OPTIONS")
		if !slices.Contains(strings.Fields(options), require) {
			options = strings.TrimSpace(options + " " + require)
		}
		v.set("NODE_OPTIONS", options, "this machine does not find names below localhost: a hook for Node.js")
		path := slices.DeleteFunc(filepath.SplitList(v.inv.getenv("PYTHONPATH")), func(p string) bool { return p == python })
		v.set("PYTHONPATH", strings.Join(append([]string{python}, path...), ":"), "the same for Python")
	}
	for _, problem := range problemsOf(ctx, f, name) {
		v.inv.note("%s", problem)
	}
	return nil
}

func (v *variables) print() error {
	if _, ok := terminalOf(v.inv.errs); ok && !v.inv.json {
		for _, name := range v.names {
			v.inv.note("%s: %s", name, v.why[name])
		}
		if _, ok := terminalOf(v.inv.out); ok {
			v.inv.note(`to set them in this shell: eval "$(tend env ...)"`)
		}
	}
	var text strings.Builder
	for _, name := range v.gone {
		fmt.Fprintf(&text, "unset %s\n", name)
	}
	for _, name := range v.names {
		fmt.Fprintf(&text, "export %s=%s\n", name, quoted(v.value[name]))
	}
	if !v.inv.flags.JSON { // lines for a shell, with each value in quotes
		_, err := io.WriteString(v.inv.out, text.String())
		return err
	}
	return printJSON(v.inv.out, struct {
		Set   map[string]string `json:"set"`
		Unset []string          `json:"unset"`
	}{v.value, notNull(v.gone)})
}

// quoted is a word of a shell.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// resolvesHere reports whether this machine finds a name below localhost, at loopback addresses alone.
func resolvesHere(ctx context.Context, name string) bool {
	ctx, cancel := context.WithTimeout(ctx, resolveTime)
	defer cancel()
	all, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
	return err == nil && len(all) > 0 && !slices.ContainsFunc(all, func(a netip.Addr) bool { return !a.Unmap().IsLoopback() })
}

// sources are the files in which a shell's programs find authorities now.
func (c *clientFiles) sources(names ...string) (all []string) {
	for _, name := range names {
		path := c.getenv(name)
		if path == "" {
			continue
		}
		if filepath.Dir(path) == c.dir { // ours: what it was made of
			all = append(all, madeOf(path)...)
		} else {
			all = append(all, path)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// systemBundle is the machine's list of authorities; "": none is found.
func systemBundle() string {
	for _, path := range []string{
		"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
		"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/ssl/cert.pem",
	} {
		if fi, err := os.Stat(path); err == nil && fi.Size() > 0 {
			return path
		}
	}
	return ""
}
