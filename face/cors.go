package face

import "net/http"

// CORS answers browsers as envd's server does: any origin, any header, and
// preflights end here with 204. Guard decides beforehand who is let in.
type CORS struct {
	Methods []string // allowed in a preflight
	Expose  string   // value of Access-Control-Expose-Headers
	MaxAge  string   // seconds
}

// Wrap adds the headers to the responses of next.
func (c *CORS) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		method := r.Header.Get("Access-Control-Request-Method")
		if r.Method == http.MethodOptions && method != "" {
			c.preflight(h, r, method)
			w.WriteHeader(http.StatusNoContent)
			return
		}
		h["Vary"] = append(h["Vary"], "Origin")
		if r.Header.Get("Origin") != "" {
			h["Access-Control-Allow-Origin"] = []string{"*"}
			if c.Expose != "" {
				h["Access-Control-Expose-Headers"] = []string{c.Expose}
			}
		}
		next.ServeHTTP(w, r)
	})
}

func (c *CORS) preflight(h http.Header, r *http.Request, method string) {
	h["Vary"] = append(h["Vary"], "Origin, Access-Control-Request-Method, Access-Control-Request-Headers")
	if r.Header.Get("Origin") == "" || !c.allows(method) {
		return
	}
	h["Access-Control-Allow-Origin"] = []string{"*"}
	h["Access-Control-Allow-Methods"] = []string{method}
	if asked := r.Header.Get("Access-Control-Request-Headers"); asked != "" {
		h["Access-Control-Allow-Headers"] = []string{asked}
	}
	if c.MaxAge != "" {
		h["Access-Control-Max-Age"] = []string{c.MaxAge}
	}
}

func (c *CORS) allows(method string) bool {
	for _, m := range c.Methods {
		if m == method {
			return true
		}
	}
	return false
}
