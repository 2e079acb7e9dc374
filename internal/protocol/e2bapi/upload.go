package e2bapi

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/protocol"
)

const (
	uploadPath = "/-/e2b/uploads/"
	uploadTime = time.Hour // how long a link is good
)

// fileLink answers whether the files of a COPY are here, and where to send them. A
// client may want to send them though they are.
func (f *Face) fileLink(w http.ResponseWriter, r *http.Request) error {
	if _, err := f.templater(); err != nil {
		return err
	}
	hash := r.PathValue("hash")
	if !isHash.MatchString(hash) {
		return badRequest("the hash %.80q is no SHA-256 in hex digits", hash)
	}
	expires := strconv.FormatInt(time.Now().Add(uploadTime).Unix(), 10)
	url := f.origin(r) + uploadPath + strings.Join([]string{hash, expires, f.secret.Sign("upload", hash, expires)}, ".")
	writeJSON(w, http.StatusCreated, map[string]any{"present": f.store.has(hash), "url": url})
	return nil
}

// upload takes the files of a COPY. The path is the proof that the caller may.
func (f *Face) upload(w http.ResponseWriter, r *http.Request) {
	hash, rest, _ := strings.Cut(r.PathValue("token"), ".")
	expires, mac, _ := strings.Cut(rest, ".")
	at, err := strconv.ParseInt(expires, 10, 64)
	switch {
	case f.store == nil, err != nil, !isHash.MatchString(hash), !protocol.Token(f.secret.Sign("upload", hash, expires)).Matches(mac):
		f.refuse(w, &problem{http.StatusForbidden, "this is no link for an upload; ask for a new one"})
		return
	case time.Now().Unix() >= at:
		f.refuse(w, &problem{http.StatusForbidden, "the link for the upload has expired; ask for a new one"})
		return
	case r.ContentLength > maxUpload:
		f.refuse(w, &problem{http.StatusRequestEntityTooLarge, fmt.Sprintf("the upload has %d bytes; the limit is %d",
			r.ContentLength, int64(maxUpload))})
		return
	}
	err = f.store.put(hash, http.MaxBytesReader(w, r.Body, maxUpload))
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		err = &problem{http.StatusRequestEntityTooLarge, fmt.Sprintf("the upload is larger than %d bytes", large.Limit)}
	}
	if err != nil {
		f.refuse(w, err)
		return
	}
	w.WriteHeader(http.StatusOK)
}
