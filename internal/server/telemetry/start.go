package telemetry

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/tend-run/tend/process"
)

// Label of a process that has a span; the package comment has what it means.
const Label = "tend.trace"

// LabelState of a process has what comes with its trace, if anything does: TRACESTATE.
const LabelState = "tend.trace-state"

// variable hands a span to a program, and variableState what comes with its trace.
const (
	variable      = "TRACEPARENT"
	variableState = "TRACESTATE"
)

// maxState bounds TRACESTATE, in bytes: as much as each system has to hand on. A longer one
// is left out.
const maxState = 512

// Over returns a manager of the same processes that traces its starts. Without traces
// it only recognizes processes that were started with them.
func (t *Telemetry) Over(m process.Manager) process.Manager { return &starts{Manager: m, t: t} }

type starts struct {
	process.Manager
	t *Telemetry
}

func (s *starts) Start(ctx context.Context, spec process.Spec) (process.Process, error) {
	var mark mark
	if s.t.processes != nil {
		mark = s.t.mark(ctx, &spec)
	}
	p, err := s.Manager.Start(ctx, marked(spec, mark))
	if err == nil {
		return p, nil
	}
	if errors.Is(err, process.ErrExists) && spec.ID != "" {
		// A start that is repeated is another request: it is equal but for the trace, which
		// stays that of the first.
		if first, ok := s.marks(ctx, spec.ID); ok && first != mark {
			return s.Manager.Start(ctx, marked(spec, first))
		}
		return nil, err
	}
	_, invalid := errors.AsType[*process.InvalidError](err)
	start, _ := errors.AsType[*process.StartError](err)
	if mark.trace != "" && (invalid || start != nil && start.Reason == process.StartTooLong) {
		// It may be the trace for which there is no room, and that is no reason.
		return s.Manager.Start(ctx, spec)
	}
	return nil, err
}

// mark is what the labels of a process say of its span.
type mark struct {
	trace string // ""; it has none
	state string // "": nothing comes with it
}

// marks returns what a process was started with.
func (s *starts) marks(ctx context.Context, id process.ID) (mark, bool) {
	p, err := s.Manager.Get(ctx, process.Selector{ID: id})
	if err != nil {
		return mark{}, false
	}
	in, err := p.Info(process.Brief(ctx))
	return mark{in.Spec.Labels[Label], in.Spec.Labels[LabelState]}, err == nil
}

// mark decides on the span of a process.
func (t *Telemetry) mark(ctx context.Context, spec *process.Spec) mark {
	parent := trace.SpanContextFromContext(ctx)
	if !parent.IsValid() {
		// Nobody has asked now: a hook, or a service. What it was given may say for whom it is.
		ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": spec.Env[variable],
			"tracestate": spec.Env[variableState]})
		parent = trace.SpanContextFromContext(ctx)
	}
	of, id := t.ids.NewIDs(context.Background())
	above, state := "-", ""
	if parent.IsValid() {
		of, above = parent.TraceID(), parent.SpanID().String()
		if state = parent.TraceState().String(); len(state) > maxState {
			state = ""
		}
	}
	flags := "-00 "
	if t.c.Settings.sampler.ShouldSample(sdktrace.SamplingParameters{ParentContext: ctx, TraceID: of, Name: "process",
		Kind: trace.SpanKindInternal}).Decision == sdktrace.RecordAndSample {
		flags = "-01 "
	}
	return mark{"00-" + of.String() + "-" + id.String() + flags + above, state}
}

// marked is a spec with labels, and with the variables if it has no TRACEPARENT: the two
// belong together.
func marked(spec process.Spec, m mark) process.Spec {
	if m.trace == "" {
		return spec
	}
	spec.Labels = with(spec.Labels, Label, m.trace)
	if m.state != "" {
		spec.Labels[LabelState] = m.state
	}
	if _, own := spec.Env[variable]; !own {
		name, _, _ := strings.Cut(m.trace, " ")
		spec.Env = with(spec.Env, variable, name)
		if m.state != "" {
			spec.Env[variableState] = m.state
		} else {
			delete(spec.Env, variableState) // of another trace
		}
	}
	return spec
}

// with copies: the map is the caller's.
func with(m map[string]string, k, v string) map[string]string {
	m = maps.Clone(m)
	if m == nil {
		m = map[string]string{}
	}
	m[k] = v
	return m
}

// span is what a label says.
type span struct {
	trace      trace.TraceID
	id, parent trace.SpanID // parent zero: none
	sampled    bool
}

// parse reads a label. Programs may set it, too, so it may be anything.
func parse(label string) (s span, ok bool) {
	name, above, ok := strings.Cut(label, " ")
	parts := strings.Split(name, "-")
	if !ok || len(parts) != 4 || parts[0] != "00" || parts[3] != "00" && parts[3] != "01" {
		return span{}, false
	}
	var err error
	if s.trace, err = trace.TraceIDFromHex(parts[1]); err != nil {
		return span{}, false
	}
	if s.id, err = trace.SpanIDFromHex(parts[2]); err != nil {
		return span{}, false
	}
	if above != "-" {
		if s.parent, err = trace.SpanIDFromHex(above); err != nil {
			return span{}, false
		}
	}
	s.sampled = parts[3] == "01"
	return s, true
}

// ids makes IDs by chance, but for a span whose IDs are known already: its context has them.
type ids struct{}

type spanKey struct{}

func (ids) NewIDs(ctx context.Context) (of trace.TraceID, id trace.SpanID) {
	if s, ok := ctx.Value(spanKey{}).(span); ok {
		return s.trace, s.id
	}
	for !of.IsValid() {
		fill(of[:])
	}
	return of, ids{}.NewSpanID(ctx, of)
}

func (ids) NewSpanID(ctx context.Context, _ trace.TraceID) (id trace.SpanID) {
	if s, ok := ctx.Value(spanKey{}).(span); ok {
		return s.id
	}
	for !id.IsValid() {
		fill(id[:])
	}
	return id
}

func fill(b []byte) {
	for i := 0; i < len(b); i += 8 {
		n := rand.Uint64()
		for k := range 8 {
			b[i+k] = byte(n >> (8 * k))
		}
	}
}
