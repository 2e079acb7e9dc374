package envdfs

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tend-run/tend/face"
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

// checkAccess lets a request for /files pass if no token is set, if it shows
// the token, or if it is signed. A wrong token fails even with a right
// signature.
func (f *Face) checkAccess(r *http.Request, query url.Values, op string) *failure {
	token := f.cfg.Token()
	if !token.Set() {
		return nil
	}
	if shown := face.AccessToken(r); shown != "" {
		if !token.Matches(shown) {
			return unauthorized("access token present in header but does not match")
		}
		return nil
	}
	if !query.Has("signature") {
		return unauthorized("missing signature query parameter")
	}
	var expires *int64
	if query.Has("signature_expiration") {
		// Go's int, as the original parses it.
		n, err := strconv.ParseInt(query.Get("signature_expiration"), 10, 64)
		if err != nil {
			return &failure{http.StatusBadRequest, "signature_expiration is not a whole number of unix seconds"}
		}
		expires = &n
	}
	want := Sign(query.Get("path"), op, query.Get("username"), string(token), expires)
	if subtle.ConstantTimeCompare([]byte(want), []byte(query.Get("signature"))) != 1 {
		return unauthorized("invalid signature")
	}
	if expires != nil && *expires < time.Now().Unix() {
		return unauthorized("signature is already expired")
	}
	return nil
}

func unauthorized(message string) *failure { return &failure{http.StatusUnauthorized, message} }
