package protocol

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

func TestOriginsOfPages(t *testing.T) {
	for text, want := range map[string]string{
		"http://localhost:5173": "http://localhost:5173", "HTTPS://App.Example": "https://app.example", "https://app.example:443/": "https://app.example",
		"http://[::1]:80": "http://[::1]", "http://localhost:8080": "http://localhost:8080", "https://a.example:80": "https://a.example:80",
		"": "", "*": "", "null": "", "http://": "", "http://:80": "", "localhost:5173": "", "file:///x": "", "http://*.example": "", "http://evil@localhost": "", "http://a b": "",
	} {
		got, err := ParseOrigin(text)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q is %q, %v; want %q", text, got, err, want)
		}
	}
}
