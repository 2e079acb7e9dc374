// Package pagetest proves requests as the page of tend does in a browser, for tests. Package
// page says what a proof is made of.
package pagetest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
)

// Login is the answer to a login.
type Login struct{ Tag, Key string }

// Proof is the header Tend-Page of a request to a run of the server. about is what it says of
// the body: [Of].
func (l Login) Proof(run string, count uint64, method, uri, about string, header http.Header) string {
	lines := []string{l.Tag, run, strconv.FormatUint(count, 10), method, uri, about}
	for _, name := range []string{"Tend-Sandbox", "If-Match", "If-None-Match"} {
		lines = append(lines, header.Get(name))
	}
	mac := hmac.New(sha256.New, []byte(l.Key))
	mac.Write([]byte(strings.Join(lines, "\n")))
	return strings.Join([]string{l.Tag, run, lines[2], about, hex.EncodeToString(mac.Sum(nil))}, ".")
}

// Of is what a proof says of a body.
func Of(body string) string {
	if len(body) > 1<<20 {
		return strconv.Itoa(len(body))
	}
	hash := sha256.Sum256([]byte(body))
	return hex.EncodeToString(hash[:])
}
