package server

import (
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/tend-run/tend/gen/envd/process/processconnect"
	"github.com/tend-run/tend/gen/tend/v1/tendv1connect"
)

// paced ends requests whose body stops arriving: half a request would hold its
// connection for ever. A slow body is fine as long as some of it comes within
// Limits.BodyPause.
func (s *Server) paced(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body == nil || r.Body == http.NoBody {
			next.ServeHTTP(w, r)
			return
		}
		// Whoever replaces the body does so in a copy: net/http looks at the body
		// that it made when it decides whether the connection may have another
		// request, or what is left of this one would be taken for it.
		r = r.WithContext(r.Context())
		if !bodyIsPaced(r.URL.Path) {
			next.ServeHTTP(w, r)
			return
		}
		b := &pacedBody{ReadCloser: r.Body, rc: http.NewResponseController(w), pause: s.limits.BodyPause}
		r.Body = b
		next.ServeHTTP(w, r)
		if !b.ended {
			// net/http reads what the handler left before it answers.
			_ = b.rc.SetReadDeadline(time.Now().Add(b.pause))
		}
	})
}

// bodyIsPaced: streams of input pause for as long as the client likes, and
// envd's calls have a deadline of their own.
func bodyIsPaced(path string) bool {
	return path != tendv1connect.ProcessServiceWriteStreamProcedure && !strings.HasPrefix(path, "/"+processconnect.ProcessName+"/")
}

// pacedBody has a read deadline while a read waits, and at no other time:
// net/http would take one that passes later for a client that left.
type pacedBody struct {
	io.ReadCloser
	rc    *http.ResponseController
	pause time.Duration
	ended bool // all was read, or no more can be
}

func (b *pacedBody) Read(p []byte) (int, error) {
	if b.ended {
		return b.ReadCloser.Read(p)
	}
	_ = b.rc.SetReadDeadline(time.Now().Add(b.pause)) // not all connections can; then there is no bound
	n, err := b.ReadCloser.Read(p)
	if err == nil || err == io.EOF {
		_ = b.rc.SetReadDeadline(time.Time{})
	}
	b.ended = err != nil
	return n, err
}
