package envdfs

import (
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/sandbox/driver"
)

// uploaded is one file in the answer of POST /files and POST /files/compose.
type uploaded struct {
	Name     string            `json:"name"`
	Path     string            `json:"path"`
	Type     string            `json:"type"`
	Metadata map[string]string `json:"metadata,omitempty"`
	owner    string            // "": the user
}

func uploadedOf(e files.Entry, path string) uploaded {
	u := uploaded{Name: filepath.Base(path), Path: path, Type: "file", Metadata: e.Metadata}
	if !e.Mine {
		u.owner = e.Owner
	}
	return u
}

// upload answers POST /files.
func (f *Face) upload(w http.ResponseWriter, r *http.Request) *failure {
	done, fail := f.receive(r)
	if fail != nil {
		return fail
	}
	text, err := json.Marshal(done)
	if err != nil {
		return &failure{http.StatusInternalServerError, err.Error()}
	}
	// envd lets net/http guess the type, which makes it text/plain; the SDKs
	// parse it as JSON all the same.
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff") // it repeats the paths
	for _, u := range done {
		tellOwner(w.Header(), u.owner)
	}
	_, _ = w.Write(text)
	return nil
}

// HeaderOwner, in the answer to an upload, names the owners of files that could not be
// given to the user, each once.
const HeaderOwner = "Tend-Owner"

func tellOwner(h http.Header, owner string) {
	if owner != "" && !slices.Contains(h.Values(HeaderOwner), owner) {
		h.Add(HeaderOwner, owner)
	}
}

func (f *Face) receive(r *http.Request) ([]uploaded, *failure) {
	query := r.URL.Query()
	if fail := f.checkAccess(r, query, opWrite); fail != nil {
		return nil, fail
	}
	body, fail := plainBody(r)
	if fail != nil {
		return nil, fail
	}
	fsys, fail := f.fsFor(r.Context(), query.Get("username"))
	if fail != nil {
		return nil, fail
	}
	in := &receiver{fsys: fsys, query: query, metadata: metadataOf(r.Header), length: r.ContentLength}
	if err := files.CheckMetadata(in.metadata); err != nil {
		var invalid *files.InvalidError
		errors.As(err, &invalid)
		return nil, &failure{http.StatusBadRequest, "invalid metadata: metadata " + invalid.Reason}
	}
	contentType := r.Header.Get("Content-Type")
	kind, params, _ := mime.ParseMediaType(contentType)
	switch {
	case kind == "application/octet-stream":
		if !query.Has("path") {
			return nil, &failure{http.StatusBadRequest, "path query parameter is required for raw body upload"}
		}
		fail = in.file(query.Get("path"), body)
	case strings.HasPrefix(kind, "multipart/"):
		fail = in.multipart(body, params["boundary"])
	default:
		fail = &failure{http.StatusBadRequest,
			fmt.Sprintf("unsupported content type: %.200s, expected multipart/form-data or application/octet-stream", contentType)}
	}
	return in.done, fail
}

// plainBody undoes a Content-Encoding of gzip.
func plainBody(r *http.Request) (io.Reader, *failure) {
	header := r.Header.Get("Content-Encoding")
	name, _, _ := strings.Cut(header, ";")
	switch strings.ToLower(strings.TrimSpace(name)) {
	case "", "identity":
		return r.Body, nil
	case "gzip":
		zr, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, &failure{http.StatusBadRequest, "error decompressing request body: failed to create gzip reader: " + err.Error()}
		}
		return zr, nil
	}
	return nil, &failure{http.StatusBadRequest,
		fmt.Sprintf("error decompressing request body: unsupported Content-Encoding: %.200s, supported: [gzip]", header)}
}

// metadataOf collects the X-Metadata-<key> headers; keys are lower case, the
// first value of each counts.
func metadataOf(h http.Header) map[string]string {
	var metadata map[string]string
	for name, values := range h {
		key, ok := strings.CutPrefix(name, "X-Metadata-")
		if !ok || key == "" || len(values) == 0 {
			continue
		}
		if metadata == nil {
			metadata = make(map[string]string)
		}
		metadata[strings.ToLower(key)] = values[0]
	}
	return metadata
}

