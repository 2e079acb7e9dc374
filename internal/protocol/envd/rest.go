package envd

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/sandbox/driver"
)

// maxInitBytes bounds the body of POST /init.
const maxInitBytes = 4 << 20

const (
	// maxProof bounds the body of a POST /init that does not show the token in
	// its header, in bytes, and proofTime how long it may take to arrive.
	maxProof  = 16 << 10
	proofTime = time.Second
)

// mayProveInBody: the original excepts POST /init from the token, as the body
// names it, and so has to read what anybody sends. Here the body stands in for
// the header only if it is short and comes at once. E2B's orchestrator sends
// both.
func mayProveInBody(r *http.Request) bool {
	return r.Method == http.MethodPost && protocol.AccessToken(r) == "" && r.ContentLength >= 0 && r.ContentLength <= maxProof
}

// health answers GET /health: 204 while the server serves.
func (f *Face) health(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusNoContent)
}

// healthOf answers for a sandbox or the machine, and below the name of the control plane
// as that does.
func (f *Face) healthOf() http.Handler {
	inside := f.Wrap(http.HandlerFunc(f.health))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !f.sandboxes.IsAPI(r) {
			inside.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, "Health check successful") // fails when the client has left
	})
}

// init answers POST /init (envd.md §6).
func (f *Face) init(w http.ResponseWriter, r *http.Request) {
	if targetOf(r.Context()) != nil {
		restError(w, http.StatusBadRequest, "/init is not for this sandbox: it has the settings that it was created with")
		return
	}
	if cur := f.settings.get().AccessToken; cur.Set() && !cur.Matches(protocol.AccessToken(r)) && r.ContentLength != 0 {
		ctx, cancel := context.WithTimeout(r.Context(), proofTime)
		defer cancel()
		defer endReadsWith(ctx, http.NewResponseController(w))()
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxInitBytes))
	if busy, ok := errors.AsType[*budget.BusyError](err); ok {
		w.Header().Set("Retry-After", "1")
		restError(w, http.StatusTooManyRequests, busy.Error())
		return
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		w.Header().Set("Connection", "close")
		restError(w, http.StatusUnauthorized, "the body did not come; show the access token in X-Access-Token")
		return
	}
	if err != nil {
		restError(w, http.StatusBadRequest, "the body could not be read: "+err.Error())
		return
	}
	var req initRequest
	if len(body) > 0 {
		if err := protocol.DecodeJSON(body, &req); err != nil {
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
func (f *Face) envs(w http.ResponseWriter, r *http.Request) {
	cur := f.settingsIn(r.Context())
	env := cur.globalEnv()
	if t := targetOf(r.Context()); t != nil { // its driver gives them
		maps.Copy(env, driver.Told(t.ID, t.Info.E2BTemplate))
	}
	writeJSON(w, env)
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
	w.Header().Set("Content-Length", strconv.Itoa(len(text)+1))
	w.WriteHeader(code)
	_, _ = w.Write(append(text, '\n'))
}
