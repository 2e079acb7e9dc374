package gateway

import (
	"bytes"
	"io"
	"net/http"
	"strings"

	"github.com/tend-run/tend/internal/lib/lazyregexp"
	"github.com/tend-run/tend/internal/protocol"
)

// shortestHidden is how many bytes a provider's key has at least that is looked for in
// answers. A shorter one is a word, such as "none" for a model of this machine.
const shortestHidden = 16

// ownKey is what the keys look like that are made here.
var ownKey = lazyregexp.New(`\bvk_[a-z0-9]{26}\b`)

// unsaid are headers of an answer that speak for the origin that a browser sees, which
// is this server's, or of the provider's key. [protocol.DropHostWide] removes others.
var unsaid = []string{"Set-Cookie", "Www-Authenticate", "Proxy-Authenticate", "Refresh", "Link",
	"Content-Security-Policy-Report-Only", "Trailer"}

// tidy makes the headers of an answer fit to be passed on.
func tidy(h http.Header, key string) {
	for name, values := range h {
		if strings.HasPrefix(name, "Access-Control-") {
			delete(h, name)
			continue
		}
		for i := range values {
			if len(key) >= shortestHidden {
				values[i] = covered(values[i], key)
			}
		}
	}
	for _, name := range unsaid {
		h.Del(name)
	}
	protocol.DropHostWide(h)
	protocol.Inert(h)
	h.Set("X-Accel-Buffering", "no") // a proxy in front must not hold back a stream
}

// hider passes a body on without a key, in none of its spellings ([cover]). It holds back
// only what may be the beginning of the key, and what comes after the body (trailers) not at all.
type hider struct {
	resp *http.Response
	body io.ReadCloser
	key  []byte

	ready, held []byte // may be read; may be the beginning of the key
	err         error  // after ready
	buf         [32 << 10]byte
}

// hide has a body of an answer pass without the key.
func hide(resp *http.Response, key string) io.ReadCloser {
	resp.Trailer = nil
	return &hider{resp: resp, body: resp.Body, key: []byte(key)}
}

func (h *hider) Close() error { return h.body.Close() }

func (h *hider) Read(b []byte) (int, error) {
	for len(h.ready) == 0 {
		if h.err != nil {
			clear(h.resp.Trailer)
			return 0, h.err
		}
		n := copy(h.buf[:], h.held)
		var more int
		more, h.err = h.body.Read(h.buf[n:])
		all := h.buf[:n+more]
		h.held = nil
		if len(h.key) >= shortestHidden && len(h.key) < len(h.buf)/2 {
			keep := cover(all, h.key, len(h.buf)/2)
			if h.err == nil {
				h.held = bytes.Clone(all[len(all)-keep:])
				all = all[:len(all)-keep]
			}
		}
		h.ready = all
	}
	n := copy(b, h.ready)
	h.ready = h.ready[n:]
	if len(h.ready) == 0 && h.err != nil { // with the last bytes: who has them has been counted
		clear(h.resp.Trailer)
		return n, h.err
	}
	return n, nil
}

// finalWriter passes on one answer: what a provider says before it (103 and other
// interim answers) has headers that nobody has looked at.
type finalWriter struct{ http.ResponseWriter }

func (w finalWriter) WriteHeader(status int) {
	if status >= 200 {
		w.ResponseWriter.WriteHeader(status)
	}
}

// Unwrap is for [http.ResponseController].
func (w finalWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
