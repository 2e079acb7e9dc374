// Package telemetry sends traces and metrics to an OpenTelemetry collector (OTLP over
// HTTP, protobuf), if the standard OTEL_* variables ask for it. Without them it starts no
// goroutine and opens no connection.
//
// # Traces
//
// A request to the server is a span of kind SERVER; its parent is the span in the
// header traceparent. A tool call over MCP, and a request over distant's transport, are
// also such spans, with their own trace context (Request). A process is a span from its
// start to its exit; its parent is the request that started it. Its environment has
// TRACEPARENT, which names its own span, unless its spec already has one; and
// TRACESTATE, up to 512 bytes, as received with the trace.
//
// The IDs of a process's span are in its label tend.trace, so they are journaled before
// it runs: "TRACEPARENT PARENT", the first as in the environment, the second the span
// ID of the parent or "-" if there is none. TRACESTATE is in the label
// tend.trace-state. The server that sees the exit sends the span, with the times and
// the status from the kernel; unfinished spans are not sent. So the death of a server
// loses none. Spans that a collector has accepted are recorded in the file "sent" of
// Config.Dir, one ID on each line. If a server dies between the two steps, the span is
// sent twice, with the same IDs.
//
// A span has the ID of the process, the file name of its program, its pid, its exit
// code or signal and the cause. It never contains arguments, environment or output, and
// a request's span never contains path or query, because all of these may hold secrets.
//
// # Metrics
//
// The metrics of GET /-/metrics are sent under the same names, once a minute.
//
// # A collector that does not answer
//
// Spans of requests wait in a queue of 2,048, and further ones are dropped. Spans of
// processes are read again from the processes' records, for as long as those are kept.
// The log has one warning, and a line when the collector accepts them again. Both show
// only the host of the URL.
package telemetry
