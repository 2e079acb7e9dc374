package e2bapi

import (
	"cmp"
	"context"
	"errors"
	"math"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/sandbox/driver"
)

// metric is one sample, in bytes and percent of all that the sandbox may use.
type metric struct {
	Timestamp     string  `json:"timestamp"`
	TimestampUnix int64   `json:"timestampUnix"`
	CPUCount      int64   `json:"cpuCount"`
	CPUUsedPct    float64 `json:"cpuUsedPct"`
	MemUsed       int64   `json:"memUsed"`
	MemTotal      int64   `json:"memTotal"`
	MemCache      int64   `json:"memCache"`
	DiskUsed      int64   `json:"diskUsed"`
	DiskTotal     int64   `json:"diskTotal"`
}

func (f *Face) metricJSON(m *driver.Metric) metric {
	cpus := cmp.Or(m.CPUs, float64(f.machine.cpus))
	return metric{
		Timestamp: stamp(m.Time), TimestampUnix: m.Time.Unix(),
		CPUCount: int64(math.Ceil(cpus)), CPUUsedPct: m.CPUPercent / cpus,
		MemUsed: m.MemUsed, MemTotal: m.MemTotal, MemCache: m.MemCache, DiskUsed: m.DiskUsed, DiskTotal: m.DiskTotal,
	}
}

func (f *Face) meter() (driver.Meter, error) {
	if m, ok := f.driver.(driver.Meter); ok {
		return m, nil
	}
	return nil, f.lacks("metrics")
}

// secondsOf reads a time in unix seconds; zero: there is none.
func secondsOf(q url.Values, name string) (time.Time, error) {
	n, given, err := number(q, name, 0, 1<<40)
	if !given || err != nil {
		return time.Time{}, err
	}
	return time.Unix(n, 0), nil
}

func (f *Face) metrics(w http.ResponseWriter, r *http.Request) error {
	from, err1 := secondsOf(r.URL.Query(), "start")
	to, err2 := secondsOf(r.URL.Query(), "end")
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	_, info, err := f.find(r)
	if err != nil {
		return err
	}
	list, err := f.samples(r.Context(), info.ID, from, to)
	if err != nil {
		return gone(r.PathValue("id"), err)
	}
	writeJSON(w, http.StatusOK, list)
	return nil
}

func (f *Face) samples(ctx context.Context, id driver.ID, from, to time.Time) ([]metric, error) {
	m, err := f.meter()
	if err != nil {
		return nil, err
	}
	samples, err := m.Metrics(ctx, id, from, to)
	if err != nil {
		return nil, err
	}
	list := make([]metric, len(samples))
	for i := range samples {
		list[i] = f.metricJSON(&samples[i])
	}
	return list, nil
}

// metricsOfMany answers with the newest sample of each sandbox that is named and there.
func (f *Face) metricsOfMany(w http.ResponseWriter, r *http.Request) error {
	var ids []string
	for _, list := range r.URL.Query()["sandbox_ids"] {
		ids = append(ids, strings.Split(list, ",")...)
	}
	if len(ids) == 0 || len(ids) > maxPage {
		return badRequest("sandbox_ids names %d sandboxes; 1 to %d are allowed", len(ids), maxPage)
	}
	all := map[string]metric{}
	for _, id := range ids {
		if !driver.LikeID(id) {
			continue
		}
		list, err := f.samples(r.Context(), driver.ID(strings.ToLower(id)), time.Time{}, time.Time{})
		if err != nil && !errors.Is(err, driver.ErrNotFound) {
			return err
		}
		if len(list) > 0 {
			all[id] = list[len(list)-1]
		}
	}
	writeJSON(w, http.StatusOK, map[string]any{"sandboxes": all})
	return nil
}
