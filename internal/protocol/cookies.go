package protocol

import (
	"net/http"
	"strings"
)

// ownCookies are how the names of this server's own cookies begin: of a login to the page, of a
// visit to ports, and of a link to a port.
var ownCookies = []string{"tend-session", "__Host-tend-session", "tend-visit", "langsmith-sandbox-service-token"}

// DropOwnCookies removes this server's own cookies from a request that is passed on to a program in a
// sandbox. Those of the program stay as they were written.
func DropOwnCookies(h http.Header) {
	all := h.Values("Cookie")
	h.Del("Cookie")
	for _, line := range all {
		var kept []string
		for pair := range strings.SplitSeq(line, ";") {
			if !isOwnCookie(strings.TrimSpace(pair)) {
				kept = append(kept, pair)
			}
		}
		if line := strings.TrimSpace(strings.Join(kept, ";")); line != "" {
			h.Add("Cookie", line)
		}
	}
}

func isOwnCookie(pair string) bool {
	for _, name := range ownCookies {
		if strings.HasPrefix(pair, name) {
			return true
		}
	}
	return false
}
