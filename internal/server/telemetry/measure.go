package telemetry

import (
	"context"
	"log/slog"
	"time"

	dto "github.com/prometheus/client_model/go"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
)

// source is where metrics come from: prometheus.Gatherer.
type source interface {
	Gather() ([]*dto.MetricFamily, error)
}

// push sends the metrics again and again until ctx ends. What is not taken is not sent
// again: the next ones say as much.
func (t *Telemetry) push(ctx context.Context) {
	began := time.Now()
	tick := time.NewTicker(t.c.Settings.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		families, err := t.measure.Gather()
		if err != nil { // what there is beside it is right
			t.c.Log.Debug("metrics", slog.Any("err", err))
		}
		_ = t.metrics.post(ctx, t.translate(families, began, time.Now()))
	}
}

// translate makes of Prometheus's metrics those of OpenTelemetry. They add up from began on.
func (t *Telemetry) translate(families []*dto.MetricFamily, began, now time.Time) *metricspb.MetricsData {
	in := &metricspb.ScopeMetrics{Scope: &commonpb.InstrumentationScope{Name: scope, Version: t.c.Version}}
	for _, f := range families {
		if m := metricOf(f, uint64(began.UnixNano()), uint64(now.UnixNano())); m != nil {
			in.Metrics = append(in.Metrics, m)
		}
	}
	of := &resourcepb.Resource{}
	for _, kv := range t.resource.Attributes() {
		of.Attributes = append(of.Attributes, text(string(kv.Key), kv.Value.AsString()))
	}
	return &metricspb.MetricsData{ResourceMetrics: []*metricspb.ResourceMetrics{{Resource: of, ScopeMetrics: []*metricspb.ScopeMetrics{in}}}}
}

// metricOf returns nil for a kind that tend does not have.
func metricOf(f *dto.MetricFamily, began, now uint64) *metricspb.Metric {
	out := &metricspb.Metric{Name: f.GetName(), Description: f.GetHelp()}
	number := func(m *dto.Metric, v float64, since uint64) *metricspb.NumberDataPoint {
		return &metricspb.NumberDataPoint{Attributes: labels(m), StartTimeUnixNano: since, TimeUnixNano: now,
			Value: &metricspb.NumberDataPoint_AsDouble{AsDouble: v}}
	}
	const cumulative = metricspb.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE
	switch f.GetType() {
	case dto.MetricType_COUNTER:
		sum := &metricspb.Sum{AggregationTemporality: cumulative, IsMonotonic: true}
		for _, m := range f.Metric {
			sum.DataPoints = append(sum.DataPoints, number(m, m.GetCounter().GetValue(), began))
		}
		out.Data = &metricspb.Metric_Sum{Sum: sum}
	case dto.MetricType_GAUGE:
		gauge := &metricspb.Gauge{}
		for _, m := range f.Metric {
			gauge.DataPoints = append(gauge.DataPoints, number(m, m.GetGauge().GetValue(), 0))
		}
		out.Data = &metricspb.Metric_Gauge{Gauge: gauge}
	case dto.MetricType_HISTOGRAM:
		all := &metricspb.Histogram{AggregationTemporality: cumulative}
		for _, m := range f.Metric {
			all.DataPoints = append(all.DataPoints, histogram(m, began, now))
		}
		out.Data = &metricspb.Metric_Histogram{Histogram: all}
	case dto.MetricType_SUMMARY:
		all := &metricspb.Summary{}
		for _, m := range f.Metric {
			p := &metricspb.SummaryDataPoint{Attributes: labels(m), StartTimeUnixNano: began, TimeUnixNano: now,
				Count: m.GetSummary().GetSampleCount(), Sum: m.GetSummary().GetSampleSum()}
			for _, q := range m.GetSummary().GetQuantile() {
				p.QuantileValues = append(p.QuantileValues, &metricspb.SummaryDataPoint_ValueAtQuantile{Quantile: q.GetQuantile(), Value: q.GetValue()})
			}
			all.DataPoints = append(all.DataPoints, p)
		}
		out.Data = &metricspb.Metric_Summary{Summary: all}
	default:
		return nil
	}
	return out
}

// histogram has the count of each bucket, where Prometheus has that of all up to it.
func histogram(m *dto.Metric, began, now uint64) *metricspb.HistogramDataPoint {
	h := m.GetHistogram()
	sum := h.GetSampleSum()
	p := &metricspb.HistogramDataPoint{Attributes: labels(m), StartTimeUnixNano: began, TimeUnixNano: now,
		Count: h.GetSampleCount(), Sum: &sum}
	var before uint64
	for _, b := range h.GetBucket() {
		p.ExplicitBounds = append(p.ExplicitBounds, b.GetUpperBound())
		p.BucketCounts = append(p.BucketCounts, b.GetCumulativeCount()-before)
		before = b.GetCumulativeCount()
	}
	p.BucketCounts = append(p.BucketCounts, h.GetSampleCount()-before)
	return p
}

func labels(m *dto.Metric) (all []*commonpb.KeyValue) {
	for _, l := range m.GetLabel() {
		all = append(all, text(l.GetName(), l.GetValue()))
	}
	return all
}

func text(k, v string) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: k, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: v}}}
}
