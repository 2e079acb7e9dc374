package envdfs

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/protocol"
)

// maxComposeBody bounds the body of POST /files/compose: the most sources of
// some hundred bytes each.
const maxComposeBody = 4 << 20

// compose answers POST /files/compose.
func (f *Face) compose(w http.ResponseWriter, r *http.Request) *failure {
	var req struct {
		SourcePaths []string `json:"source_paths"`
		Destination string   `json:"destination"`
		Username    string   `json:"username"`
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxComposeBody))
	if busy, ok := errors.AsType[*budget.BusyError](err); ok {
		return &failure{http.StatusTooManyRequests, busy.Error()}
	}
	if err == nil {
		err = protocol.DecodeJSON(body, &req)
	}
	if err != nil {
		return &failure{http.StatusBadRequest, "invalid request body: " + err.Error()}
	}
	fsys, fail := f.fsFor(r.Context(), req.Username)
	if fail != nil {
		return fail
	}
	entry, err := fsys.Compose(r.Context(), req.SourcePaths, req.Destination)
	if err != nil {
		return cmp.Or(notEnsured(err), composeFailure(err))
	}
	done := uploadedOf(entry, entry.Path)
	tellOwner(w.Header(), done.owner)
	text, err := json.Marshal(done)
	if err != nil {
		return &failure{http.StatusInternalServerError, err.Error()}
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(text, '\n'))
	return nil
}

func composeFailure(err error) *failure {
	var invalid *files.InvalidError
	text := "error composing: " + err.Error()
	switch {
	case errors.As(err, &invalid):
		text = invalid.Error()
	case errors.Is(err, files.ErrNotExist), errors.Is(err, files.ErrNotDir):
		return &failure{http.StatusNotFound, "source file not found: " + pathOf(err, "")}
	case errors.Is(err, files.ErrNotRegular):
		text = "source path is not a regular file: " + pathOf(err, "")
	case errors.Is(err, files.ErrIsDir):
		text = "destination is a directory: " + pathOf(err, "")
	case errors.Is(err, files.ErrNoSpace):
		text = fmt.Sprint(files.ErrNoSpace)
	}
	return &failure{restStatus(err), text}
}
