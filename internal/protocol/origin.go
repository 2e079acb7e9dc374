package protocol

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
)

// ParseOrigin returns the origin of a web page as browsers write it: in lower case, without
// the port that the scheme implies. Errors: the text is no origin of a page on a server.
func ParseOrigin(text string) (string, error) {
	u, err := url.Parse(strings.ToLower(text))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || strings.ContainsAny(u.Host, "*,") {
		return "", errors.New("is no origin; write scheme, host and port, such as http://localhost:5173")
	}
	host := u.Host
	if port := map[string]string{"http": ":80", "https": ":443"}[u.Scheme]; strings.HasSuffix(host, port) {
		host = strings.TrimSuffix(host, port)
	}
	return u.Scheme + "://" + strings.TrimSuffix(host, ":"), nil
}

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
