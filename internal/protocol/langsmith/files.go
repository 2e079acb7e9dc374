package langsmith

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/sandbox/driver"
)

// upload writes one file: POST /upload?path=, a form with the part "file".
func (f *Face) upload(w http.ResponseWriter, r *http.Request, box driver.Sandbox) error {
	path := r.URL.Query().Get("path")
	if path == "" {
		return requestErrorf("path is missing; call /upload?path=FILE")
	}
	// A slow client may take its time; one that has vanished may not.
	if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(uploadTimeout)); err != nil &&
		!errors.Is(err, http.ErrNotSupported) {
		return err
	}
	form, err := r.MultipartReader()
	if err != nil {
		return requestErrorf("the body is no multipart/form-data: %v", err)
	}
	for {
		part, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			return requestErrorf("the form has no part named \"file\"")
		}
		if err != nil {
			return requestErrorf("the form is broken: %v", err)
		}
		if part.FormName() != "file" {
			continue
		}
		fsys, err := box.Files("", "")
		if err != nil {
			return err
		}
		entry, err := fsys.Write(path, part, nil)
		switch {
		case files.IsBodyError(err):
			return requestErrorf("the upload broke off: %v", err)
		case err != nil:
			f.refuseFile(w, kindWrite, err)
			return nil
		}
		writeJSON(w, http.StatusOK, map[string]any{"path": entry.Path, "size_bytes": entry.Size})
		return nil
	}
}

// uploadTimeout bounds an upload.
const uploadTimeout = 30 * time.Minute

// download reads a file or a part of it: GET and HEAD /download?path=.
func (f *Face) download(w http.ResponseWriter, r *http.Request, box driver.Sandbox) error {
	path := r.URL.Query().Get("path")
	if path == "" {
		return requestErrorf("path is missing; call /download?path=FILE")
	}
	f.serveFile(w, r, box, &grant{Path: path, Disposition: "attachment"})
	return nil
}

// serveFile answers with a file, its ETag and the range that was asked for. Of
// the grant, path, type and disposition count.
func (f *Face) serveFile(w http.ResponseWriter, r *http.Request, box driver.Sandbox, g *grant) {
	fsys, err := box.Files("", "")
	if err != nil {
		f.refuse(w, err)
		return
	}
	file, info, err := fsys.Open(g.Path)
	if err != nil {
		f.refuseFile(w, kindRead, err)
		return
	}
	defer file.Close()
	h := w.Header()
	h.Set("Content-Type", cmp.Or(g.Type, mime.TypeByExtension(filepath.Ext(g.Path)), "application/octet-stream"))
	h.Set("ETag", etag(info))
	h.Set("Cache-Control", "no-cache")
	protocol.Inert(h)
	if g.Disposition != "" {
		name := strings.ToValidUTF8(filepath.Base(g.Path), "\uFFFD")
		h.Set("Content-Disposition", mime.FormatMediaType(g.Disposition, map[string]string{"filename": name}))
	}
	http.ServeContent(&detailed{ResponseWriter: w}, r, "", info.ModTime(), file)
}

// etag changes with each write: it is made of inode, size and the time of the
// last change in nanoseconds.
func etag(info fs.FileInfo) string {
	inode, changed := identity(info)
	return fmt.Sprintf(`"%x-%x-%x-%x"`, inode, info.Size(), info.ModTime().UnixNano(), changed)
}

// detailed gives the errors of http.ServeContent the body that the SDKs read.
type detailed struct {
	http.ResponseWriter
	refused bool
}

func (d *detailed) WriteHeader(status int) {
	if status < 400 {
		d.ResponseWriter.WriteHeader(status)
		return
	}
	d.refused = true
	text := "the file could not be read"
	if status == http.StatusRequestedRangeNotSatisfiable {
		text = "the range is not in the file, which has " + strings.TrimPrefix(d.Header().Get("Content-Range"), "bytes */") + " bytes"
	}
	writeError(d.ResponseWriter, status, kindRead, text)
}

func (d *detailed) Write(b []byte) (int, error) {
	if d.refused {
		return len(b), nil
	}
	return d.ResponseWriter.Write(b)
}

// ReadFrom keeps sendfile for the body.
func (d *detailed) ReadFrom(r io.Reader) (int64, error) {
	if d.refused {
		return io.Copy(io.Discard, r)
	}
	return io.Copy(d.ResponseWriter, r)
}
