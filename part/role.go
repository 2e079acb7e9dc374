package part

import "context"

// Role says what a logged-in browser may do.
type Role int

const (
	Nobody Role = iota // it is not logged in
	Reader             // only read: [Route.Reads]
	Owner              // everything that the token allows
)

type readerKey struct{}

// WithReader marks the requests of a [Reader].
func WithReader(ctx context.Context) context.Context {
	return context.WithValue(ctx, readerKey{}, true)
}

// OnlyReads reports whether a request comes from a [Reader]: handlers must withhold
// secrets from it that give more rights.
func OnlyReads(ctx context.Context) bool { return ctx.Value(readerKey{}) != nil }
