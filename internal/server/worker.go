package server

import "net/http"

// noWorker refuses the script of a service worker, which this server has none of. A page that
// was served on this port while the server was away may have left one in the browser, where it
// acts as the user from then on: the browser asks for its script again, and is told to forget
// it. Ports of sandboxes that have host names of their own are other origins, with workers of
// their own.
func noWorker(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Service-Worker") == "" || r.Context().Value(hostedKey{}) != nil {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Clear-Site-Data", `"storage"`)
		http.Error(w, "this server has no service worker", http.StatusNotFound)
	})
}
