package native

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strings"

	"connectrpc.com/connect"

	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/process"
)

const (
	contentPath = "/tend.v1.FileService/Content"
	archivePath = "/tend.v1.FileService/Archive"
	watchPath   = "/tend.v1.FileService/Watch"
)

// plainFiles has files by plain HTTP, as the package comment says.
type plainFiles struct {
	*fileService
	errors *connect.ErrorWriter
}

// inert has a browser run nothing of what it gets, whatever is in it: a file of a sandbox
// is not to be a page of this origin.
func inert(h http.Header, name string) {
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	disposition := mime.FormatMediaType("attachment", map[string]string{"filename": name})
	if disposition == "" {
		disposition = "attachment"
	}
	h.Set("Content-Disposition", disposition)
}

// of returns the files that a request is for, and which of them it is about.
func (p plainFiles) of(r *http.Request) (f driver.Files, path string, err error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, "", &process.InvalidError{Field: "query", Reason: "cannot be read: " + err.Error()}
	}
	path = q.Get("path")
	f, err = p.at(r.Context(), r.Header, q.Get("user"), path)
	return f, path, err
}

func (p plainFiles) content() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var err error
		switch r.Method {
		case http.MethodGet, http.MethodHead:
			err = p.get(w, r)
		case http.MethodPut:
			err = p.put(w, r)
		default:
			w.Header().Set("Allow", "GET, HEAD, PUT")
			w.WriteHeader(http.StatusMethodNotAllowed)
		}
		if err != nil {
			_ = p.errors.Write(w, r, fileError(err)) // fails when the client has left
		}
	})
}

func (p plainFiles) get(w http.ResponseWriter, r *http.Request) error {
	f, name, err := p.of(r)
	if err != nil {
		return err
	}
	content, info, err := f.Open(name)
	if err != nil {
		return err
	}
	defer content.Close()
	inert(w.Header(), path.Base(name))
	w.Header().Set("ETag", `"`+files.Version(info)+`"`)
	http.ServeContent(w, r, "", info.ModTime(), content)
	return nil
}

// condition returns what a file must be so that it may be replaced.
func condition(h http.Header) (was string, err error) {
	match, none := h.Get("If-Match"), h.Get("If-None-Match")
	switch {
	case match == "" && none == "":
		return files.AnyVersion, nil
	case match == "*" && none == "":
		return files.SomeVersion, nil
	case match == "" && none == "*":
		return "", nil
	case none == "" && len(match) > 2 && len(match) < 128 && match[0] == '"' && strings.IndexByte(match[1:], '"') == len(match)-2:
		if was = match[1 : len(match)-1]; was != files.AnyVersion && was != files.SomeVersion {
			return was, nil
		}
	}
	return "", &process.InvalidError{Field: "If-Match",
		Reason: fmt.Sprintf("is %.80q, and If-None-Match %.20q; one ETag, or If-None-Match: *, or neither is allowed", match, none)}
}

func (p plainFiles) put(w http.ResponseWriter, r *http.Request) error {
	was, err := condition(r.Header)
	if err != nil {
		return err
	}
	if packed := r.Header.Get("Content-Encoding"); packed != "" {
		return &process.InvalidError{Field: "Content-Encoding", Reason: fmt.Sprintf("is %.40q; send the file as it is", packed)}
	}
	f, name, err := p.of(r)
	if err != nil {
		return err
	}
	_, version, err := f.Replace(r.Context(), name, r.Body, was)
	if err != nil {
		return err
	}
	w.Header().Set("ETag", `"`+version+`"`)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (p plainFiles) archive() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := false
		var err error
		if r.Method == http.MethodPut {
			err = p.unpack(w, r)
		} else {
			err = p.pack(w, r, &began)
		}
		switch {
		case err == nil:
		case began:
			// No end of the archive, and none of the answer: nobody takes it for whole.
			panic(http.ErrAbortHandler)
		default:
			inertNot(w.Header())
			_ = p.errors.Write(w, r, fileError(err)) // fails when the client has left
		}
	})
}

// inertNot takes back what is for an archive alone.
func inertNot(h http.Header) {
	for _, name := range []string{"Content-Disposition", "Content-Type"} {
		h.Del(name)
	}
}

// unpack makes a directory, and those above it, unless it is there, and unpacks the body below.
func (p plainFiles) unpack(w http.ResponseWriter, r *http.Request) error {
	f, name, err := p.of(r)
	if err != nil {
		return err
	}
	if _, err := f.Mkdir(name); err != nil && !errors.Is(err, files.ErrExists) {
		return err
	}
	_, err = f.Extract(r.Context(), r.Body, name, files.ExtractOptions{})
	if errors.Is(err, tar.ErrHeader) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &process.InvalidError{Field: "body", Reason: "is no whole tar: " + err.Error()}
	}
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

func (p plainFiles) pack(w http.ResponseWriter, r *http.Request, began *bool) error {
	f, name, err := p.of(r)
	if err != nil {
		return err
	}
	top, err := f.Resolve(name)
	if err != nil {
		return err
	}
	if top = path.Base(top); top == "/" {
		top = "root"
	}
	inert(w.Header(), top+".tar")
	w.Header().Set("Content-Type", "application/x-tar")
	// The headers of many small files go together.
	to := bufio.NewWriterSize(noted{w, began}, readPiece)
	if err := f.Archive(r.Context(), name, to); err != nil {
		return err
	}
	return to.Flush()
}

// noted notes that something was written.
type noted struct {
	http.ResponseWriter
	began *bool
}

func (n noted) Write(b []byte) (int, error) {
	*n.began = true
	return n.ResponseWriter.Write(b)
}
