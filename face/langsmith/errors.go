package langsmith

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/coder/websocket"

	"github.com/tend-run/tend/driver"
	"github.com/tend-run/tend/files"
	"github.com/tend-run/tend/process"
)

// Kinds of errors: "error" of an HTTP body, "error_type" of a frame. The SDKs
// know those of the first block (§2, §4).
const (
	kindCommand     = "CommandError"
	kindTimeout     = "CommandTimeout"
	kindNotFound    = "CommandNotFound"
	kindRead        = "ReadError"
	kindWrite       = "WriteError"
	kindNoFile      = "FileNotFound"
	kindDenied      = "PermissionDenied"
	kindNotReady    = "NotReady"
	kindConnection  = "ConnectionError"
	kindNoResource  = "NotFound"
	kindConflict    = "NameConflict"
	kindUnsupported = "NotSupported"

	kindInvalid      = "InvalidRequest"
	kindTruncated    = "OutputTruncated"
	kindLost         = "CommandLost"
	kindUnavailable  = "Unavailable"
	kindLimit        = "LimitReached"
	kindUnauthorized = "Unauthorized"
	kindInternal     = "InternalError"
)

// problem is an error in the form of the wire.
type problem struct {
	status int // of HTTP
	kind   string
	text   string
}

// problemOf is the one table from errors to the wire.
func problemOf(err error) problem {
	text := err.Error()
	var (
		request  *requestError
		invalid  *process.InvalidError
		badField *driver.InvalidError
		badPath  *files.InvalidError
		start    *process.StartError
		missing  *commandNotFound
		timeout  *commandTimeout
		lost     commandLost
		gap      *gapError
		known    *problemError
	)
	switch {
	case errors.As(err, &known):
		return known.problem
	case errors.As(err, &request):
		return problem{http.StatusBadRequest, kindInvalid, text}
	case errors.As(err, &badField):
		return problem{http.StatusUnprocessableEntity, kindInvalid, (&driver.InvalidError{Field: wireName(badField.Field), Reason: badField.Reason}).Error()}
	case errors.As(err, &invalid), errors.As(err, &badPath):
		return problem{http.StatusUnprocessableEntity, kindInvalid, text}
	case errors.As(err, &missing):
		return problem{http.StatusNotFound, kindNotFound, text}
	case errors.As(err, &timeout):
		return problem{http.StatusRequestTimeout, kindTimeout, text}
	case errors.As(err, &lost):
		return problem{http.StatusInternalServerError, kindLost, text}
	case errors.As(err, &gap):
		return problem{http.StatusGone, kindTruncated, text}
	case errors.As(err, &start):
		return problem{http.StatusBadRequest, kindCommand, text}
	case errors.Is(err, driver.ErrNotFound):
		return problem{http.StatusNotFound, kindNoResource, text}
	case errors.Is(err, driver.ErrExists):
		return problem{http.StatusConflict, kindConflict, text}
	case errors.Is(err, driver.ErrUnsupported), errors.Is(err, process.ErrUnsupported):
		return problem{http.StatusNotImplemented, kindUnsupported, text}
	case errors.Is(err, driver.ErrStopped):
		return problem{http.StatusBadRequest, kindNotReady, text}
	case errors.Is(err, files.ErrNotExist), errors.Is(err, files.ErrUnknownUser):
		return problem{http.StatusNotFound, kindNoFile, text}
	case errors.Is(err, files.ErrPermission):
		return problem{http.StatusForbidden, kindDenied, text}
	case errors.Is(err, files.ErrNoSpace):
		return problem{http.StatusInsufficientStorage, kindWrite, text}
	case errors.Is(err, process.ErrLimit):
		return problem{http.StatusTooManyRequests, kindLimit, text}
	case errors.Is(err, process.ErrUnavailable):
		return problem{http.StatusServiceUnavailable, kindUnavailable, text}
	}
	return problem{http.StatusInternalServerError, kindInternal, text}
}

// problemError is an error that has its form on the wire.
type problemError struct{ problem }

func (e *problemError) Error() string { return e.text }

// describe words an error for a frame, and logs what is the server's fault.
func (f *Face) describe(err error) (kind, text string) {
	p := problemOf(err)
	if p.kind == kindInternal {
		f.log.Warn("request failed", "face", "langsmith", "err", err)
	}
	return p.kind, p.text
}

// refuse answers an HTTP request with an error.
func (f *Face) refuse(w http.ResponseWriter, err error) {
	p := problemOf(err)
	if p.kind == kindInternal {
		f.log.Warn("request failed", "face", "langsmith", "err", err)
	}
	if p.status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	writeError(w, p.status, p.kind, p.text)
}

// refuseFile is refuse for a file operation: kind is what the SDK is told
// where the error says no more than that it failed.
func (f *Face) refuseFile(w http.ResponseWriter, kind string, err error) {
	var pe *files.PathError
	p := problemOf(err)
	if p.kind == kindInternal && errors.As(err, &pe) {
		writeError(w, http.StatusBadRequest, kind, p.text)
		return
	}
	f.refuse(w, err)
}

// writeError writes the only form of body that the SDKs read.
func writeError(w http.ResponseWriter, status int, kind, text string) {
	body := map[string]any{"detail": map[string]string{"error": kind, "message": strings.ToValidUTF8(text, "\uFFFD")}}
	if status == http.StatusUnprocessableEntity {
		// 422 is a list of fields, as FastAPI sends it.
		field, _, _ := strings.Cut(text, " ")
		body = map[string]any{"detail": []any{map[string]any{"loc": []string{"body", field}, "msg": text, "type": "value_error"}}}
	}
	if !passes(status) {
		// The generated clients, Go's among them, repeat what was answered by
		// 408, 409 or 5xx: a command that timed out would run three times.
		w.Header().Set("X-Should-Retry", "false")
	}
	writeJSON(w, status, body)
}

// passes reports whether an error may be none when the request is repeated;
// nothing was done then.
func passes(status int) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil { // impossible: our own types
		b, status = []byte(`{"detail":"the answer could not be encoded"}`), http.StatusInternalServerError
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(b)+1))
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // the client may have left
}

// isSendError: nothing can be sent to the client any more.
func isSendError(err error) bool {
	var ne net.Error
	return errors.Is(err, net.ErrClosed) || errors.As(err, &ne) || websocket.CloseStatus(err) != -1
}

func headerHas(h http.Header, name, token string) bool {
	for _, v := range h.Values(name) {
		for part := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(part), token) {
				return true
			}
		}
	}
	return false
}
