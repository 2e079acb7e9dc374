package envdfs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"connectrpc.com/connect"

	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/sandbox/driver"
)

// fsFor returns the files for the user that a REST request names; "" is the default
// user.
func (f *Face) fsFor(ctx context.Context, name string) (driver.Files, *failure) {
	if name == "" {
		name = f.cfg.DefaultUser(ctx)
	}
	fsys, err := f.cfg.Files(ctx, name)
	switch {
	case errors.Is(err, files.ErrPermission):
		return nil, &failure{http.StatusForbidden, err.Error()}
	case isOver(err):
		return nil, &failure{http.StatusBadGateway, err.Error()}
	case err != nil:
		return nil, &failure{http.StatusUnauthorized, fmt.Sprintf("error looking up user '%.64s': user: unknown user %.64s", name, name)}
	}
	return fsys, nil
}

// fsOf does the same for a call of the service, which names the user in the
// Authorization header. Any other scheme than Basic counts as no user; a Basic
// header without a user is refused.
func (f *Face) fsOf(ctx context.Context, h http.Header) (driver.Files, error) {
	name, _, named := (&http.Request{Header: h}).BasicAuth()
	text := "invalid username: '%.64s'"
	scheme, _, _ := strings.Cut(h.Get("Authorization"), " ")
	switch {
	case !named && strings.EqualFold(scheme, "Basic"):
		return nil, connect.NewError(connect.CodeUnauthenticated,
			errors.New("the Authorization header names no user: Basic is followed by the base64 text of name and colon"))
	case !named:
		name, text = f.cfg.DefaultUser(ctx), "invalid default user: '%.64s'"
	case name == "":
		return nil, connect.NewError(connect.CodeUnauthenticated, errors.New("invalid username: ''"))
	}
	fsys, err := f.cfg.Files(ctx, name)
	switch {
	case errors.Is(err, files.ErrPermission):
		return nil, connect.NewError(connect.CodePermissionDenied, err)
	case isOver(err):
		return nil, connect.NewError(connect.CodeUnavailable, err)
	case err != nil:
		return nil, connect.NewError(connect.CodeUnauthenticated, fmt.Errorf(text, name))
	}
	return fsys, nil
}
