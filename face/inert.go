package face

import "net/http"

// Inert marks an answer as data that came from a user. A browser that is led to
// it takes it for no other type than it says, runs no script in it, loads
// nothing for it, and gives it an origin of its own: a page that is a file does
// not act as a page of this server. Clients other than browsers ignore this.
func Inert(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; sandbox")
}

// hostWide are headers that a browser keeps for the whole host, or for its origin, after
// the answer.
var hostWide = []string{
	"Accept-Ch", "Alt-Svc", "Clear-Site-Data", "Critical-Ch", "Nel", "Public-Key-Pins", "Report-To", "Reporting-Endpoints",
	"Service-Worker-Allowed", "Set-Cookie2", "Speculation-Rules", "Strict-Transport-Security",
}

// DropHostWide removes what an answer of a stranger says of the whole host: on an origin
// of this server, a program in a sandbox or a provider must not turn on HTTPS for it, clear
// its storage or have its errors reported elsewhere. Cookies are left to the caller, because
// some are meant for the client.
func DropHostWide(h http.Header) {
	for _, name := range hostWide {
		h.Del(name)
	}
}
