package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/goccy/go-yaml"

	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/internal/lib/lazyregexp"
)

// Known are the base URLs of the providers that need none in the file, as the seed has them.
var known = map[string]string{
	"anthropic": "https://api.anthropic.com/v1",
	"openai":    "https://api.openai.com/v1",
	"gemini":    "https://generativelanguage.googleapis.com/v1beta",
}

// aliases are other names of providers in paths.
var aliases = map[string]string{"google": "gemini"}

const (
	maxProviders     = 64
	maxProvidersFile = 1 << 20
)

// provider is where requests go, and what opens it.
type provider struct {
	name string
	base *url.URL
	key  string
	// headers are those of requests that it gets besides the ones that all like it get.
	headers []string
}

// providersFile is a file of providers.
type providersFile struct {
	Providers map[string]struct {
		BaseURL string   `yaml:"base_url"`
		Key     string   `yaml:"key"`
		Headers []string `yaml:"headers"`
	} `yaml:"providers"`
}

// neverSent are headers that no provider gets, whatever its operator says: they belong to
// a connection, tell of the client, or have an answer come in pieces.
var neverSent = map[string]bool{
	"Connection": true, "Keep-Alive": true, "Proxy-Connection": true, "Proxy-Authorization": true, "Te": true, "Trailer": true,
	"Transfer-Encoding": true, "Upgrade": true,
	"Host": true, "Content-Length": true, "Expect": true, "Accept-Encoding": true, "Range": true, "If-Range": true, "Cookie": true,
}

var headerName = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9-]{0,63}$`)

var providerName = lazyregexp.New(`^[a-z][a-z0-9-]{0,31}$`)

// ReadProviders checks a file of providers, and returns their names.
func ReadProviders(path string) ([]string, error) {
	all, err := readProviders(path)
	var names []string
	for name := range all {
		names = append(names, name)
	}
	return names, err
}

func readProviders(path string) (map[string]*provider, error) {
	data, err := atomicfile.Read(path, maxProvidersFile)
	if err != nil {
		return nil, err
	}
	var f providersFile
	if err := yaml.NewDecoder(bytes.NewReader(data), yaml.DisallowUnknownField()).Decode(&f); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", path, hideSource(err))
	}
	if len(f.Providers) == 0 || len(f.Providers) > maxProviders {
		return nil, fmt.Errorf("%s names %d providers; 1 to %d are allowed, such as\nproviders:\n  anthropic: {key: sk-ant-…}",
			path, len(f.Providers), maxProviders)
	}
	all := map[string]*provider{}
	for name, p := range f.Providers {
		if !providerName.MatchString(name) || aliases[name] != "" {
			return nil, fmt.Errorf("%s: %.40q is no name of a provider; small letters, digits and - are allowed (google is gemini)", path, name)
		}
		base := p.BaseURL
		if base == "" {
			base = known[name]
		}
		if base == "" {
			return nil, fmt.Errorf("%s: providers.%s needs a base_url, such as https://api.example.com/v1", path, name)
		}
		u, err := url.Parse(strings.TrimRight(base, "/"))
		if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			return nil, fmt.Errorf("%s: base_url of providers.%s is no URL with http or https, a host and a path alone", path, name)
		}
		key := strings.TrimSpace(p.Key)
		if key == "" || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return nil, fmt.Errorf("%s: providers.%s needs a key of one word", path, name)
		}
		for i, h := range p.Headers {
			if p.Headers[i] = http.CanonicalHeaderKey(h); !headerName.MatchString(h) || neverSent[p.Headers[i]] {
				return nil,
					fmt.Errorf("%s: providers.%s.headers has %.40q, which is no name of a header that can be passed on; name those that the provider needs, such as X-Tenant", path, name, h)
			}
		}
		all[name] = &provider{name: name, base: u, key: key, headers: p.Headers}
	}
	return all, nil
}

// hideSource is a syntax error without the lines of the file, which has secrets.
func hideSource(err error) error {
	var syntax yaml.Error
	if errors.As(err, &syntax) {
		at := syntax.GetToken().Position
		return fmt.Errorf("line %d, column %d: %s", at.Line, at.Column, syntax.GetMessage())
	}
	return errors.New("is no valid YAML of providers, each with key and base_url")
}

// providers reads the file again when it has changed.
type providers struct {
	path string

	mu   sync.Mutex
	seen atomicfile.Seen // guarded by mu
	all  map[string]*provider
}

// find returns a provider by its name in a path; nil: it is not configured.
func (p *providers) find(name string) (*provider, error) {
	if other := aliases[name]; other != "" {
		name = other
	}
	if p.path == "" {
		return nil, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	seen, err := atomicfile.Look(p.path)
	if err == nil && !p.seen.Same(seen) {
		var all map[string]*provider
		if all, err = readProviders(p.path); err == nil {
			p.all, p.seen = all, seen
		}
	}
	if found := p.all[name]; found != nil {
		return found, nil // what was good before continues, while the file is being changed
	}
	return nil, err
}
