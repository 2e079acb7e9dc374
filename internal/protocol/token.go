package protocol

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
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

// MatchesAny reports whether what is shown is one of the tokens.
func MatchesAny(tokens []Token, shown string) bool {
	ok := false
	for _, t := range tokens {
		ok = t.Matches(shown) || ok
	}
	return ok
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

// sandboxToken begins each token of a sandbox.
const sandboxToken = "tsb_"

// ForSandbox reports whether what a client shows is meant as the token of some sandbox, whichever and whether it is right.
func ForSandbox(shown string) bool { return strings.HasPrefix(shown, sandboxToken) }

// E2BKey is the API key of E2B's SDKs for a server with this token. Some of them require
// this form.
func E2BKey(t Token) Token {
	if !t.Set() {
		return ""
	}
	h := hmac.New(sha256.New, []byte(t))
	h.Write([]byte("e2b api key"))
	return Token("e2b_" + hex.EncodeToString(h.Sum(nil))[:40])
}
