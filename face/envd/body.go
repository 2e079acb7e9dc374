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
// request does not hold a goroutine for ever. StreamInput lasts as long as it
// lasts.
func limitBody(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == processconnect.ProcessStreamInputProcedure || r.Body == nil || r.Body == http.NoBody {
		return
	}
	r.Body = &timedBody{ReadCloser: r.Body, rc: http.NewResponseController(w)}
}

// timedBody sets a read deadline with the first read and takes it away at the
// end of the body: net/http would take a deadline that passes later for a client
// that left. A body that was not read to its end keeps its deadline, as net/http
// reads the rest before it sends the response.
type timedBody struct {
	io.ReadCloser
	rc      *http.ResponseController
	started bool
	ended   bool
}

func (b *timedBody) Read(p []byte) (int, error) {
	if !b.started {
		b.started = true
		_ = b.rc.SetReadDeadline(time.Now().Add(bodyTimeout)) // not all connections can; then there is no bound
	}
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF && !b.ended {
		b.ended = true
		_ = b.rc.SetReadDeadline(time.Time{})
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
