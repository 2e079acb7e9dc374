// Package telemetry sends traces and metrics to an OpenTelemetry collector (OTLP over
// HTTP, protobuf), if the standard OTEL_* variables ask for it. Without them it starts no
// goroutine and opens no connection.
//
// # Traces
//
// A request to the server is a span of kind SERVER, below the one that its header
// traceparent names. So is a call of a tool over MCP, and a request over distant's
// transport, with the trace context that they have (Request). A process is a span from its start to its exit, below the request
// that has started it. It has the environment variable TRACEPARENT, which names its own
// span, unless its spec has one; and TRACESTATE, up to 512 bytes, as it came with the trace.
//
// The IDs of a process's span are in its label tend.trace, so they are journaled before it
// runs: "TRACEPARENT PARENT", the first as in the environment, the second the span ID of
// the parent or "-" if there is none. TRACESTATE is in the label tend.trace-state. The server that sees the exit sends the span, with
// the times and the status that the kernel gave: a span that is not over is not claimed.
// So the death of a server loses none. What a collector has taken is noted in the file
// "sent" of Config.Dir, an ID a line. A server that dies between the two sends a span
// twice, with the same IDs.
//
// A span has the ID of the process, the file name of its program, its pid, its exit code or
// signal and the cause. It never has arguments, environment or output, nor has a request's
// its path or query: all of them may hold secrets.
//
// # Metrics
//
// They are those of GET /-/metrics, under the same names, once a minute.
//
// # A collector that does not answer
//
// Spans of requests wait in a queue of 2,048, and further ones are dropped. Spans of
// processes are read again from the processes' records, for as long as those are kept.
// The log has one warning, and a line once the collector takes them again. Neither has
// more of the URL than its host.
package telemetry
