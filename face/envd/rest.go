package envd

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
)

// maxInitBytes bounds the body of POST /init.
const maxInitBytes = 4 << 20

// health answers GET /health: 204 while the server serves.
func (f *Face) health(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusNoContent)
}

// init answers POST /init (envd.md §6).
func (f *Face) init(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxInitBytes))
	if err != nil {
		restError(w, http.StatusBadRequest, "the body could not be read: "+err.Error())
		return
	}
	var req initRequest
	if len(body) > 0 {
		if err := json.Unmarshal(body, &req); err != nil {
			restError(w, http.StatusBadRequest, "the body is not a JSON object of the form {\"envVars\": {…}, \"accessToken\": …}: "+err.Error())
			return
		}
	}
	var refused tokenError
	switch err := f.settings.apply(&req); {
	case errors.As(err, &refused):
		restError(w, http.StatusUnauthorized, refused.Error())
		return
	case err != nil:
		restError(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Envd-Version", f.version)
	w.WriteHeader(http.StatusNoContent)
}

// envs answers GET /envs with the variables every process gets.
func (f *Face) envs(w http.ResponseWriter, _ *http.Request) {
	cur := f.settings.get()
	writeJSON(w, cur.globalEnv())
}

// metrics answers GET /metrics.
func (f *Face) metrics(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, f.machine.sample())
}

func writeJSON(w http.ResponseWriter, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		restError(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "application/json")
	// A client that has left is no error of ours.
	_, _ = w.Write(append(text, '\n'))
}

// restError answers in the form of envd's REST endpoints.
func restError(w http.ResponseWriter, code int, message string) {
	text, err := json.Marshal(struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}{code, message})
	if err != nil { // impossible: a number and a string
		text = []byte("{}")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(text, '\n'))
}
