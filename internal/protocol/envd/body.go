package envd

import (
	"io"
	"net/http"
	"time"

	"github.com/tend-run/tend/internal/gen/envd/process/processconnect"
)

// limitBody gives the client a bounded time to send the body, so that half a
// request does not hold a goroutine for ever, nor one that no handler reads:
// net/http reads it before it sends the response. StreamInput lasts as long as
// it lasts.
func (f *Face) limitBody(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == processconnect.ProcessStreamInputProcedure || r.Body == nil || r.Body == http.NoBody {
		return
	}
	b := &timedBody{ReadCloser: r.Body, rc: http.NewResponseController(w)}
	if r.ProtoMajor == 1 {
		b.header = w.Header()
	}
	_ = b.rc.SetReadDeadline(time.Now().Add(f.bodyTimeout)) // not all connections can; then there is no bound
	r.Body = b
}

// timedBody takes the read deadline away at the end of the body: net/http would
// take a deadline that passes later for a client that left. A body that was not
// read to its end keeps its deadline.
type timedBody struct {
	io.ReadCloser
	rc     *http.ResponseController
	header http.Header // of the response, HTTP/1 only
	ended  bool
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch {
	case err == io.EOF && !b.ended:
		b.ended = true
		_ = b.rc.SetReadDeadline(time.Time{})
	case err != nil && err != io.EOF && b.header != nil:
		b.header.Set("Connection", "close") // or the rest of the body would be the next request
	}
	return n, err
}
