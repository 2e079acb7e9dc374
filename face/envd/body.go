package envd

import (
	"encoding/json"
	"io"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/tend-run/tend/gen/envd/process/processconnect"
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

// unaryErrorText is the body of a Connect unary error.
func unaryErrorText(e *connect.Error) ([]byte, error) {
	return json.Marshal(wireError{Code: e.Code().String(), Message: e.Message()})
}

// statusOf maps codes to HTTP statuses as the Connect protocol does.
func statusOf(c connect.Code) int {
	switch c {
	case connect.CodeCanceled:
		return 499
	case connect.CodeInvalidArgument, connect.CodeFailedPrecondition, connect.CodeOutOfRange:
		return http.StatusBadRequest
	case connect.CodeUnauthenticated:
		return http.StatusUnauthorized
	case connect.CodePermissionDenied:
		return http.StatusForbidden
	case connect.CodeNotFound:
		return http.StatusNotFound
	case connect.CodeAlreadyExists, connect.CodeAborted:
		return http.StatusConflict
	case connect.CodeResourceExhausted:
		return http.StatusTooManyRequests
	case connect.CodeUnimplemented:
		return http.StatusNotImplemented
	case connect.CodeUnavailable:
		return http.StatusServiceUnavailable
	case connect.CodeDeadlineExceeded:
		return http.StatusGatewayTimeout
	}
	return http.StatusInternalServerError
}
