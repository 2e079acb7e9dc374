package envdfs

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/tend-run/tend/files"
)

// conditions are the headers that http.ServeContent answers, and only for
// the plain bytes of the file.
var conditions = []string{"Range", "If-Modified-Since", "If-None-Match", "If-Range"}

// download answers GET and HEAD /files.
func (f *Face) download(w http.ResponseWriter, r *http.Request) {
	if fail := f.serveFile(w, r); fail != nil {
		fail.write(w)
	}
}

func (f *Face) serveFile(w http.ResponseWriter, r *http.Request) *failure {
	query := r.URL.Query()
	if fail := f.checkAccess(r, query, opRead); fail != nil {
		return fail
	}
	fsys, fail := f.fsFor(query.Get("username"))
	if fail != nil {
		return fail
	}
	file, path, fail := openFile(fsys, query.Get("path"))
	if fail != nil {
		return fail
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return &failure{http.StatusInternalServerError, err.Error()}
	}
	content, fail := contentOf(file, info.Size(), path)
	if fail != nil {
		return fail
	}
	zip, plainRefused, err := useGzip(strings.Join(r.Header.Values("Accept-Encoding"), ","))
	if err != nil {
		return &failure{http.StatusNotAcceptable, "error parsing Accept-Encoding: " + err.Error()}
	}
	w.Header().Set("Vary", "Accept-Encoding")
	for _, name := range conditions {
		if r.Header.Get(name) == "" {
			continue
		}
		if zip = false; plainRefused {
			return &failure{http.StatusNotAcceptable, "identity encoding not acceptable for Range or conditional request"}
		}
	}
	name := strings.ToValidUTF8(filepath.Base(path), "\uFFFD")
	w.Header().Set("Content-Disposition", mime.FormatMediaType("inline", map[string]string{"filename": name}))
	if !zip {
		http.ServeContent(w, r, name, info.ModTime(), content)
		return nil
	}
	kind := mime.TypeByExtension(filepath.Ext(name))
	if kind == "" {
		kind = "application/octet-stream"
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Encoding", "gzip")
	if r.Method == http.MethodHead {
		return nil
	}
	zw := gzip.NewWriter(w)
	if _, err := io.Copy(zw, content); err != nil {
		// The status is sent. A gzip stream without its end is the only way
		// left to say that the bytes are not all.
		f.log.Warn("file download broke off", "path", path, "err", err)
		return nil
	}
	// A client that has left is no error of ours.
	_ = zw.Close()
	return nil
}

const (
	// unsureSize is up to which size a file may have another one: those of
	// /proc say 0 and those of /sys a page, whatever is in them.
	unsureSize = 4096
	// maxUnsized bounds what is read of a file that has more than it said.
	maxUnsized = 16 << 20
)

// contentOf returns what is in the file. Where its size cannot be trusted it
// is read at once, as ranges and lengths are made from the size.
func contentOf(file *os.File, size int64, path string) (io.ReadSeeker, *failure) {
	if size > unsureSize {
		return file, nil
	}
	data, err := io.ReadAll(io.LimitReader(file, maxUnsized+1))
	switch {
	case err != nil:
		return nil, &failure{http.StatusInternalServerError, fmt.Sprintf("error reading file '%s': %v", path, err)}
	case len(data) > maxUnsized:
		return nil, &failure{http.StatusInternalServerError, fmt.Sprintf("file '%s' says it has %d bytes and has more than %d; read it with a command", path, size, maxUnsized)}
	}
	return bytes.NewReader(data), nil
}

// openFile opens the file for GET and words what fails as the original does.
func openFile(fsys files.FS, asked string) (*os.File, string, *failure) {
	path, err := fsys.Resolve(asked)
	if err != nil {
		return nil, "", &failure{http.StatusBadRequest, fmt.Sprintf("error expanding and resolving path '%.200s': %v", asked, err)}
	}
	file, _, err := fsys.Open(path)
	switch {
	case err == nil:
		return file, path, nil
	case errors.Is(err, files.ErrNotExist):
		return nil, "", &failure{http.StatusNotFound, fmt.Sprintf("path '%s' does not exist", path)}
	case errors.Is(err, files.ErrIsDir):
		return nil, "", &failure{http.StatusBadRequest, fmt.Sprintf("path '%s' is a directory", path)}
	case errors.Is(err, files.ErrNotRegular):
		return nil, "", &failure{http.StatusBadRequest, fmt.Sprintf("path '%s' is not a regular file", path)}
	}
	return nil, "", &failure{restStatus(err), fmt.Sprintf("error opening file '%s': %v", path, err)}
}
