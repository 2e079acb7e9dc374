package envdfs

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"connectrpc.com/connect"

	"github.com/tend-run/tend/files"
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
	w.Header().Set("Content-Length", strconv.Itoa(len(text)+1))
	w.WriteHeader(e.code)
	// A client that has left is no error of ours.
	_, _ = w.Write(append(text, '\n'))
}

// restStatus is the one table from errors of files to HTTP.
func restStatus(err error) int {
	var invalid *files.InvalidError
	switch {
	case files.IsBodyError(err), errors.As(err, &invalid),
		errors.Is(err, files.ErrIsDir), errors.Is(err, files.ErrNotDir),
		errors.Is(err, files.ErrNotRegular), errors.Is(err, files.ErrLoop), errors.Is(err, files.ErrEndless):
		return http.StatusBadRequest
	case errors.Is(err, files.ErrNotExist):
		return http.StatusNotFound
	case errors.Is(err, files.ErrNoSpace):
		return http.StatusInsufficientStorage
	case errors.Is(err, files.ErrPermission):
		return http.StatusForbidden
	case errors.Is(err, context.Canceled):
		return 499 // the client has left; for the log
	}
	return http.StatusInternalServerError
}

// rpcCode is the one table from errors of files to connect.
func rpcCode(err error) connect.Code {
	var invalid *files.InvalidError
	switch {
	case errors.As(err, &invalid), errors.Is(err, files.ErrNotDir),
		errors.Is(err, files.ErrIsDir), errors.Is(err, files.ErrNotRegular), errors.Is(err, files.ErrEndless), errors.Is(err, files.ErrNetworkMount):
		return connect.CodeInvalidArgument
	case errors.Is(err, files.ErrNotExist):
		return connect.CodeNotFound
	case errors.Is(err, files.ErrExists):
		return connect.CodeAlreadyExists
	case errors.Is(err, files.ErrLoop), errors.Is(err, files.ErrCrossDevice):
		return connect.CodeFailedPrecondition
	case errors.Is(err, files.ErrTooMany), errors.Is(err, files.ErrOverflow),
		errors.Is(err, files.ErrWatchLimit), errors.Is(err, files.ErrNoSpace):
		return connect.CodeResourceExhausted
	case errors.Is(err, files.ErrPermission):
		return connect.CodePermissionDenied
	case errors.Is(err, files.ErrClosed):
		return connect.CodeUnavailable
	case errors.Is(err, context.Canceled):
		return connect.CodeCanceled
	case errors.Is(err, context.DeadlineExceeded):
		return connect.CodeDeadlineExceeded
	}
	return connect.CodeInternal
}

// pathOf returns the path an error is about, or or.
func pathOf(err error, or string) string {
	var pe *files.PathError
	if errors.As(err, &pe) {
		return pe.Path
	}
	return or
}
