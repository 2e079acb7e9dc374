package page

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"connectrpc.com/connect"

	"github.com/tend-run/tend/internal/protocol"
)

const (
	// proofHeader carries the proof of a request.
	proofHeader = "Tend-Page"
	// maxSigned bounds a body whose hash a proof has, in bytes: it is held until the hash is
	// known. Of a longer body a proof has the length.
	maxSigned = 1 << 20
	// maxCounts of a session are remembered: 8 KiB.
	maxCounts = 1024
)

// signedHeaders decide, beside the path, what a request does.
var signedHeaders = []string{"Tend-Sandbox", "If-Match", "If-None-Match"}

// proof is what a request shows of its session, none of which logs in: the key, by which mac is
// made, is not in it.
type proof struct {
	tag   string // in the name of the session's cookie
	run   string // of the server that it is for
	count uint64 // no other proof of the session has it
	body  string // SHA-256 of the body in hexadecimal digits, or the length of a long one
	mac   string
}

// readProof reads the header of a request; false: there is none, or it is of a former page.
func readProof(r *http.Request) (p proof, ok bool) {
	f := strings.Split(r.Header.Get(proofHeader), ".")
	if len(f) != 5 || !isTag(f[0]) {
		return proof{}, false
	}
	count, err := strconv.ParseUint(f[2], 10, 64)
	return proof{f[0], f[1], count, f[3], f[4]}, err == nil
}

// sign is the mac by a key. No field has the end of a line.
func (p proof) sign(key string, r *http.Request) string {
	fields := []string{p.tag, p.run, strconv.FormatUint(p.count, 10), r.Method, r.RequestURI, p.body}
	for _, name := range signedHeaders {
		fields = append(fields, strings.Join(r.Header.Values(name), ", "))
	}
	h := hmac.New(sha256.New, []byte(key))
	io.WriteString(h, strings.Join(fields, "\n"))
	return hex.EncodeToString(h.Sum(nil))
}

// by reports whether the proof was made with the key, for this request.
func (p proof) by(key string, r *http.Request) bool {
	return protocol.Token(p.sign(key, r)).Matches(p.mac) && (!bodiless(r) || p.body == hashOf(nil))
}

func bodiless(r *http.Request) bool { return r.Body == nil || r.Body == http.NoBody }

func hashOf(data []byte) string {
	hash := sha256.Sum256(data)
	return hex.EncodeToString(hash[:])
}

// checked is the body of a request, which ends with an error if it is not the one of the proof.
// nil: the request has none.
func (p proof) checked(r *http.Request) io.ReadCloser {
	if bodiless(r) {
		return nil
	}
	if length, err := strconv.ParseInt(p.body, 10, 64); err == nil && length > maxSigned {
		return &longBody{r.Body, length}
	}
	return &shortBody{ReadCloser: r.Body, hash: p.body}
}

func otherBody() error {
	return connect.NewError(connect.CodeUnauthenticated, errors.New("the body of this request is not the one that its login has signed"))
}

// shortBody is read as a whole before its first byte is given away.
type shortBody struct {
	io.ReadCloser
	hash string
	read bool
	data []byte
	err  error // after data
}

func (b *shortBody) Read(to []byte) (int, error) {
	if !b.read {
		b.read, b.err = true, io.EOF
		data, err := io.ReadAll(io.LimitReader(b.ReadCloser, maxSigned+1))
		switch {
		case err != nil:
			b.err = err
		case len(data) > maxSigned || hashOf(data) != b.hash:
			b.err = otherBody()
		default:
			b.data = data
		}
	}
	if len(b.data) == 0 {
		b.data = nil // a stream holds its request for hours
		return 0, b.err
	}
	n := copy(to, b.data)
	b.data = b.data[n:]
	return n, nil
}

// longBody ends well only after its length.
type longBody struct {
	io.ReadCloser
	left int64
}

func (b *longBody) Read(to []byte) (int, error) {
	n, err := b.ReadCloser.Read(to)
	b.left -= int64(n)
	if b.left < 0 || err == io.EOF && b.left != 0 {
		return 0, otherBody()
	}
	return n, err
}

// counts are those of the proofs that a session has used. The least are forgotten; one
// that is not above them is refused as if it were known.
type counts struct {
	used  []uint64 // in order
	floor uint64   // the greatest that is forgotten
}

// use reports whether a count is new. If not, a new one is greater than least, which is the
// greatest: one just above the floor would be below it in a moment, by what other windows send.
func (c *counts) use(count uint64) (ok bool, least uint64) {
	at, used := slices.BinarySearch(c.used, count)
	if used || count <= c.floor {
		if n := len(c.used); n > 0 {
			least = c.used[n-1]
		}
		return false, least
	}
	c.used = slices.Insert(c.used, at, count)
	if len(c.used) > maxCounts {
		c.floor = c.used[0]
		c.used = slices.Delete(c.used, 0, 1)
	}
	return true, 0
}
