package telemetry

import (
	"context"
	"io"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Around creates a span for each request that a route of a part serves, except probes
// and the files of the page. [http.Request.Pattern] must be set. It returns next if
// there are no traces.
func (t *Telemetry) Around(next http.Handler) http.Handler {
	if t.requests == nil {
		return next
	}
	var headers propagation.TraceContext
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		route := r.Pattern
		if _, path, ok := strings.Cut(route, " /"); ok {
			route = "/" + path
		}
		if route == "" || route == "/health" || strings.HasPrefix(route, "/-/") || strings.HasPrefix(route, "/ui/") {
			next.ServeHTTP(w, r)
			return
		}
		if strings.HasSuffix(route, "/") && strings.Contains(route, ".") {
			route += procedure(strings.TrimPrefix(r.URL.Path, route))
		}
		method := known(r.Method)
		ctx := headers.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		ctx, span := t.tracer.Start(ctx, method+" "+route, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
			attribute.String("http.request.method", method), attribute.String("http.route", route),
		))
		answer := &answer{ResponseWriter: w}
		whole := false
		defer func() {
			if answer.status != 0 { // else the connection was taken over, or nothing was answered
				span.SetAttributes(attribute.Int("http.response.status_code", answer.status))
			}
			if !whole || answer.status >= 500 {
				span.SetStatus(codes.Error, "")
			}
			span.End()
		}()
		next.ServeHTTP(answer, r.WithContext(ctx))
		whole = true
	})
}

// Request makes a span of a request that is none of HTTP, or is in the body of one: it is
// a protocol.Trace.
func (t *Telemetry) Request(ctx context.Context, name string, from func(key string) string) (in context.Context, end func(failed bool)) {
	if t.requests == nil {
		return ctx, func(bool) {}
	}
	if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_/ ") != "" || len(name) > 64 {
		name = "_OTHER" // the caller's text
	}
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": from("traceparent"), "tracestate": from("tracestate")})
	ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(attribute.String("rpc.method", name)))
	return ctx, func(failed bool) {
		if failed {
			span.SetStatus(codes.Error, "")
		}
		span.End()
	}
}

// procedure is the method of a service whose route is all that is below its name; "" for
// what cannot be one.
func procedure(rest string) string {
	if len(rest) > 64 || strings.ContainsFunc(rest, func(c rune) bool { return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') }) {
		return ""
	}
	return rest
}

// known is a method of HTTP: others are the caller's text.
func known(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodConnect,
		http.MethodOptions, http.MethodTrace:
		return method
	}
	return "_OTHER"
}

// answer notes the status of an answer.
type answer struct {
	http.ResponseWriter
	status int
}

func (a *answer) WriteHeader(status int) {
	if a.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) { // others come before it
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(b []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	return a.ResponseWriter.Write(b)
}

// ReadFrom lets the kernel send files, as without this wrapper.
func (a *answer) ReadFrom(r io.Reader) (int64, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	return io.Copy(a.ResponseWriter, r)
}

// Flush is for handlers that look for an [http.Flusher].
func (a *answer) Flush() { _ = http.NewResponseController(a.ResponseWriter).Flush() }

// FlushError is what [http.ResponseController] calls.
func (a *answer) FlushError() error {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	return http.NewResponseController(a.ResponseWriter).Flush()
}

// Unwrap is for [http.ResponseController].
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
