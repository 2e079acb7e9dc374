package e2bapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/process"
)

// problem is an error in the form of the wire.
type problem struct {
	status int
	text   string
}

func (p *problem) Error() string { return p.text }

func badRequest(format string, args ...any) error {
	return &problem{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

// unsupported refuses a field or path by name.
func unsupported(field, instead string) error {
	return &problem{http.StatusNotImplemented, field + " is not supported by this server; " + instead}
}

// lacks refuses what needs an ability that the driver does not have.
func (f *Face) lacks(what string) error {
	return &problem{http.StatusNotImplemented, fmt.Sprintf("%s: not supported by the sandbox driver %q", what, f.driver.Capabilities().Name)}
}

// noSandbox is the answer where there is no such sandbox.
func noSandbox(id string) error {
	return &problem{http.StatusNotFound, fmt.Sprintf("sandbox %.100q not found", id)}
}

// noTemplate has the number in its text, too: clients that build what is missing
// look for "404" and "not found".
func noTemplate(id string) error {
	return &problem{http.StatusNotFound, fmt.Sprintf("404: template %.200q not found", id)}
}

// problemOf is the one table from errors to the wire.
func problemOf(err error) *problem {
	text := err.Error()
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	if invalid, ok := errors.AsType[*driver.InvalidError](err); ok {
		return &problem{http.StatusBadRequest, wireName(invalid.Field) + " " + invalid.Reason}
	}
	if not, ok := errors.AsType[*driver.UnsupportedError](err); ok {
		return &problem{http.StatusNotImplemented, wireName(not.Field) + " is not supported by this server: " + not.Reason}
	}
	for _, known := range []struct {
		err    error
		status int
	}{
		{driver.ErrNotFound, http.StatusNotFound},
		{driver.ErrNoVolume, http.StatusNotFound},
		{driver.ErrVolumeExists, http.StatusBadRequest}, // as the original
		{driver.ErrPaused, http.StatusConflict},
		{driver.ErrExists, http.StatusConflict},
		{driver.ErrInUse, http.StatusConflict},
		{driver.ErrStopped, http.StatusConflict},
		{driver.ErrUnsupported, http.StatusNotImplemented},
		{process.ErrUnsupported, http.StatusNotImplemented},
		{process.ErrLimit, http.StatusTooManyRequests}, // driver.ErrLimit, too
		{process.ErrUnavailable, http.StatusServiceUnavailable},
		{files.ErrNotExist, http.StatusNotFound},
		{files.ErrExists, http.StatusConflict},
		{files.ErrIsDir, http.StatusConflict},
		{files.ErrNotDir, http.StatusBadRequest},
		{files.ErrNotRegular, http.StatusBadRequest},
		{files.ErrPermission, http.StatusForbidden},
		{files.ErrNoSpace, http.StatusInsufficientStorage},
	} {
		if errors.Is(err, known.err) {
			return &problem{known.status, text}
		}
	}
	return &problem{http.StatusInternalServerError, text}
}

// wireName is what the wire calls a field of the driver.
func wireName(field string) string {
	switch field {
	case "env":
		return "envVars"
	case "template", "snapshot":
		return "templateID"
	case "deadline", "extend":
		return "timeout"
	case "size.cpus":
		return "cpuCount"
	case "size.memory":
		return "memoryMB"
	case "network.allow":
		return "network.allowOut"
	case "network.deny":
		return "network.denyOut"
	}
	if of, ok := strings.CutPrefix(field, "volumes"); ok {
		return "volumeMounts" + of
	}
	return field
}

// refuse answers a request with an error. Nothing is passed on of what the server
// did wrong but its text, which is logged, too.
func (f *Face) refuse(w http.ResponseWriter, err error) {
	p := problemOf(err)
	if p.status == http.StatusInternalServerError {
		f.log.Warn("request failed", "face", "e2b", "err", err)
	}
	if _, busy := errors.AsType[*budget.BusyError](err); busy || p.status == http.StatusServiceUnavailable {
		after := time.Second
		if long, ok := errors.AsType[interface {
			error
			RetryAfter() time.Duration
		}](err); ok {
			after = long.RetryAfter()
		}
		w.Header().Set("Retry-After", strconv.Itoa(int(after.Seconds())))
	} else {
		// Both SDKs: to repeat it would change nothing.
		w.Header().Set("Should-Retry", "false")
	}
	writeJSON(w, p.status, map[string]any{"code": p.status, "message": strings.ToValidUTF8(p.text, "\uFFFD")})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil { // impossible: our own types
		b, status = []byte(`{"code":500,"message":"the answer could not be encoded"}`), http.StatusInternalServerError
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(status)
	_, _ = w.Write(b) // the client may have left
}

// decode reads a JSON body; none at all is an empty object. Fields that nobody sends
// are ignored, as the original does.
func decode(r *http.Request, v any) error {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return &problem{http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is larger than %d bytes", large.Limit)}
		}
		if busy, ok := errors.AsType[*budget.BusyError](err); ok {
			return fmt.Errorf("%w: %w", busy, process.ErrLimit)
		}
		return badRequest("the body could not be read: %v", err)
	}
	if len(b) == 0 {
		return nil
	}
	if err := protocol.DecodeJSON(b, v); err != nil {
		return badRequest("the body is not what this path takes: %v", err)
	}
	return nil
}

// asks reports whether a field of any form asks for anything.
func asks(raw json.RawMessage) bool {
	switch string(raw) {
	case "", "null", "false", "{}", "[]", `""`, "0":
		return false
	}
	return true
}

// refuseFields refuses the first field that asks for what there is not.
func refuseFields(fields ...foreign) error {
	for _, field := range fields {
		if asks(field.raw) {
			return unsupported(field.name, field.instead)
		}
	}
	return nil
}

// foreign is a field of the original that there is not here, and what to do instead.
type foreign struct {
	name    string
	raw     json.RawMessage
	instead string
}
