package sandboxd

import (
	"encoding/json"
	"errors"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/lib/budget"
)

// rest answers on the listener for REST. The patterns are the original's, which decide about slashes and
// unknown methods.
func (f *Face) rest() http.Handler {
	mux := http.NewServeMux()
	for pattern, h := range map[string]func(http.ResponseWriter, *http.Request) error{
		"GET /v1/files/{path...}": f.get, "PUT /v1/files/{path...}": f.put, "DELETE /v1/files/{path...}": f.remove,
		"GET /v1/health": f.health,
		"GET /v1/metadata": func(w http.ResponseWriter, _ *http.Request) error {
			return answer(w, http.StatusOK, map[string]any{"env": f.metadata})
		},
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := h(w, r); err != nil {
				refuse(w, r, err)
			}
		})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Origin") != "" {
			refuse(w, r, &fault{http.StatusForbidden, "PERMISSION_DENIED", "the header Origin says that a web page sent this, which no client is"})
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func (f *Face) health(w http.ResponseWriter, _ *http.Request) error {
	if f.cfg.Stopping() {
		return &fault{http.StatusServiceUnavailable, "UNAVAILABLE", "the daemon is ending"}
	}
	return answer(w, http.StatusOK, struct {
		Status string `json:"status"`
		Uptime int64  `json:"uptime_seconds"`
	}{"ok", int64(time.Since(f.began).Seconds())})
}

func answer(w http.ResponseWriter, status int, body any) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may be gone
	return nil
}

// fault is an error as clients see it.
type fault struct {
	status        int
	code, message string
}

func (e *fault) Error() string { return e.message }

// refuse answers with an error.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	e := faultOf(r.Method, err)
	_ = answer(w, e.status, map[string]string{"code": e.code, "message": e.message})
}

// faultOf is the one table from the errors of the domain to those of REST.
func faultOf(method string, err error) *fault {
	if e, ok := errors.AsType[*fault](err); ok {
		return e
	}
	is := func(all ...error) bool {
		for _, one := range all {
			if errors.Is(err, one) {
				return true
			}
		}
		return false
	}
	put := method == http.MethodPut
	_, invalid := errors.AsType[*files.InvalidError](err)
	_, busy := errors.AsType[*budget.BusyError](err)
	e := &fault{http.StatusInternalServerError, "INTERNAL", err.Error()}
	switch {
	case busy: // clients try again
		e.status, e.code = http.StatusServiceUnavailable, "UNAVAILABLE"
	case is(files.ErrOutside, files.ErrPermission):
		e.status, e.code = http.StatusForbidden, "PERMISSION_DENIED"
	case put && is(files.ErrChanged, files.ErrExists):
		e.status, e.code = http.StatusPreconditionFailed, "FAILED_PRECONDITION"
	case is(files.ErrExists, files.ErrBusy):
		e.status, e.code = http.StatusConflict, "CONFLICT"
	case is(files.ErrNotExist), !put && is(files.ErrNotDir):
		e.status, e.code = http.StatusNotFound, "NOT_FOUND"
	case invalid, is(files.ErrIsDir, files.ErrNotDir, files.ErrNotRegular, files.ErrEndless, files.ErrTooMany, files.ErrLoop),
		files.IsBodyError(err):
		e.status, e.code = http.StatusBadRequest, "INVALID_ARGUMENT"
	}
	return e
}

// fs does file operations within the root.
func (f *Face) fs() files.FS { return files.FS{User: f.user, Within: f.cfg.Root} }

// place is where a path of a client is, an absolute path. It may lead out of the root; fs refuses that.
func (f *Face) place(name string) (string, error) {
	name = path.Clean(name)
	if root := f.cfg.Root; name != root && !strings.HasPrefix(name, root+"/") {
		name = path.Join(root, name)
	}
	return f.fs().Resolve(name)
}
