package gateway

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/tend-run/tend/internal/lib/lazyregexp"
)

// queryFor is the query that the provider gets: without a key, which an answer and the
// logs of a provider may repeat, and without what is for the seed's router.
func queryFor(raw string) (url.Values, error) {
	query, err := url.ParseQuery(raw)
	if err != nil {
		return nil, &refusal{status: http.StatusBadRequest,
			text: "the query cannot be read; write it as name=value&name=value, with percent-encoding"}
	}
	query.Del("path")
	for name, values := range query {
		if name == "key" && slices.ContainsFunc(values, virtualKey.MatchString) || slices.ContainsFunc(values, ownKey.MatchString) {
			query.Del(name)
		}
	}
	return query, nil
}

// keyHeadersOut are the headers in which providers take a key.
var keyHeadersOut = append(slices.Clone(keyHeaders), "Api-Key")

// headersFor are the headers that the provider gets: those that are known, and its key
// where the client showed the virtual one, or where this provider takes it.
func headersFor(in http.Header, p *passed) http.Header {
	api, out := apiOf(p.to.name), http.Header{}
	for _, name := range slices.Concat(commonHeaders, api.headers, p.to.headers) {
		if values := in[name]; len(values) > 0 && !slices.ContainsFunc(values, virtualKey.MatchString) {
			out[name] = slices.Clone(values)
		}
	}
	if p.strict && slices.ContainsFunc(out["Accept"], func(v string) bool { return !readableForm.MatchString(v) }) {
		delete(out, "Accept") // in another form the counts are not found
	}
	if _, ok := out["User-Agent"]; !ok {
		out["User-Agent"] = []string{""} // not the transport's
	}
	replaced := false
	for _, name := range append(slices.Clone(keyHeadersOut), p.to.headers...) {
		for _, value := range in[name] {
			scheme, ok := strings.CutSuffix(value, p.shown)
			if !ok || scheme != "" && !schemeForm.MatchString(scheme) {
				continue
			}
			out[name], replaced = []string{scheme + p.to.key}, true
		}
	}
	if !replaced {
		scheme := ""
		if api.keyIn == "Authorization" {
			scheme = "Bearer "
		}
		out[api.keyIn] = []string{scheme + p.to.key}
	}
	return out
}

// readableForm is an Accept of JSON and events alone.
var readableForm = lazyregexp.New(`^(?:(?:application/json|text/event-stream|\*/\*)(?:; *[a-z0-9=.-]+)*(?:, *|$))*$`)

// schemeForm is what may be before a key.
var schemeForm = lazyregexp.New(`^[A-Za-z]+ +$`)
