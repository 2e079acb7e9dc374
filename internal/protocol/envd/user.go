package envd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"

	"connectrpc.com/connect"

	"github.com/tend-run/tend/internal/files"
)

// account is the user a request acts as.
type account struct {
	// name as the spec wants it: empty for the user tend runs as.
	name string
	home string
}

type accountKey struct{}

// authenticate resolves the user of the Authorization header in front of
// every path; an unknown one is refused everywhere (envd.md §3.1). The
// password is ignored: the name is the user to act for, and the access token shows
// that the caller may. Any other scheme than Basic counts as no user. Deliberately unlike
// the original, a Basic header that names nobody is refused: what was meant for
// one user must not run as the default one, which is often root.
func (f *Face) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, _, ok := r.BasicAuth()
		if !ok {
			if scheme, _, _ := strings.Cut(r.Header.Get("Authorization"), " "); strings.EqualFold(scheme, "Basic") {
				refusal := errorf(connect.CodeUnauthenticated,
					"the Authorization header names no user: Basic is followed by the base64 text of name and colon")
				_ = f.errors.Write(w, r, refusal) // fails when the client has left
				return
			}
			next.ServeHTTP(w, r)
			return
		}
		a, err := f.lookup(r.Context(), name)
		if err != nil {
			refusal := connect.NewError(connect.CodeUnauthenticated, fmt.Errorf("invalid username: '%s'", name))
			// This fails when the client has left.
			_ = f.errors.Write(w, r, refusal)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), accountKey{}, a)))
	})
}

// accountFor returns the user of the request, or the default one.
func (f *Face) accountFor(ctx context.Context, cur *saved) (*account, error) {
	if a, ok := ctx.Value(accountKey{}).(*account); ok {
		return a, nil
	}
	if cur.DefaultUser == "" {
		u, err := f.in(ctx).User("")
		if err != nil {
			return nil, connect.NewError(connect.CodeUnauthenticated, errors.New("no user specified"))
		}
		return &account{home: u.Home}, nil
	}
	a, err := f.lookup(ctx, cur.DefaultUser)
	if err != nil {
		return nil, connect.NewError(connect.CodeUnauthenticated, fmt.Errorf("invalid default user: '%s'", cur.DefaultUser))
	}
	return a, nil
}

// lookup finds an account by its name.
func (f *Face) lookup(ctx context.Context, name string) (*account, error) {
	if !isName(name) {
		return nil, files.ErrUnknownUser
	}
	u, err := f.in(ctx).User(name)
	if err != nil {
		return nil, err
	}
	return &account{name: u.Name, home: u.Home}, nil
}

// resolveDir makes a working directory absolute: empty is the default
// directory, then the home; ~ is the home; relative paths start at the home
// and not at the default directory. Symbolic links are not resolved.
func resolveDir(dir, defaultDir string, a *account) (string, error) {
	dir = cmp.Or(dir, defaultDir)
	if strings.HasPrefix(dir, "~") {
		if len(dir) > 1 && dir[1] != '/' {
			return "", fmt.Errorf("failed to expand path '%s' for user '%s': cannot expand user-specific home dir", dir, a.name)
		}
		dir = a.home + dir[1:]
	}
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(a.home, dir)
	}
	if !filepath.IsAbs(dir) { // a user without a home
		dir = "/" + dir
	}
	return filepath.Clean(dir), nil
}
