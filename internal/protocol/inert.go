package protocol

import (
	"net/http"
	"slices"
	"strings"
)

// Inert marks an answer as data that came from a user. A browser does not guess another
// type for it, runs no script in it, loads nothing for it, and gives it an origin of its
// own: a file that is a page cannot act as a page of this server. Other clients ignore
// this.
func Inert(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; sandbox")
}

// hostWide are headers that a browser stores for the whole host or origin.
var hostWide = []string{
	"Accept-Ch", "Alt-Svc", "Clear-Site-Data", "Critical-Ch", "Nel", "Public-Key-Pins", "Report-To", "Reporting-Endpoints",
	"Service-Worker-Allowed", "Set-Cookie2", "Speculation-Rules", "Strict-Transport-Security",
}

// DropHostWide removes from a foreign answer the headers about the whole host: on this
// server's origin, a program in a sandbox or a provider must not turn on HTTPS for the
// host, clear its storage or have its errors reported elsewhere. Cookies are left to the
// caller, because some are for the client.
func DropHostWide(h http.Header) {
	for _, name := range hostWide {
		h.Del(name)
	}
}

// KeepToName keeps a foreign answer from what belongs to other names below the same domain, the
// names of other sandboxes and of this server: its cookies are for its own name alone, and it
// clears no cookies, since a browser does that for the whole domain.
func KeepToName(h http.Header) {
	cookies := h["Set-Cookie"]
	for i, cookie := range cookies {
		parts := strings.Split(cookie, ";")
		own := slices.DeleteFunc(parts[1:], func(attribute string) bool {
			name, _, _ := strings.Cut(attribute, "=")
			return strings.EqualFold(strings.TrimSpace(name), "domain")
		})
		cookies[i] = strings.Join(parts[:1+len(own)], ";")
	}
	what := strings.ToLower(strings.Join(h.Values("Clear-Site-Data"), ","))
	if strings.Contains(what, `"cookies"`) || strings.Contains(what, `"*"`) {
		h.Del("Clear-Site-Data")
	}
}
