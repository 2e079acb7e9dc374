package envd

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/tend-run/tend/driver"
	"github.com/tend-run/tend/driver/route"
	"github.com/tend-run/tend/files"
)

// port is where clients of this protocol find it in each sandbox.
const port = 49983

type targetKey struct{}

// routed finds the sandbox that a request is for. The context has it, unless it is
// the default one.
func (f *Face) routed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t, err := f.sandboxes.Of(r)
		var unknown *route.UnknownError
		switch {
		case errors.As(err, &unknown):
			refuseSandbox(w, &sandboxError{SandboxID: unknown.ID, Message: "The sandbox was not found"})
			return
		case err != nil:
			restError(w, http.StatusInternalServerError, err.Error())
			return
		case t.ID == "":
		case t.Port != 0 && t.Port != port:
			refuseSandbox(w, &sandboxError{SandboxID: string(t.ID), Message: "The sandbox is running but port is not open", Port: t.Port})
			return
		default:
			r = r.WithContext(context.WithValue(r.Context(), targetKey{}, t.Access))
		}
		next.ServeHTTP(w, r)
	})
}

// in returns the sandbox of a request.
func (f *Face) in(ctx context.Context) driver.Access {
	if a, ok := ctx.Value(targetKey{}).(driver.Access); ok {
		return a
	}
	return f.sandboxes.Default
}

// settingsIn returns the settings of a request's sandbox: /init is for the default
// one. Others have theirs from their driver.
func (f *Face) settingsIn(ctx context.Context) saved {
	if ctx.Value(targetKey{}) != nil {
		return saved{}
	}
	return f.settings.get()
}

// DefaultUser names the user of requests that name none; "": the sandbox's own.
func (f *Face) DefaultUser(ctx context.Context) string { return f.settingsIn(ctx).DefaultUser }

// Files returns the files of a request's sandbox for a user, who may be the
// default one. An error that is not files.ErrPermission means that there is no
// such user.
func (f *Face) Files(ctx context.Context, user string) (driver.Files, error) {
	if !isName(user) && user != "" {
		return nil, files.ErrUnknownUser
	}
	return f.in(ctx).Files(user, f.settingsIn(ctx).DefaultWorkdir)
}

// isName reports whether text can be the name of a user. Numbers are none in this
// protocol.
func isName(text string) bool { return text != "" && (text[0] < '0' || text[0] > '9') }

// sandboxError is the answer of the original where a sandbox cannot be reached.
type sandboxError struct {
	SandboxID string `json:"sandboxId"`
	Message   string `json:"message"`
	Port      int    `json:"port,omitempty"`
	Code      int    `json:"code"`
}

func refuseSandbox(w http.ResponseWriter, e *sandboxError) {
	e.Code = http.StatusBadGateway
	text, err := json.Marshal(e)
	if err != nil { // impossible: strings and numbers
		text = nil
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(e.Code)
	_, _ = w.Write(text) // fails when the client has left
}
