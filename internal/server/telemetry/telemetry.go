package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"path"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/tend-run/tend/internal/lib/webhook"
	"github.com/tend-run/tend/internal/protocol/module"
	"github.com/tend-run/tend/process"
)

// Config configures what is sent. The zero value sends nothing.
type Config struct {
	// Settings; nil: nothing is sent.
	Settings *Settings
	// Dir holds the records of sent spans. It is created if it is missing.
	Dir string
	// Instance is the same for each server of a daemon, and no other daemon's.
	Instance string
	Host     string // the machine's name
	Version  string
	Log      *slog.Logger // nil: nothing is logged
}

// Telemetry is the part of the server that sends traces and metrics. Its methods may be
// called concurrently.
type Telemetry struct {
	c         Config
	resource  *resource.Resource
	ids       ids
	requests  *sdktrace.TracerProvider // nil: no traces
	tracer    trace.Tracer             // of requests
	processes *exits                   // nil: no traces
	traces    *collector               // nil: no traces
	metrics   *collector               // nil: no metrics
	measure   source
	life      context.Context // ends with Close
	end       context.CancelFunc
}

var (
	_ module.Runner   = (*Telemetry)(nil)
	_ module.Reporter = (*Telemetry)(nil)
)

// Of the queue of spans of requests.
const (
	queued    = 2048
	perExport = 512
	delay     = 2 * time.Second
	tryFor    = 30 * time.Second // and then the spans of one export are dropped
)

// lastWords is how long the end of a server waits for what is still to be sent.
const lastWords = 500 * time.Millisecond

// Open returns the part. Before Run only spans of requests are sent. Close ends it.
func Open(c Config) *Telemetry {
	t := &Telemetry{c: c}
	t.life, t.end = context.WithCancel(context.Background())
	if c.Settings == nil {
		return t
	}
	if c.Log == nil {
		t.c.Log = slog.New(slog.DiscardHandler)
	}
	t.resource = t.describe()
	take := func(e *Endpoint, kind string) *collector {
		if e == nil {
			return nil
		}
		return &collector{to: e, kind: kind, http: client(), agent: "tend/" + c.Version, log: t.c.Log}
	}
	t.traces, t.metrics = take(c.Settings.Traces, "traces"), take(c.Settings.Metrics, "metrics")
	if t.traces == nil {
		return t
	}
	// The library's own errors have no other way out. They are about spans that were
	// dropped, which the collector's warning has said already.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { t.c.Log.Debug("telemetry", slog.Any("err", err)) }))
	export := otlptrace.NewUnstarted(t.traces)
	t.requests = sdktrace.NewTracerProvider(
		sdktrace.WithResource(t.resource), sdktrace.WithSampler(c.Settings.sampler), sdktrace.WithIDGenerator(t.ids),
		sdktrace.WithRawSpanLimits(limits()),
		sdktrace.WithBatcher(&persistent{export, t.life}, sdktrace.WithMaxQueueSize(queued), sdktrace.WithMaxExportBatchSize(perExport),
			sdktrace.WithBatchTimeout(delay), sdktrace.WithExportTimeout(tryFor)),
	)
	t.tracer = t.requests.Tracer(scope)
	t.processes = newExits(t, export)
	return t
}

// scope is the name of what has made the spans and the metrics.
const scope = "github.com/tend-run/tend"

func limits() sdktrace.SpanLimits {
	l := sdktrace.NewSpanLimits()
	l.AttributeValueLengthLimit = 256
	return l
}

// describe returns what is sent with all: who sends it. What the operator says of it wins.
func (t *Telemetry) describe() *resource.Resource {
	all := []attribute.KeyValue{
		attribute.String("service.name", "tend"), attribute.String("service.version", t.c.Version),
		attribute.String("service.instance.id", t.c.Instance), attribute.String("host.name", t.c.Host),
	}
	for k, v := range t.c.Settings.Attributes {
		all = append(all, attribute.String(k, v)) // of equal keys the last counts
	}
	return resource.NewSchemaless(all...)
}

// Name implements module.Part.
func (*Telemetry) Name() string { return "telemetry" }

// On reports whether anything is sent.
func (t *Telemetry) On() bool { return t.traces != nil || t.metrics != nil }

// Status implements module.Reporter.
func (t *Telemetry) Status() map[string]string {
	facts := map[string]string{}
	for _, c := range []*collector{t.traces, t.metrics} {
		if c != nil {
			facts[c.kind] = c.status()
		}
	}
	return facts
}

// Feed sets the sources for Run: the exits of a manager's processes, and the metrics.
// It must be called before Run.
func (t *Telemetry) Feed(m process.Manager, from source) {
	t.measure = from
	if t.processes != nil {
		t.processes.manager = m
	}
}

// Run implements module.Runner.
func (t *Telemetry) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	if t.processes != nil {
		wg.Go(func() { t.processes.run(ctx) })
	}
	if t.metrics != nil {
		wg.Go(func() { t.push(ctx) })
	}
	return nil
}

// Close sends what requests have left in the queue, for half a second at most, and ends.
func (t *Telemetry) Close() {
	defer func() {
		t.end()
		for _, c := range []*collector{t.traces, t.metrics} {
			if c != nil {
				c.http.CloseIdleConnections()
			}
		}
	}()
	if t.requests == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastWords)
	defer cancel()
	if t.traces.failing() {
		t.end() // nobody waits for a collector that does not answer
	}
	_ = t.requests.Shutdown(ctx)
}

func (c *collector) failing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed != nil
}

// persistent tries an export again while its context lasts, and reports no error: the
// collector has noted it.
type persistent struct {
	*otlptrace.Exporter
	life context.Context
}

func (p *persistent) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.life, cancel)()
	var pause webhook.Pause
	for ctx.Err() == nil && unsent(p.Exporter.ExportSpans(ctx, spans)) {
		wait(ctx, pause.Next())
	}
	return nil
}

// unsent reports whether the same may be taken later.
func unsent(err error) bool {
	if err == nil {
		return false
	}
	_, refused := errors.AsType[*refusedError](err)
	return !refused
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// program is the file name of what a process runs, if that is known.
func program(spec *process.Spec) string {
	if spec.Shell != "" {
		return "sh"
	}
	if len(spec.Argv) == 0 {
		return ""
	}
	return path.Base(spec.Argv[0])
}
