package sandboxd

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/files"
)

func (f *Face) get(w http.ResponseWriter, r *http.Request) error {
	name, err := f.place(r.PathValue("path"))
	if err != nil {
		return err
	}
	content, info, err := f.fs().Open(name)
	if errors.Is(err, files.ErrIsDir) {
		return f.list(w, r, name)
	}
	if err != nil {
		return err
	}
	defer content.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Etag", `"`+files.Version(info)+`"`)
	http.ServeContent(w, r, "", info.ModTime(), content)
	return nil
}

// entry of a directory.
type entry struct {
	Name     string `json:"name"`
	Size     int64  `json:"size"`
	Type     string `json:"type"`
	Modified string `json:"modified_at"`
	Mode     string `json:"mode"`
}

// entrySize is about what an entry takes beside its name, with its text, in bytes.
const entrySize = 256

// list answers with a directory. A link is shown as what it leads to; one that leads out, or nowhere, is left out.
func (f *Face) list(w http.ResponseWriter, r *http.Request, name string) error {
	held := f.cfg.Budget.Charge()
	defer held.Release()
	entries := []entry{}
	err := f.fs().Do(r.Context(), func(a *files.Actor) error {
		names, err := a.Names(name)
		if err != nil {
			return err
		}
		for _, n := range names {
			if err := errors.Join(a.Err(), held.Add(int64(entrySize+2*len(n.Name)))); err != nil {
				return err
			}
			info, err := a.Stat(strings.TrimSuffix(name, "/") + "/" + n.Name)
			if err != nil {
				continue
			}
			e := entry{n.Name, info.Size(), "file", info.ModTime().UTC().Format(time.RFC3339), fmt.Sprintf("%04o", info.Mode().Perm())}
			if info.IsDir() {
				e.Type = "directory"
			}
			entries = append(entries, e)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, struct {
		Path    string  `json:"path"`
		Entries []entry `json:"entries"`
	}{"/" + strings.TrimPrefix(r.PathValue("path"), "/"), entries})
}

// putMemory is what an upload holds, in bytes: the beginning of it, and what net/http has read.
const putMemory = 128 << 10

func (f *Face) put(w http.ResponseWriter, r *http.Request) error {
	mode := fs.FileMode(0o644)
	if text := r.URL.Query().Get("mode"); text != "" {
		n, err := strconv.ParseUint(text, 8, 9)
		if err != nil || len(text) != 4 || text[0] != '0' {
			return &files.InvalidError{Field: "mode", Reason: fmt.Sprintf("is %.20q; 0000 to 0777 are allowed, four digits", text)}
		}
		mode = fs.FileMode(n)
	}
	name, err := f.place(r.PathValue("path"))
	if err != nil {
		return err
	}
	was, err := wanted(r.Header)
	if err != nil {
		return err
	}
	held := f.cfg.Budget.Charge()
	defer held.Release()
	if err := held.Add(putMemory); err != nil {
		return err
	}
	body, err := content(r)
	if err != nil {
		return err
	}
	_, version, err := f.fs().Install(r.Context(), name, body, was, mode)
	if err != nil {
		return err
	}
	w.Header().Set("Etag", `"`+version+`"`)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// wanted is the version that a file must have for [files.FS.Install].
func wanted(h http.Header) (string, error) {
	match, none := h.Get("If-Match"), h.Get("If-None-Match")
	switch {
	case none == "*" && match == "":
		return "", nil
	case none != "":
		return "", &files.InvalidError{Field: "If-None-Match",
			Reason: fmt.Sprintf("is %.80q; it may be * alone, without If-Match", none)}
	case match == "":
		return files.AnyVersion, nil
	case match == "*":
		return files.SomeVersion, nil
	}
	version := strings.Trim(match, `"`)
	if match != `"`+version+`"` || version == "" || strings.ContainsAny(version, `*+",`) {
		return "", &files.InvalidError{Field: "If-Match", Reason: fmt.Sprintf("is %.80q; one ETag of a file, or *, is needed", match)}
	}
	return version, nil
}

// content is what a request brings for a file: its body, or the part "file" of a form.
func content(r *http.Request) (io.Reader, error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "multipart/form-data" {
		return r.Body, nil
	}
	form, err := r.MultipartReader()
	for err == nil {
		part, next := form.NextPart()
		if next == nil && part.FormName() == "file" {
			return part, nil
		}
		err = next
	}
	reason := "is no form: " + err.Error()
	if errors.Is(err, io.EOF) {
		reason = `has no part "file"`
	}
	return nil, &files.InvalidError{Field: "body", Reason: reason}
}

func (f *Face) remove(w http.ResponseWriter, r *http.Request) error {
	name, err := f.place(r.PathValue("path"))
	if err != nil {
		return err
	}
	recursive := false
	text := r.URL.Query().Get("recursive")
	if text != "" {
		if recursive, err = strconv.ParseBool(text); err != nil {
			return &files.InvalidError{Field: "recursive", Reason: fmt.Sprintf("is %.20q; true or false is needed", text)}
		}
	}
	isRoot := name == f.cfg.Root
	if isRoot && !recursive {
		return &fault{http.StatusConflict, "CONFLICT", "the root is not removed; recursive=true removes what is in it"}
	}
	switch {
	case isRoot:
		err = f.fs().Do(r.Context(), func(a *files.Actor) error {
			names, err := a.Names(name)
			for _, n := range names {
				if err == nil {
					err = errors.Join(a.Err(), a.Remove(strings.TrimSuffix(name, "/")+"/"+n.Name))
				}
			}
			return err
		})
	case recursive:
		err = f.fs().Do(r.Context(), func(a *files.Actor) error {
			if _, err := a.Lstat(name); err != nil {
				return err
			}
			return a.Remove(name)
		})
	default:
		err = f.fs().RemoveOne(name)
	}
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}
