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
			t, err = f.signedFor(r, t)
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

// maxSearches is how many signed URLs may wait until their sandbox is found.
const maxSearches = 64

var (
	errSignature = errors.New("invalid signature")
	errSearches  = errors.New("too many signed URLs at once; try again, or name the sandbox in the header E2b-Sandbox-Id")
)

// signedFor finds the sandbox whose token a URL of a file is signed with. Who opens
// such a URL sends no header, and by a fixed address the URL names no sandbox. t is
// where the request goes if it is not signed for a sandbox: the default one, whose own
// token it may be signed with. If that has none, the signature is wrong: what was
// meant for a sandbox that has ended is not done on the machine.
func (f *Face) signedFor(r *http.Request, t route.Target) (route.Target, error) {
	if r.URL.Path != "/files" || f.secret == nil || f.sandboxes.Driver == nil || protocol.AccessToken(r) != "" ||
		r.Header.Get("E2b-Sandbox-Id") != "" || !signable(r) {
		return t, nil
	}
	query := r.URL.Query()
	if !query.Has("signature") {
		return t, nil
	}
	// One search at a time: it is the work of one processor at most, whoever asks. Those
	// who wait are few: strangers may ask.
	defer f.searches.Add(-1)
	if f.searches.Add(1) > maxSearches {
		return t, errSearches
	}
	select {
	case f.searching <- struct{}{}:
		defer func() { <-f.searching }()
	case <-r.Context().Done():
		return t, r.Context().Err()
	}
	infos, err := f.sandboxes.Driver.List(r.Context())
	if err != nil {
		return t, err
	}
	found := ""
	for i := range infos {
		id := string(infos[i].ID)
		if envdfs.Signed(query, envdfs.Operation(r), f.secret.SandboxToken(id)) {
			found = id
		}
	}
	switch {
	case found != "":
		return f.sandboxes.Find(r.Context(), found)
	case !f.settings.get().AccessToken.Set():
		return t, errSignature
	}
	return t, nil
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
