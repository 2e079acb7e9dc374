package e2bapi

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// What clients are told of the domain, and by which scheme they send files, depends on how they came.
func TestTheDomainAndTheSchemeOfAnAnswer(t *testing.T) {
	const here = "127.0.0.1:49983"
	two := []string{"box.example", "tend.localhost"}
	for name, c := range map[string]struct {
		domains       []string
		port          int    // of TLS
		host          string // that was called
		byTLS         bool
		proto, public string
		domain, link  string
	}{
		"no domain, localhost":           {nil, 0, "localhost:49983", false, "", "", "localhost:49983", "http://localhost:49983"},
		"no domain, an address":          {nil, 0, "127.0.0.1:49983", false, "", "", "localhost:49983", "http://127.0.0.1:49983"},
		"no domain, the usual port":      {nil, 0, "localhost", false, "", "", "localhost:80", "http://localhost"},
		"no domain, elsewhere":           {nil, 0, "box.example", false, "", "", "", "http://box.example"},
		"TLS, by name":                   {two, 49443, "api.tend.localhost:49443", true, "", "", "tend.localhost:49443", "https://api.tend.localhost:49443"},
		"TLS, by name, a mapped port":    {two, 49443, "api.box.example:8443", true, "", "", "box.example:8443", "https://api.box.example:8443"},
		"TLS, by name, 443":              {two, 443, "api.box.example", true, "", "", "box.example", "https://api.box.example"},
		"TLS, by name, 443 written":      {two, 443, "api.box.example:443", true, "", "", "box.example", "https://api.box.example:443"},
		"TLS, upper case and a dot":      {two, 49443, "API.Box.example.:49443", true, "", "", "box.example:49443", "https://API.Box.example.:49443"},
		"TLS, by URL":                    {two, 49443, here, false, "", "", "box.example:49443", "http://" + here},
		"TLS on 443, by URL":             {two, 443, here, false, "", "", "box.example", "http://" + here},
		"a proxy in front, silent":       {two, 0, "api.box.example", false, "", "", "box.example", "https://api.box.example"},
		"a proxy in front, its port":     {two, 0, "api.tend.localhost:47443", false, "", "", "tend.localhost:47443", "https://api.tend.localhost:47443"},
		"a proxy in front, which tells":  {two, 0, "api.box.example", false, "https", "", "box.example", "https://api.box.example"},
		"a proxy in front without TLS":   {two, 0, "api.box.example", false, "http", "", "box.example", "http://api.box.example"},
		"by name, without TLS or proxy":  {two, 0, "api.box.example:49983", false, "", "", "box.example", "http://api.box.example:49983"},
		"another name that ends alike":   {two, 0, "api.evilbox.example", false, "", "", "box.example", "http://api.evilbox.example"},
		"the operator has named the URL": {two, 49443, "api.box.example:1", true, "", "https://public.example", "box.example:1", "https://public.example"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &Face{domains: c.domains, port: c.port, publicURL: c.public}
			r := httptest.NewRequest("GET", "/", nil)
			local, err := net.ResolveTCPAddr("tcp", here)
			if err != nil {
				t.Fatal(err)
			}
			r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(local)))
			if r.Host = c.host; c.byTLS {
				r.TLS = new(tls.ConnectionState)
			}
			if c.proto != "" {
				r.Header.Set("X-Forwarded-Proto", c.proto)
			}
			domain := ""
			if d := f.domain(r); d != nil {
				domain = *d
			}
			if link := f.origin(r); domain != c.domain || link != c.link {
				t.Errorf("the domain is %q, and links begin with %q; want %q and %q", domain, link, c.domain, c.link)
			}
		})
	}
}
