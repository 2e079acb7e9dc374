package face

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
)

// Token is a secret that callers must show. The empty token is "none set":
// it matches nothing, so check [Token.Set] to decide whether one is needed.
type Token string

// Set reports whether callers must show the token.
func (t Token) Set() bool { return t != "" }

// Matches compares in constant time. Both sides are hashed first, so that not
// even the length of the secret shows in the time taken.
func (t Token) Matches(shown string) bool {
	if t == "" {
		return false
	}
	want, got := sha256.Sum256([]byte(t)), sha256.Sum256([]byte(shown))
	return subtle.ConstantTimeCompare(want[:], got[:]) == 1
}

// Bearer returns the token of an "Authorization: Bearer …" header, or "".
func Bearer(r *http.Request) string {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// AccessToken returns the token of envd's X-Access-Token header, or "".
func AccessToken(r *http.Request) string { return r.Header.Get("X-Access-Token") }
