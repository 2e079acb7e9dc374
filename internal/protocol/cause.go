package protocol

import (
	"net/http"
	"net/url"
	"strings"
)

// CausedHere reports whether a browser says that a page of the called name and port has caused a
// request, or a person who typed the address or followed a link. A cookie alone does not show
// that: browsers send it to all ports of a host, with requests of the pages of all its ports.
// false: another page has, or the browser says nothing, as for a name without TLS that is not
// localhost.
func CausedHere(r *http.Request) bool {
	if o := r.Header.Get("Origin"); o != "" {
		if u, err := url.Parse(o); err != nil || !strings.EqualFold(u.Host, r.Host) {
			return false
		}
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "same-origin", "none":
		return true
	case "same-site", "cross-site":
		return onlyAsks(r) && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
	}
	return false
}

// onlyAsks reports whether a request is of a method that changes nothing.
func onlyAsks(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }
