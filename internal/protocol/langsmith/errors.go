package langsmith

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/coder/websocket"

	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/sandbox/driver"
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

func (p *problem) Error() string { return p.text }

// problemOf is the one table from errors to the wire.
func problemOf(err error) *problem {
	if known, ok := errors.AsType[*problem](err); ok {
		return known
	}
	if bad, ok := errors.AsType[*driver.InvalidError](err); ok {
		err = &driver.InvalidError{Field: wireName(bad.Field), Reason: bad.Reason}
	}
	if not, ok := errors.AsType[*driver.UnsupportedError](err); ok {
		err = &driver.UnsupportedError{Field: wireName(not.Field), Reason: not.Reason}
	}
	var (
		request  *requestError
		badField *driver.InvalidError
		invalid  *process.InvalidError
		start    *process.StartError
		busy     *budget.BusyError
	)
	p := &problem{http.StatusInternalServerError, kindInternal, err.Error()}
	switch {
	case errors.As(err, &request):
		p.status, p.kind = http.StatusBadRequest, kindInvalid
	case errors.As(err, &badField), errors.As(err, &invalid):
		p.status, p.kind = http.StatusUnprocessableEntity, kindInvalid
	case errors.As(err, &busy):
		p.status, p.kind = http.StatusTooManyRequests, kindUnavailable
	case errors.As(err, &start):
		p.status, p.kind = http.StatusBadRequest, kindCommand
	}
	for _, known := range [...]struct {
		err    error
		status int
		kind   string
	}{
		{driver.ErrNotFound, http.StatusNotFound, kindNoResource}, {driver.ErrExists, http.StatusConflict, kindConflict},
		{driver.ErrUnsupported, http.StatusNotImplemented, kindUnsupported}, {process.ErrUnsupported, http.StatusNotImplemented, kindUnsupported},
		{driver.ErrStopped, http.StatusBadRequest, kindNotReady}, {driver.ErrPaused, http.StatusBadRequest, kindNotReady},
		{driver.ErrInUse, http.StatusConflict, kindConflict},
		{files.ErrNotExist, http.StatusNotFound, kindNoFile}, {files.ErrUnknownUser, http.StatusNotFound, kindNoFile},
		{files.ErrPermission, http.StatusForbidden, kindDenied}, {files.ErrNoSpace, http.StatusInsufficientStorage, kindWrite},
		{process.ErrLimit, http.StatusTooManyRequests, kindLimit}, {process.ErrUnavailable, http.StatusServiceUnavailable, kindUnavailable},
	} {
		if p.kind == kindInternal && errors.Is(err, known.err) {
			p.status, p.kind = known.status, known.kind
		}
	}
	return p
}

// describe words an error for the client, and logs what is the server's fault.
func (f *Face) describe(err error) *problem {
	p := problemOf(err)
	if p.kind == kindInternal {
		f.log.Warn("request failed", "face", "langsmith", "err", err)
	}
	return p
}

// refuse answers an HTTP request with an error.
func (f *Face) refuse(w http.ResponseWriter, err error) {
	p := f.describe(err)
	if p.status == http.StatusServiceUnavailable || p.kind == kindUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	writeError(w, p.status, p.kind, p.text)
}

// refuseFile is refuse for a file operation: kind is sent where the error has no kind
// of its own.
func (f *Face) refuseFile(w http.ResponseWriter, kind string, err error) {
	p := problemOf(err)
	if _, ok := errors.AsType[*files.PathError](err); ok && p.kind == kindInternal {
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
		field = strings.TrimSuffix(field, ",") // of several, the first
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
