package part

import "context"

// Role is what a browser that is logged in to the page may do.
type Role int

const (
	Nobody Role = iota // it is not logged in
	Reader             // what only reads: [Route.Reads]
	Owner              // all that the token may
)

type readerKey struct{}

// WithReader marks the requests of a [Reader].
func WithReader(ctx context.Context) context.Context {
	return context.WithValue(ctx, readerKey{}, true)
}

// OnlyReads reports whether a request is one of a [Reader]: what may hold secrets that
// give more rights than it has is withheld from it.
func OnlyReads(ctx context.Context) bool { return ctx.Value(readerKey{}) != nil }
