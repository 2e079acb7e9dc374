package e2bapi

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/protocol/module"
	"github.com/tend-run/tend/internal/sandbox/driver"
)

// contentPath has the files of volumes. A caller shows the token of the volume, and no key.
const contentPath = "/volumecontent/"

// entryJSON is a path in a volume.
type entryJSON struct {
	Name   string `json:"name"`
	Type   string `json:"type"` // unknown, file, directory, symlink
	Path   string `json:"path"`
	Size   int64  `json:"size"`
	Mode   uint32 `json:"mode"`
	UID    uint32 `json:"uid"`
	GID    uint32 `json:"gid"`
	Atime  string `json:"atime"`
	Mtime  string `json:"mtime"`
	Ctime  string `json:"ctime"`
	Target string `json:"target,omitempty"`
}

func entryOf(e *driver.VolumeEntry) entryJSON {
	j := entryJSON{
		Name: e.Name, Type: "unknown", Path: e.Path, Size: e.Info.Size(), Mode: uint32(e.Info.Mode().Perm()), UID: e.UID, GID: e.GID,
		Atime: stamp(e.Accessed), Mtime: stamp(e.Info.ModTime()), Ctime: stamp(e.Changed), Target: e.Target,
	}
	switch {
	case e.Info.Mode().IsRegular():
		j.Type = "file"
	case e.Info.IsDir():
		j.Type = "directory"
	case e.Target != "":
		j.Type = "symlink"
	}
	return j
}

// contentHandler answers a request about the files of one volume.
type contentHandler func(http.ResponseWriter, *http.Request, driver.VolumeFiles) error

func (f *Face) contentRoute() module.Route {
	mux := http.NewServeMux()
	for pattern, h := range map[string]contentHandler{
		"GET /volumecontent/{id}/file":    readContent,
		"PUT /volumecontent/{id}/file":    writeContent,
		"GET /volumecontent/{id}/dir":     f.listContent,
		"POST /volumecontent/{id}/dir":    makeContentDir,
		"GET /volumecontent/{id}/path":    statContent,
		"PATCH /volumecontent/{id}/path":  changeContent,
		"DELETE /volumecontent/{id}/path": removeContent,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := f.content(w, r, h); err != nil {
				f.refuseContent(w, r, err)
			}
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		f.refuseContent(w, r, &problem{http.StatusNotFound, r.Method + " " + r.URL.Path + " is no path of this API"})
	})
	return module.Route{Pattern: contentPath, Handler: mux, Access: module.Own, Body: func(path string) module.Body {
		if strings.HasSuffix(path, "/file") {
			return module.File
		}
		return module.Fields
	}}
}

// content lets h act, for a caller with the token. Nothing is looked for before that.
func (f *Face) content(w http.ResponseWriter, r *http.Request, h contentHandler) error {
	id := driver.VolumeID(r.PathValue("id"))
	if !f.volumeToken(id).Matches(protocol.Bearer(r)) {
		return &problem{http.StatusUnauthorized, "the files of a volume need its token, " +
			"which is in the answer to GET /volumes/ID, as a bearer token"}
	}
	limit := int64(maxBody)
	if r.Method == http.MethodPut {
		limit = maxUpload
	}
	r.Body = http.MaxBytesReader(w, r.Body, limit)
	vs, err := f.volumer()
	if err != nil {
		return err
	}
	content, err := vs.VolumeFiles(r.Context(), id)
	if err != nil {
		return noVolume(r.PathValue("id"), err)
	}
	defer content.Close()
	return h(w, r, content)
}

// refuseContent is refuse in the form of this API: the code is a string.
func (f *Face) refuseContent(w http.ResponseWriter, r *http.Request, err error) {
	p, path := problemOf(err), r.URL.Query().Get("path")
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		p = &problem{http.StatusRequestEntityTooLarge, fmt.Sprintf("the upload is larger than %d bytes", large.Limit)}
	}
	switch {
	case errors.Is(err, files.ErrNotExist):
		p.text = fmt.Sprintf("Path %s not found", path)
	case errors.Is(err, files.ErrExists):
		p.text = fmt.Sprintf("Path %s already exists", path)
	case errors.Is(err, files.ErrIsDir):
		p.text = fmt.Sprintf("Path %s is a directory", path)
	case errors.Is(err, files.ErrPermission):
		p.text = fmt.Sprintf("Path %s leads out of the volume, or may not be changed by the server", path)
	}
	if p.status == http.StatusInternalServerError {
		f.log.Warn("request failed", "face", "e2b", "err", err)
	}
	w.Header().Set("Should-Retry", "false")
	writeJSON(w, p.status, map[string]any{"code": strconv.Itoa(p.status), "message": strings.ToValidUTF8(p.text, "\uFFFD")})
}