// receiver takes the files of one request.
type receiver struct {
	fsys     driver.Files
	query    url.Values
	metadata map[string]string
	length   int64 // of the body; -1: unknown
	done     []uploaded
}

// maxParts bounds the files of one request.
const maxParts = 10_000

func (in *receiver) multipart(body io.Reader, boundary string) *failure {
	if boundary == "" {
		return &failure{http.StatusBadRequest, "error parsing multipart form: " + http.ErrMissingBoundary.Error()}
	}
	in.done = []uploaded{} // no part named file is an empty array, not null
	reader := multipart.NewReader(body, boundary)
	for {
		part, err := reader.NextPart()
		if err == io.EOF { // a wrapped EOF is a form that was cut off
			return nil
		}
		if err != nil {
			return &failure{http.StatusBadRequest, "error reading form: " + err.Error()}
		}
		if part.FormName() != "file" {
			continue
		}
		if len(in.done) == maxParts {
			return &failure{http.StatusBadRequest, fmt.Sprintf("a request uploads at most %d files; send the rest in another one", maxParts)}
		}
		path, fail := in.partPath(part)
		if fail == nil {
			fail = in.file(path, part)
		}
		if fail != nil {
			return fail
		}
	}
}

// partPath is the query's path, or the filename of the part with its
// directories. It may lead anywhere, as every path of the protocol may: it is
// the caller's token that is trusted, not the name.
func (in *receiver) partPath(part *multipart.Part) (string, *failure) {
	if in.query.Has("path") {
		return in.query.Get("path"), nil
	}
	// Part.FileName would cut the directories off.
	_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
	if err == nil && params["filename"] == "" {
		err = errors.New("filename not found in Content-Disposition header")
	}
	if err != nil {
		return "", &failure{http.StatusBadRequest, "error getting multipart custom part file name: " + err.Error()}
	}
	return params["filename"], nil
}

// file writes one file.
func (in *receiver) file(asked string, content io.Reader) *failure {
	path, err := in.fsys.Resolve(asked)
	if err != nil {
		return &failure{http.StatusBadRequest, "error resolving path: " + err.Error()}
	}
	for _, u := range in.done {
		if u.Path == path {
			return &failure{http.StatusBadRequest, in.twice(path)}
		}
	}
	entry, err := in.fsys.Write(path, content, in.metadata)
	if err != nil {
		return cmp.Or(notEnsured(err), &failure{restStatus(err), in.writeText(path, err)})
	}
	in.done = append(in.done, uploadedOf(entry, path))
	return nil
}

func (in *receiver) twice(path string) string {
	text := fmt.Sprintf("you cannot upload multiple files to the same path '%s' in one upload request, only the first specified file was uploaded", path)
	var others []string
	for _, u := range in.done {
		if u.Path != path {
			others = append(others, u.Path)
		}
	}
	if len(others) > 1 {
		text += ", also the following files were uploaded: " + strings.Join(others, ", ")
	}
	return text
}

func (in *receiver) writeText(path string, err error) string {
	invalid, isInvalid := errors.AsType[*files.InvalidError](err)
	switch {
	case files.IsBodyError(err):
		return "the upload broke off and its part was not kept: " + err.Error()
	case isInvalid:
		return "error resolving path: " + invalid.Error()
	case errors.Is(err, files.ErrIsDir):
		return "path is a directory: " + path
	case errors.Is(err, files.ErrNotRegular):
		return "path is not a regular file: " + path
	case errors.Is(err, files.ErrNoSpace) && in.length > 0:
		return fmt.Sprintf("attempted to write %d bytes: %v", in.length, files.ErrNoSpace)
	case errors.Is(err, files.ErrNoSpace):
		return files.ErrNoSpace.Error()
	}
	return "error writing file: " + err.Error()
}
