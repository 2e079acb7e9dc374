package module

import (
	"context"
	"errors"
	"io"
)

// Role says what a logged-in browser may do.
type Role int

const (
	Nobody Role = iota // it is not logged in
	Reader             // only read: [Route.Reads]
	Owner              // everything that the token allows
)

// Login is what a request may do because a logged-in browser sent it.
type Login struct {
	Role Role
	// ID names the login, and is no secret. What a request has made for later may end with it.
	// "": it is the token's.
	ID string
	// Lasts reports whether the login still allows that: it may end while the request is
	// served. It is called concurrently. nil: it lasts as long as the request.
	Lasts func() bool
	// Body takes the place of the request's body: it ends with an error if the login is not
	// about it. nil: the request's own, or none.
	Body io.ReadCloser
	// Challenge says to Nobody, in the header WWW-Authenticate, how a login is shown. Empty:
	// the request comes from no page.
	Challenge string
}

// ErrLoginOver is the cause with which the context of a request ends when its login has
// ended.
var ErrLoginOver = errors.New("this login has ended; log in again")

type readerKey struct{}

// WithReader marks the requests of a [Reader].
func WithReader(ctx context.Context) context.Context {
	return context.WithValue(ctx, readerKey{}, true)
}

// OnlyReads reports whether a request comes from a [Reader]: handlers must withhold
// secrets from it that give more rights.
func OnlyReads(ctx context.Context) bool { return ctx.Value(readerKey{}) != nil }

type doorKey struct{}

// WithDoor marks the requests that come by the page's own port: nothing but a login of the page
// admits them.
func WithDoor(ctx context.Context) context.Context { return context.WithValue(ctx, doorKey{}, true) }

// AtDoor reports whether a request came so.
func AtDoor(ctx context.Context) bool { return ctx.Value(doorKey{}) != nil }

type loginKey struct{}

// WithLogin notes the ID of the login that a request comes with.
func WithLogin(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, loginKey{}, id)
}

// LoginOf returns the ID of the login that a request comes with; "": none.
func LoginOf(ctx context.Context) string {
	id, _ := ctx.Value(loginKey{}).(string)
	return id
}
