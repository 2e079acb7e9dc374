package metrics

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/tend-run/tend/process"
)

// Config configures the metrics.
type Config struct {
	// Manager is the one to wrap.
	Manager process.Manager
	// Roles returns the state of each role by name, or nil if it is unknown. It is called
	// for every scrape.
	Roles func() map[string]Role
	// Version of the running program.
	Version string
}

// Role is one of the daemon's own processes.
type Role struct {
	PID      int   // 0: not there
	Restarts int64 // since the daemon started
}

// Metrics holds the counters of one server. Its methods may be called
// concurrently.
type Metrics struct {
	registry     *prometheus.Registry
	manager      *manager
	readers      readerSet
	startSeconds prometheus.Histogram
	startErrors  *prometheus.CounterVec
	requests     *prometheus.CounterVec
	active       *prometheus.GaugeVec
	refused      *prometheus.CounterVec
	panics       prometheus.Counter
}

// New returns metrics with a registry of their own.
func New(cfg Config) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		startSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tend_start_seconds", Help: "Duration of successful starts.",
			// A start takes a fraction of a millisecond; a machine out of
			// memory takes seconds.
			Buckets: []float64{.0001, .0002, .0003, .0005, .001, .002, .005, .01, .02, .05, .1, .5, 1, 5},
		}),
		startErrors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tend_start_errors_total", Help: "Starts that failed.",
		}, []string{"reason"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tend_http_requests_total", Help: "Requests.",
		}, []string{"face"}),
		active: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tend_http_requests_active", Help: "Requests being served, streams included.",
		}, []string{"face"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tend_http_refused_total", Help: "Requests refused before a face saw them.",
		}, []string{"reason"}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tend_http_panics_total", Help: "Requests that a bug ended.",
		}),
	}
	m.manager = &manager{Manager: cfg.Manager, m: m}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tend_build_info", Help: "The running program.", ConstLabels: prometheus.Labels{"version": cfg.Version},
	})
	build.Set(1)
	m.registry.MustRegister( // the names above are constant and distinct
		m.startSeconds, m.startErrors, m.requests, m.active, m.refused, m.panics, build,
		newFactCollector(cfg, &m.readers),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return m
}

// Manager returns the wrapped manager.
func (m *Metrics) Manager() process.Manager { return m.manager }

// Over returns another manager of the same processes, whose starts and readers are
// seen, too.
func (m *Metrics) Over(other process.Manager) process.Manager { return &manager{Manager: other, m: m} }

// Register adds what a part of the server measures. Its names must be its own.
func (m *Metrics) Register(c prometheus.Collector) error { return m.registry.Register(c) }

// Gather returns the current metrics, like the handler.
func (m *Metrics) Gather() ([]*dto.MetricFamily, error) { return m.registry.Gather() }

// Handler serves the metrics in Prometheus's text format.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

// Requested counts a request of a face; the returned function is called when
// it has been served.
func (m *Metrics) Requested(face string) (done func()) {
	m.requests.WithLabelValues(face).Inc()
	active := m.active.WithLabelValues(face)
	active.Inc()
	return active.Dec
}

// Refused counts a request that no face saw.
func (m *Metrics) Refused(reason string) { m.refused.WithLabelValues(reason).Inc() }

// Panicked counts a request that a bug ended.
func (m *Metrics) Panicked() { m.panics.Inc() }
