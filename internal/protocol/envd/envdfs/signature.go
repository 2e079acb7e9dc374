package envdfs

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/protocol"
)

const (
	opRead  = "read"
	opWrite = "write"
)

// Sign makes the signature of the package comment. expires is in unix
// seconds; nil: the signature does not expire.
func Sign(path, op, username, token string, expires *int64) string {
	words := []string{path, op, username, token}
	if expires != nil {
		words = append(words, strconv.FormatInt(*expires, 10))
	}
	sum := sha256.Sum256([]byte(strings.Join(words, ":")))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// Operation is the word for what a request for /files does, as it is signed.
func Operation(r *http.Request) string {
	if r.Method == http.MethodPost {
		return opWrite
	}
	return opRead
}

// Signed reports whether the query of a request is signed with a token for an
// operation. Whether the signature has expired is another question.
func Signed(query url.Values, op string, token protocol.Token) bool {
	var expires *int64
	if query.Has("signature_expiration") {
		n, err := expiration(query)
		if err != nil {
			return false
		}
		expires = &n
	}
	want := Sign(query.Get("path"), op, query.Get("username"), string(token), expires)
	return token.Set() && subtle.ConstantTimeCompare([]byte(want), []byte(query.Get("signature"))) == 1
}

// expiration is Go's int, as the original parses it.
func expiration(query url.Values) (int64, error) {
	return strconv.ParseInt(query.Get("signature_expiration"), 10, 64)
}

// checkAccess lets a request for /files pass if no token is needed, if it shows
// one, or if it is signed with one. A wrong token fails even with a right
// signature.
func (f *Face) checkAccess(r *http.Request, query url.Values, op string) *failure {
	tokens := f.cfg.Tokens(r)
	if len(tokens) == 0 {
		return nil
	}
	if shown := protocol.AccessToken(r); shown != "" {
		if !slices.ContainsFunc(tokens, func(t protocol.Token) bool { return t.Matches(shown) }) {
			return unauthorized("access token present in header but does not match")
		}
		return nil
	}
	if !query.Has("signature") {
		return unauthorized("missing signature query parameter")
	}
	expires, err := expiration(query)
	if err != nil && query.Has("signature_expiration") {
		return &failure{http.StatusBadRequest, "signature_expiration is not a whole number of unix seconds"}
	}
	if !slices.ContainsFunc(tokens, func(t protocol.Token) bool { return Signed(query, op, t) }) {
		return unauthorized("invalid signature")
	}
	if query.Has("signature_expiration") && expires < time.Now().Unix() {
		return unauthorized("signature is already expired")
	}
	return nil
}

func unauthorized(message string) *failure { return &failure{http.StatusUnauthorized, message} }