// pathOf is the path that a request names.
func pathOf(r *http.Request) (string, error) {
	if p := r.URL.Query().Get("path"); p != "" {
		return p, nil
	}
	return "", badRequest("path is missing")
}

// attrOf reads owner, mode and force of a request.
func attrOf(r *http.Request) (path string, a driver.VolumeAttr, force bool, err error) {
	if path, err = pathOf(r); err != nil {
		return path, a, force, err
	}
	q := r.URL.Query()
	for name, to := range map[string]**uint32{"uid": &a.UID, "gid": &a.GID, "mode": &a.Mode} {
		if text := q.Get(name); text != "" {
			n, err := strconv.ParseUint(text, 10, 32)
			if err != nil {
				return path, a, force, badRequest("%s is %.20q; a number is needed", name, text)
			}
			*to = new(uint32(n))
		}
	}
	if text := q.Get("force"); text != "" {
		if force, err = strconv.ParseBool(text); err != nil {
			return path, a, force, badRequest("force is %.20q; true or false is needed", text)
		}
	}
	return path, a, force, nil
}

func readContent(w http.ResponseWriter, r *http.Request, content driver.VolumeFiles) error {
	path, err := pathOf(r)
	if err != nil {
		return err
	}
	file, info, err := content.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Cache-Control", "no-store")
	http.ServeContent(w, r, "", info.ModTime(), file)
	return nil
}

func writeContent(w http.ResponseWriter, r *http.Request, content driver.VolumeFiles) error {
	path, a, force, err := attrOf(r)
	if err != nil {
		return err
	}
	e, err := content.Write(path, r.Body, a, force)
	return entryAnswer(w, http.StatusCreated, &e, err)
}

func makeContentDir(w http.ResponseWriter, r *http.Request, content driver.VolumeFiles) error {
	path, a, force, err := attrOf(r)
	if err != nil {
		return err
	}
	e, err := content.Mkdir(path, a, force)
	return entryAnswer(w, http.StatusCreated, &e, err)
}

func statContent(w http.ResponseWriter, r *http.Request, content driver.VolumeFiles) error {
	path, err := pathOf(r)
	if err != nil {
		return err
	}
	e, err := content.Stat(path)
	return entryAnswer(w, http.StatusOK, &e, err)
}

func changeContent(w http.ResponseWriter, r *http.Request, content driver.VolumeFiles) error {
	var req struct{ UID, GID, Mode *uint32 }
	if err := decode(r, &req); err != nil {
		return err
	}
	path, err := pathOf(r)
	if err != nil {
		return err
	}
	e, err := content.Change(path, driver.VolumeAttr(req))
	return entryAnswer(w, http.StatusOK, &e, err)
}

func entryAnswer(w http.ResponseWriter, status int, e *driver.VolumeEntry, err error) error {
	if err == nil {
		writeJSON(w, status, entryOf(e))
	}
	return err
}

func removeContent(w http.ResponseWriter, r *http.Request, content driver.VolumeFiles) error {
	path, err := pathOf(r)
	if err != nil {
		return err
	}
	if err := content.Remove(path); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// listContent holds the whole list, so few are made at a time.
func (f *Face) listContent(w http.ResponseWriter, r *http.Request, content driver.VolumeFiles) error {
	path, err := pathOf(r)
	if err != nil {
		return err
	}
	depth := 1
	if text := r.URL.Query().Get("depth"); text != "" {
		if depth, err = strconv.Atoi(text); err != nil {
			return badRequest("depth is %.20q; a number is needed", text)
		}
	}
	select {
	case f.logging <- struct{}{}:
	case <-r.Context().Done():
		return r.Context().Err()
	}
	defer func() { <-f.logging }()
	all, err := content.List(r.Context(), path, max(depth, 1))
	if err != nil {
		return err
	}
	list := make([]entryJSON, len(all))
	for i := range all {
		list[i] = entryOf(&all[i])
	}
	writeJSON(w, http.StatusOK, list)
	return nil
}
