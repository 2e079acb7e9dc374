package protocol_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"testing"

	"github.com/tend-run/tend/internal/protocol"
)

// TestOnlyAProxyInFrontIsBelieved: what others say of the client does not reach the program behind.
func TestOnlyAProxyInFrontIsBelieved(t *testing.T) {
	all, err := protocol.ParseProxies([]string{"10.1.0.0/16", "fd00::7"})
	if err != nil {
		t.Fatal(err)
	}
	for peer, believed := range map[string]bool{"127.0.0.1:5": true, "[::1]:5": true, "[::ffff:127.0.0.1]:5": true, "10.1.2.3:5": true, "[::ffff:10.1.2.3]:5": true, "[fd00::7]:5": true,
		"10.2.0.1:5": false, "[fd00::8]:5": false, "203.0.113.9:5": false, "": false, "@": false} {
		in := httptest.NewRequest(http.MethodGet, "http://box.example/", nil)
		in.RemoteAddr = peer
		in.Header.Set("X-Forwarded-For", "198.51.100.1")
		in.Header.Set("X-Forwarded-Host", "shop.example")
		in.Header.Set("X-Forwarded-Proto", "https")
		in.Header.Set("Forwarded", "for=198.51.100.1")
		out := in.Clone(in.Context())
		out.Header = http.Header{}
		all.Forward(&httputil.ProxyRequest{In: in, Out: out})
		for name, said := range map[string]string{"X-Forwarded-Host": "shop.example", "X-Forwarded-Proto": "https", "Forwarded": "for=198.51.100.1"} {
			if got := out.Header.Get(name); (got == said) != believed {
				t.Errorf("from %q the program has %s %q", peer, name, got)
			}
		}
		if got := out.Header.Get("X-Forwarded-For"); (len(got) > len("198.51.100.1, ") && got[:12] == "198.51.100.1") != believed {
			t.Errorf("from %q the program has X-Forwarded-For %q", peer, got)
		}
	}
	for _, wrong := range []string{"", "proxy.example", "10.0.0.0/33", "10.0.0.7:80"} {
		if _, err := protocol.ParseProxies([]string{wrong}); err == nil {
			t.Errorf("%q is taken for a proxy", wrong)
		}
	}
}
