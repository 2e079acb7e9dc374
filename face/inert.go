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
