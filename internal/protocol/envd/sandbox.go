package envd

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"syscall"

	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/protocol/envd/envdfs"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/route"
	"github.com/tend-run/tend/process"
)

// port is where clients of this protocol find it in each sandbox.
const port = route.EnvdPort

type targetKey struct{}

const noSandbox = "The sandbox was not found"

// routed finds the sandbox that a request is for. The context has it, unless it is
// the default one.
func (f *Face) routed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t, err := f.sandboxes.Of(r)
		if err == nil && t.ID == "" {
			t, err = f.unnamed(r, t)
		}
		var unknown *route.UnknownError
		switch {
		case errors.As(err, &unknown):
			refuseSandbox(w, &sandboxError{SandboxID: unknown.ID, Message: noSandbox})
			return
		case errors.Is(err, errSignature):
			restError(w, http.StatusUnauthorized, err.Error())
			return
		case errors.Is(err, errSearches):
			w.Header().Set("Retry-After", "1")
			restError(w, http.StatusTooManyRequests, err.Error())
			return
		case err != nil:
			restError(w, http.StatusInternalServerError, err.Error())
			return
		case t.ID == "":
		case t.Port != 0 && t.Port != port:
			refuseSandbox(w, &sandboxError{SandboxID: string(t.ID), Message: "The sandbox is running but port is not open", Port: t.Port})
			return
		default:
			budget.Of(r.Context()).For(budget.Sandbox(t.ID))
			r = r.WithContext(context.WithValue(r.Context(), targetKey{}, &t))
		}
		next.ServeHTTP(w, r)
	})
}

// targetOf returns the sandbox of a request; nil: the default one.
func targetOf(ctx context.Context) *route.Target {
	t, _ := ctx.Value(targetKey{}).(*route.Target)
	return t
}

// in returns the sandbox of a request.
func (f *Face) in(ctx context.Context) driver.Access {
	if t := targetOf(ctx); t != nil {
		return t.Access
	}
	return f.sandboxes.Default
}

// maxSearches is how many requests may wait until their sandbox is found.
const maxSearches = 64

var (
	errSignature = errors.New("invalid signature")
	errSearches  = errors.New("too many requests at once that name no sandbox; try again, or name it in the header E2b-Sandbox-Id")
)

// unnamed finds the sandbox of a request that names none. Who opens the signed URL of a
// file sends no header, and some versions of E2B's clients (connect of the Python
// package 2.20) show the sandbox's token alone. t is where the request goes if it is not
// meant for a sandbox: the default one. What was meant for a sandbox that has ended is
// not done on the machine.
func (f *Face) unnamed(r *http.Request, t route.Target) (route.Target, error) {
	shown, own := protocol.AccessToken(r), f.settings.get().AccessToken
	switch query := r.URL.Query(); {
	case f.secret == nil || f.sandboxes.Driver == nil || r.Header.Get("E2b-Sandbox-Id") != "":
	case protocol.ForSandbox(shown) && !own.Matches(shown):
		found, err := f.search(r, func(id string) bool { return f.secret.SandboxToken(id).Matches(shown) })
		if err == nil && found == "" {
			err = &route.UnknownError{}
		}
		if err != nil {
			return t, err
		}
		return f.sandboxes.Find(r.Context(), found)
	case r.URL.Path == "/files" && shown == "" && signable(r) && query.Has("signature"):
		found, err := f.search(r, func(id string) bool {
			return envdfs.Signed(query, envdfs.Operation(r), f.secret.SandboxToken(id))
		})
		switch {
		case err != nil:
			return t, err
		case found != "":
			return f.sandboxes.Find(r.Context(), found)
		case !own.Set(): // with one, it may be signed for the machine
			return t, errSignature
		}
	}
	return t, nil
}

// search returns the ID of the sandbox that a request is for; "": of none. There is one
// search at a time: it is the work of one processor at most, whoever asks. Those who
// wait are few: strangers may ask.
func (f *Face) search(r *http.Request, isFor func(id string) bool) (string, error) {
	defer f.searches.Add(-1)
	if f.searches.Add(1) > maxSearches {
		return "", errSearches
	}
	select {
	case f.searching <- struct{}{}:
		defer func() { <-f.searching }()
	case <-r.Context().Done():
		return "", r.Context().Err()
	}
	infos, err := f.sandboxes.Driver.List(r.Context())
	if err != nil {
		return "", err
	}
	found := ""
	for i := range infos {
		if id := string(infos[i].ID); isFor(id) {
			found = id
		}
	}
	return found, nil
}

// ended reports whether a process was killed together with its sandbox.
func (f *Face) ended(t *route.Target, exit *process.Exit) bool {
	if t == nil || exit == nil || exit.Signal != int(syscall.SIGKILL) {
		return false
	}
	_, err := f.sandboxes.Find(context.Background(), string(t.ID))
	_, unknown := errors.AsType[*route.UnknownError](err)
	return unknown
}

// settingsIn returns the settings of a request's sandbox: /init is for the default
// one. Others have theirs from their driver.
func (f *Face) settingsIn(ctx context.Context) saved {
	if targetOf(ctx) != nil {
		return saved{}
	}
	return f.settings.get()
}

// DefaultUser names the user of requests that name none; "": the sandbox's own.
func (f *Face) DefaultUser(ctx context.Context) string { return f.settingsIn(ctx).DefaultUser }

// Files returns the files of a request's sandbox for a user, who may be the
// default one. An error that is not files.ErrPermission means that there is no
// such user. As in the original, they are those of the sandbox's root, and what appears
// is given to the user; where there is no isolation, they are the user's.
func (f *Face) Files(ctx context.Context, user string) (driver.Files, error) {
	if !isName(user) && user != "" {
		return nil, files.ErrUnknownUser
	}
	if t := targetOf(ctx); t != nil {
		// The caller is known to be allowed, by a signature perhaps.
		if err := t.Awake(ctx); err != nil {
			return nil, err
		}
	}
	return driver.RootFiles(f.in(ctx), user, f.settingsIn(ctx).DefaultWorkdir)
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
