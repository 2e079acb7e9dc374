package face

import (
	"crypto/tls"
	"net/http/httptest"
	"testing"
)

func TestOriginIsHowTheClientReachedTheServer(t *testing.T) {
	for name, tt := range map[string]struct {
		public, proto, host string
		tls                 bool
		want                string
	}{
		"what the operator has named":        {public: "https://boxes.example", proto: "http", host: "other", want: "https://boxes.example"},
		"the request's own":                  {want: "http://here:8080"},
		"over TLS":                           {tls: true, want: "https://here:8080"},
		"behind a proxy":                     {proto: "https", host: "example.org", want: "https://example.org"},
		"behind several, the first is meant": {proto: "https , http", host: "example.org, inner", want: "https://example.org"},
		"a proxy that says the host alone":   {tls: true, host: "example.org", want: "https://example.org"},
		"a scheme that is not of HTTP":       {proto: "javascript", want: "http://here:8080"},
		"headers that say nothing":           {proto: " ", host: ",x", want: "http://here:8080"},
	} {
		r := httptest.NewRequest("GET", "http://here:8080/x", nil)
		if tt.tls {
			r.TLS = new(tls.ConnectionState)
		}
		if tt.proto != "" {
			r.Header.Set("X-Forwarded-Proto", tt.proto)
		}
		if tt.host != "" {
			r.Header.Set("X-Forwarded-Host", tt.host)
		}
		if got := Origin(tt.public, r); got != tt.want {
			t.Errorf("%s: %s; want %s", name, got, tt.want)
		}
	}
}
