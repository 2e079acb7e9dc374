package face

import (
	"net/http"
	"strings"
)

// Origin is how a client reached this server: scheme and host, without a slash at the end.
// public, where the operator has named it, is the answer; else the request and what a proxy
// in front says decide.
func Origin(public string, r *http.Request) string {
	if public != "" {
		return public
	}
	scheme, host := "http", r.Host
	if r.TLS != nil {
		scheme = "https"
	}
	if v := firstOf(r.Header.Get("X-Forwarded-Proto")); v == "http" || v == "https" {
		scheme = v
	}
	if v := firstOf(r.Header.Get("X-Forwarded-Host")); v != "" {
		host = v
	}
	return scheme + "://" + host
}

// firstOf is the first of a list with commas.
func firstOf(v string) string {
	first, _, _ := strings.Cut(v, ",")
	return strings.TrimSpace(first)
}
