package metrics

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tend-run/tend/process"
)

// scrapeTimeout bounds what a scrape may ask of the manager.
const scrapeTimeout = 5 * time.Second

// factCollector asks the manager when it is scraped.
type factCollector struct {
	manager process.Manager
	roles   func() map[string]Role
	readers *readerSet

	processes, output, input, spool *prometheus.Desc
	open, lag, roleUp, roleRestarts *prometheus.Desc

	mu     sync.Mutex
	seen   map[process.ID]progress // guarded by mu: at the last scrape
	totals [4]int64                // guarded by mu: bytes by stream, [Stdin] is input
}

// progress is how many bytes of each stream were counted.
type progress [4]int64

func newFactCollector(cfg Config, readers *readerSet) *factCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &factCollector{
		manager: cfg.Manager, roles: cfg.Roles, readers: readers,
		processes:    desc("tend_processes", "Known processes.", "state"),
		output:       desc("tend_output_bytes_total", "Bytes written by processes.", "stream"),
		input:        desc("tend_input_bytes_total", "Bytes taken from writers."),
		spool:        desc("tend_spool_bytes", "Bytes of output kept and readable.", "stream"),
		open:         desc("tend_readers", "Open readers of output."),
		lag:          desc("tend_reader_lag_bytes", "Bytes before the reader that is furthest behind."),
		roleUp:       desc("tend_role_up", "Whether the role has a process.", "role"),
		roleRestarts: desc("tend_role_restarts_total", "Times the role was started again.", "role"),
	}
}

// Describe implements prometheus.Collector.
func (c *factCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.processes, c.output, c.input, c.spool, c.open, c.lag, c.roleUp, c.roleRestarts} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *factCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	if c.roles != nil {
		for name, r := range c.roles() {
			up := 0.0
			if r.PID != 0 {
				up = 1
			}
			gauge(c.roleUp, up, name)
			counter(c.roleRestarts, float64(r.Restarts), name)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	infos, err := c.manager.List(ctx, process.Filter{})
	if err != nil {
		// The keeper is away. Roles tell so; a gap in the rest is the truth.
		return
	}
	var states [process.Exited + 1]int
	var kept [4]int64
	ends := make(map[process.ID][]process.StreamInfo, len(infos))
	for i := range infos {
		states[min(infos[i].State, process.Exited)]++
		ends[infos[i].ID] = infos[i].Streams
		for _, s := range infos[i].Streams {
			kept[s.Stream&3] += s.End - s.Base
		}
	}
	for state, n := range states {
		gauge(c.processes, float64(n), process.State(state).String())
	}
	totals := c.add(infos)
	counter(c.input, float64(totals[process.Stdin]))
	for _, s := range []process.Stream{process.Stdout, process.Stderr, process.PTY} {
		counter(c.output, float64(totals[s]), s.String())
		gauge(c.spool, float64(kept[s]), s.String())
	}
	open, worst := c.readers.lag(ends)
	gauge(c.open, float64(open))
	gauge(c.lag, float64(worst))
}

// add counts what is new since the last scrape. Sums of what exists would go
// down when processes are removed, and counters never do.
func (c *factCollector) add(infos []process.Info) [4]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := make(map[process.ID]progress, len(infos))
	for i := range infos {
		var p progress
		p[process.Stdin] = infos[i].Stdin.Accepted
		for _, s := range infos[i].Streams {
			p[s.Stream&3] = s.End
		}
		before := c.seen[infos[i].ID]
		for s := range p {
			c.totals[s] += max(0, p[s]-before[s])
		}
		now[infos[i].ID] = p
	}
	c.seen = now
	return c.totals
}
