package envdfs

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"path/filepath"
	"strings"

	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/sandbox/driver"
)

// conditions are the headers that http.ServeContent answers, and only for
// the plain bytes of the file.
var conditions = []string{"Range", "If-Modified-Since", "If-None-Match", "If-Range"}

// zipChunk is how much of a zipped download is sent at once, in bytes: Node's
// fetch takes ten times as long for one that comes in chunks of a few KiB.
const zipChunk = 128 << 10

// download answers GET and HEAD /files.
func (f *Face) download(w http.ResponseWriter, r *http.Request) *failure {
	query := r.URL.Query()
	if fail := f.checkAccess(r, query, opRead); fail != nil {
		return fail
	}
	fsys, fail := f.fsFor(r.Context(), query.Get("username"))
	if fail != nil {
		return fail
	}
	content, info, path, fail := openFile(fsys, query.Get("path"))
	if fail != nil {
		return fail
	}
	defer content.Close()
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
	protocol.Inert(w.Header())
	w.Header().Set("Content-Disposition", mime.FormatMediaType("inline", map[string]string{"filename": name}))
	if !zip {
		http.ServeContent(w, r, name, info.ModTime(), content)
		return nil
	}
	w.Header().Set("Content-Type", cmp.Or(mime.TypeByExtension(filepath.Ext(name)), "application/octet-stream"))
	w.Header().Set("Content-Encoding", "gzip")
	if r.Method == http.MethodHead {
		return nil
	}
	bw := bufio.NewWriterSize(w, zipChunk)
	zw := gzip.NewWriter(bw)
	if _, err := io.Copy(zw, content); err != nil {
		// The status is sent. A gzip stream without its end is the only way
		// left to say that the bytes are not all.
		f.log.Warn("file download broke off", "path", path, "err", err)
		return nil
	}
	// A client that has left is no error of ours.
	if zw.Close() == nil {
		_ = bw.Flush()
	}
	return nil
}

// openFile opens the file for GET and words what fails as the original does.
func openFile(fsys driver.Files, asked string) (files.Content, fs.FileInfo, string, *failure) {
	path, err := fsys.Resolve(asked)
	if err != nil {
		return nil, nil, "", &failure{http.StatusBadRequest, fmt.Sprintf("error expanding and resolving path '%.200s': %v", asked, err)}
	}
	content, info, err := fsys.Open(path)
	switch {
	case err == nil:
		return content, info, path, nil
	case errors.Is(err, files.ErrNotExist):
		return nil, nil, "", &failure{http.StatusNotFound, fmt.Sprintf("path '%s' does not exist", path)}
	case errors.Is(err, files.ErrIsDir):
		return nil, nil, "", &failure{http.StatusBadRequest, fmt.Sprintf("path '%s' is a directory", path)}
	case errors.Is(err, files.ErrNotRegular):
		return nil, nil, "", &failure{http.StatusBadRequest, fmt.Sprintf("path '%s' is not a regular file", path)}
	}
	return nil, nil, "", &failure{restStatus(err), fmt.Sprintf("error opening file '%s': %v", path, err)}
}
