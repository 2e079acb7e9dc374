package envdfs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/tend-run/tend/face"
	"github.com/tend-run/tend/files"
)

// maxComposeBody bounds the body of POST /files/compose: the most sources of
// some hundred bytes each.
const maxComposeBody = 4 << 20

// compose answers POST /files/compose.
func (f *Face) compose(w http.ResponseWriter, r *http.Request) {
	var req struct {
		SourcePaths []string `json:"source_paths"`
		Destination string   `json:"destination"`
		Username    string   `json:"username"`
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxComposeBody))
	if busy, ok := errors.AsType[*face.BusyError](err); ok {
		(&failure{http.StatusTooManyRequests, busy.Error()}).write(w)
		return
	}
	if err == nil {
		err = face.CheckJSON(body)
	}
	if err == nil {
		err = json.Unmarshal(body, &req)
	}
	if err != nil {
		(&failure{http.StatusBadRequest, "invalid request body: " + err.Error()}).write(w)
		return
	}
	fsys, fail := f.fsFor(r.Context(), req.Username)
	if fail != nil {
		fail.write(w)
		return
	}
	entry, err := fsys.Compose(r.Context(), req.SourcePaths, req.Destination)
	if err != nil {
		composeFailure(err).write(w)
		return
	}
	text, err := json.Marshal(uploadedOf(entry, entry.Path))
	if err != nil {
		(&failure{http.StatusInternalServerError, err.Error()}).write(w)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(text, '\n'))
}

func composeFailure(err error) *failure {
	var invalid *files.InvalidError
	text := "error composing: " + err.Error()
	switch {
	case errors.As(err, &invalid):
		text = invalid.Error()
	case errors.Is(err, files.ErrNotExist):
		text = "source file not found: " + pathOf(err, "")
	case errors.Is(err, files.ErrNotRegular):
		text = "source path is not a regular file: " + pathOf(err, "")
	case errors.Is(err, files.ErrIsDir):
		text = "destination is a directory: " + pathOf(err, "")
	case errors.Is(err, files.ErrNoSpace):
		text = fmt.Sprint(files.ErrNoSpace)
	}
	return &failure{restStatus(err), text}
}
