package envdfs

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"connectrpc.com/connect"

	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/sandbox/driver"
)

// failure is an answer of the REST paths: a status and a text.
type failure struct {
	code    int
	message string
}

// write answers in the form of envd's REST paths: {"code":…,"message":…}.
func (e *failure) write(w http.ResponseWriter) {
	text, err := json.Marshal(struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}{e.code, strings.ToValidUTF8(e.message, "\uFFFD")})
	if err != nil { // impossible: a number and a string
		text = []byte("{}")
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if e.code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(text)+1))
	w.WriteHeader(e.code)
	// A client that has left is no error of ours.
	_, _ = w.Write(append(text, '\n'))
}

// answers is a handler that writes what h fails with.
func answers(h func(http.ResponseWriter, *http.Request) *failure) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if fail := h(w, r); fail != nil {
			fail.write(w)
		}
	}
}

// codes is the one table from errors of files to HTTP and to connect.
var codes = []struct {
	err  error
	rest int
	rpc  connect.Code
}{
	// See isOver.
	{driver.ErrNotFound, http.StatusBadGateway, connect.CodeUnavailable},
	{driver.ErrStopped, http.StatusBadGateway, connect.CodeUnavailable},
	{driver.ErrPaused, http.StatusBadGateway, connect.CodeUnavailable},
	{files.ErrNotDir, http.StatusBadRequest, connect.CodeInvalidArgument},
	{files.ErrIsDir, http.StatusBadRequest, connect.CodeInvalidArgument},
	{files.ErrNotRegular, http.StatusBadRequest, connect.CodeInvalidArgument},
	{files.ErrEndless, http.StatusBadRequest, connect.CodeInvalidArgument},
	{files.ErrLoop, http.StatusBadRequest, connect.CodeFailedPrecondition},
	{files.ErrNotExist, http.StatusNotFound, connect.CodeNotFound},
	{files.ErrNoSpace, http.StatusInsufficientStorage, connect.CodeResourceExhausted},
	{files.ErrPermission, http.StatusForbidden, connect.CodePermissionDenied},
	{context.Canceled, 499, connect.CodeCanceled}, // the client has left; for the log
	{files.ErrNetworkMount, http.StatusInternalServerError, connect.CodeInvalidArgument},
	{files.ErrTooMany, http.StatusInternalServerError, connect.CodeResourceExhausted},
	{files.ErrOverflow, http.StatusInternalServerError, connect.CodeResourceExhausted},
	{files.ErrWatchLimit, http.StatusInternalServerError, connect.CodeResourceExhausted},
	{files.ErrClosed, http.StatusInternalServerError, connect.CodeUnavailable},
	{context.DeadlineExceeded, http.StatusInternalServerError, connect.CodeDeadlineExceeded},
}

func codesOf(err error) (rest int, rpc connect.Code) {
	if _, invalid := errors.AsType[*files.InvalidError](err); invalid {
		return http.StatusBadRequest, connect.CodeInvalidArgument
	}
	if _, busy := errors.AsType[*budget.BusyError](err); busy {
		return http.StatusTooManyRequests, connect.CodeResourceExhausted
	}
	for _, known := range codes {
		if errors.Is(err, known.err) {
			return known.rest, known.rpc
		}
	}
	return http.StatusInternalServerError, connect.CodeInternal
}

// isOver reports whether the sandbox ended, or was paused, since the request was let
// in. SDKs learn by 502, as of one that was not found, to ask what has become of it.
func isOver(err error) bool {
	rest, _ := codesOf(err)
	return rest == http.StatusBadGateway
}

func restStatus(err error) int {
	if files.IsBodyError(err) {
		return http.StatusBadRequest
	}
	rest, _ := codesOf(err)
	return rest
}

// fileAbove returns the path of a file that is in the place of a directory that had to be
// made; "": the error is another one.
func fileAbove(err error) string {
	if pe, ok := errors.AsType[*files.PathError](err); ok && pe.Op == "mkdir" && errors.Is(err, files.ErrNotDir) {
		return pe.Path
	}
	return ""
}

// notEnsured is the answer for such a file; nil: the error is another one.
func notEnsured(err error) *failure {
	if at := fileAbove(err); at != "" {
		return &failure{http.StatusInternalServerError, "error ensuring directories: path is a file: " + at}
	}
	return nil
}

// pathOf returns the path an error is about, or or.
func pathOf(err error, or string) string {
	if pe, ok := errors.AsType[*files.PathError](err); ok {
		return pe.Path
	}
	return or
}
