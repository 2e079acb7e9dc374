package protocol

import "context"

// Trace makes a span of one request of a protocol that has many of them in a connection,
// or that has its trace context elsewhere than in headers of HTTP. from returns what the
// request says under a key of W3C Trace Context, "traceparent" or "tracestate"; "": nothing,
// and then the span is below that of ctx. What is started with the context that Trace
// returns is below the span, which end ends. A nil Trace makes none.
type Trace func(ctx context.Context, name string, from func(key string) string) (in context.Context, end func(failed bool))

// Begin is a call of t, which may be nil.
func (t Trace) Begin(ctx context.Context, name string, from func(key string) string) (in context.Context, end func(failed bool)) {
	if t == nil {
		return ctx, func(bool) {}
	}
	return t(ctx, name, from)
}
