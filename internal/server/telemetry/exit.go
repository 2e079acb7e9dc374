package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/tend-run/tend/internal/lib/webhook"
	"github.com/tend-run/tend/process"
)

// exits sends the spans of processes that have ended. All is done by the goroutine of run.
// While the collector does not answer it waits, and what ends meanwhile is read again from
// the manager.
type exits struct {
	t       *Telemetry
	export  *otlptrace.Exporter
	manager process.Manager
	tracer  trace.Tracer
	batch   batch
	noted   sent
	warned  bool
}

func newExits(t *Telemetry, export *otlptrace.Exporter) *exits {
	x := &exits{t: t, export: export, noted: sent{dir: t.c.Dir}}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithResource(t.resource), sdktrace.WithSampler(sdktrace.AlwaysSample()), sdktrace.WithIDGenerator(t.ids),
		sdktrace.WithRawSpanLimits(limits()), sdktrace.WithSpanProcessor(&x.batch),
	)
	x.tracer = provider.Tracer(scope)
	return x
}

// run follows exits until ctx ends.
func (x *exits) run(ctx context.Context) {
	defer x.noted.close()
	var pause webhook.Pause
	for ctx.Err() == nil {
		if err := x.follow(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, process.ErrLagged) {
			x.t.c.Log.Debug("exits are not followed for traces", slog.Any("err", err)) // the keeper is away, which others say
			wait(ctx, pause.Next())
		} else {
			pause.Reset()
		}
	}
}

// follow sends what has ended, and then what ends.
func (x *exits) follow(ctx context.Context) error {
	w, err := x.manager.Watch(ctx) // before the list: nothing is between them
	if err != nil {
		return err
	}
	defer w.Close()
	all, err := x.manager.List(ctx, process.Filter{})
	if err != nil {
		return err
	}
	known := make(map[process.ID]bool, len(all))
	for i := range all {
		known[all[i].ID] = true
	}
	x.batch.clear() // it is in the list, if it is still to be sent
	x.unnoted(x.noted.open(known))
	for i := range all {
		x.add(ctx, &all[i])
	}
	for {
		ev, ok, err := w.Next()
		switch {
		case err != nil:
			return err
		case !ok:
			x.send(ctx)
			select {
			case <-ctx.Done():
				x.lastSend(w)
				return nil
			case <-w.Ready():
			}
		default:
			x.observe(ctx, &ev)
		}
	}
}

// observe looks at what has happened.
func (x *exits) observe(ctx context.Context, ev *process.Event) {
	switch ev.Kind {
	case process.EventExited:
		p, err := x.manager.Get(ctx, process.Selector{ID: ev.ID})
		if err != nil {
			return // it was removed
		}
		if in, err := p.Info(ctx); err == nil {
			x.add(ctx, &in)
		}
	case process.EventRemoved:
		x.noted.forget(ev.ID)
	}
}

// lastSend sends what has ended until the server ends, once and not for long. What the
// collector does not take is the next server's to send.
func (x *exits) lastSend(w process.Watcher) {
	if x.t.traces.failing() {
		return
	}
	ctx, cancel := context.WithTimeout(x.t.life, lastWords)
	defer cancel()
	for {
		ev, ok, err := w.Next()
		if err != nil || !ok {
			break
		}
		x.observe(ctx, &ev)
	}
	x.try(ctx)
}

// add puts the span of a process into the batch, if it has ended and was not sent yet.
func (x *exits) add(ctx context.Context, in *process.Info) {
	// An exit after Watch and before List is in both.
	if in.Exit == nil || x.noted.has(in.ID) || slices.Contains(x.batch.ids, in.ID) {
		return
	}
	s, ok := parse(in.Spec.Labels[Label])
	if !ok || !s.sampled {
		return
	}
	x.span(in, s)
	if x.batch.add(in.ID); len(x.batch.spans) >= perExport {
		x.send(ctx)
	}
}

// span makes the span of a process and puts it into the batch.
func (x *exits) span(in *process.Info, s span) {
	ctx := context.WithValue(context.Background(), spanKey{}, s)
	if s.parent.IsValid() {
		state, _ := trace.ParseTraceState(in.Spec.Labels[LabelState]) // programs may set it, too: none then
		ctx = trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{TraceID: s.trace, SpanID: s.parent,
			TraceFlags: trace.FlagsSampled, TraceState: state}))
	}
	e, name, what := in.Exit, "process", program(&in.Spec)
	attrs := []attribute.KeyValue{
		attribute.String("tend.process.id", string(in.ID)), attribute.String("tend.process.cause", e.Cause.String()),
	}
	if what != "" {
		name += " " + what
		attrs = append(attrs, attribute.String("process.executable.name", what))
	}
	if in.PID != 0 {
		attrs = append(attrs, attribute.Int("process.pid", in.PID))
	}
	if sandbox := in.Spec.Labels[process.LabelSandbox]; sandbox != "" {
		attrs = append(attrs, attribute.String("tend.sandbox.id", sandbox))
	}
	switch { // a status that nobody has seen is not made up
	case e.Lost():
	case e.Signal != 0:
		attrs = append(attrs, attribute.Int("tend.process.signal", e.Signal))
	default:
		attrs = append(attrs, attribute.Int("process.exit.code", e.Code))
	}
	end := e.Time
	if end.Before(in.Started) { // the clock was set meanwhile
		end = in.Started
	}
	_, made := x.tracer.Start(ctx, name, trace.WithTimestamp(in.Started), trace.WithAttributes(attrs...))
	// An end that somebody has asked for is no fault.
	if asked := e.Cause == process.CauseKilled || e.Cause == process.CauseShutdown; !e.Lost() && !asked && e.ShellStatus() != 0 {
		made.SetStatus(codes.Error, e.String())
	}
	made.End(trace.WithTimestamp(end))
}

// send sends the batch, again and again until the collector has taken or refused it.
func (x *exits) send(ctx context.Context) {
	var pause webhook.Pause
	for len(x.batch.ids) > 0 && ctx.Err() == nil && !x.try(ctx) {
		wait(ctx, pause.Next())
	}
}

// try sends the batch once, and reports whether nothing of it is left to be sent.
func (x *exits) try(ctx context.Context) bool {
	if len(x.batch.ids) == 0 {
		return true
	}
	if unsent(x.export.ExportSpans(ctx, x.batch.spans)) {
		return false
	}
	x.unnoted(x.noted.add(x.batch.ids))
	x.batch.clear()
	return true
}

// unnoted warns, once, of notes that cannot be written.
func (x *exits) unnoted(err error) {
	if err != nil && !x.warned {
		x.warned = true
		x.t.c.Log.Warn("what the collector has taken cannot be noted, and the next server sends it again", slog.Any("err", err))
	}
}

// batch collects spans as they end.
type batch struct {
	spans []sdktrace.ReadOnlySpan
	ids   []process.ID
}

func (b *batch) add(id process.ID) { b.ids = append(b.ids, id) }

func (b *batch) clear() {
	clear(b.spans)
	b.spans, b.ids = b.spans[:0], b.ids[:0]
}

// The methods of sdktrace.SpanProcessor. OnEnd is called by exits.span.

func (*batch) OnStart(context.Context, sdktrace.ReadWriteSpan) {}

func (b *batch) OnEnd(s sdktrace.ReadOnlySpan) { b.spans = append(b.spans, s) }

func (*batch) Shutdown(context.Context) error { return nil }

func (*batch) ForceFlush(context.Context) error { return nil }
