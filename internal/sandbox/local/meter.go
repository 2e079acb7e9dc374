package local

import (
	"context"
	"runtime"
	"time"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/sandbox/driver"
)

const (
	// keepSamples is how many samples of a sandbox are kept, and leastApart how far
	// apart they are at least: ten minutes of them.
	keepSamples = 120
	leastApart  = 5 * time.Second
)

// meter keeps what was measured of one sandbox since its container was made.
type meter struct {
	samples []driver.Metric
	began   time.Time     // of the container
	at      time.Time     // of cpu
	cpu     time.Duration // used until then
}

func (m *meter) reset() { *m = meter{began: time.Now()} }

// add makes a sample of what a container has used. CPU time is measured from the sample
// before, or from the start of the container.
func (m *meter) add(now time.Time, u container.Usage, size driver.Size, machine int64) driver.Metric {
	cpus := size.CPUs
	if cpus == 0 {
		cpus = float64(runtime.NumCPU())
	}
	sample := driver.Metric{
		Time: now.UTC(), CPUs: cpus, MemUsed: u.Memory, MemTotal: machine, Tasks: u.Tasks, OOMKills: u.OOMKills,
	}
	if size.Memory != 0 {
		sample.MemTotal = size.Memory
	}
	since, before := m.at, m.cpu
	if since.IsZero() {
		since, before = m.began, 0
	}
	if wall := now.Sub(since); wall > 0 && u.CPU > before {
		sample.CPUPercent = 100 * float64(u.CPU-before) / float64(wall)
	}
	if n := len(m.samples); n > 0 && now.Sub(m.samples[n-1].Time) < leastApart {
		return sample // for this caller alone
	}
	m.at, m.cpu = now, u.CPU
	m.samples = append(m.samples, sample)
	if len(m.samples) > keepSamples {
		m.samples = m.samples[len(m.samples)-keepSamples:]
	}
	return sample
}

// Metrics implements driver.Meter. A sandbox is measured when somebody asks, not
// before.
func (d *Driver) Metrics(ctx context.Context, id driver.ID, from, to time.Time) ([]driver.Metric, error) {
	s, err := d.get(ctx, string(id))
	if err != nil {
		return nil, err
	}
	var now driver.Metric
	usage, err := d.cfg.Engine.Usage(ctx, container.ID(id))
	switch {
	case isOfContainer(err): // stopped, or paused without its memory: it uses nothing
	case err != nil:
		return nil, fault(err)
	}
	disk := s.diskUse()
	s.mu.Lock()
	defer s.mu.Unlock()
	now = s.meter.add(time.Now(), usage, s.rec.size(), memoryOfMachine())
	now.DiskUsed, now.DiskTotal = disk.used, disk.total
	if now.Counted = s.rec.Network == driver.NetworkOwn; s.way != nil {
		now.Received, now.Sent = s.way.Bytes()
	}
	if n := len(s.meter.samples); n > 0 && s.meter.samples[n-1].Time.Equal(now.Time) {
		s.meter.samples[n-1] = now
	}
	var out []driver.Metric
	for _, m := range s.meter.samples {
		if (from.IsZero() || !m.Time.Before(from)) && (to.IsZero() || !m.Time.After(to)) && m.Time.Before(now.Time) {
			out = append(out, m)
		}
	}
	if to.IsZero() || !now.Time.After(to) {
		out = append(out, now)
	}
	return out, nil
}

// space is how full a disk is, in bytes.
type space struct{ used, total int64 }
