package local

import (
	"slices"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// times reports the median of what was measured, in milliseconds.
func times(b *testing.B, name string, all []time.Duration) {
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2])/float64(time.Millisecond), name+"-p50-ms")
}

// run starts a program and waits for its first output.
func run(b *testing.B, m process.Manager) {
	p, err := m.Start(b.Context(), process.Spec{Argv: []string{"/bin/echo", "x"}})
	proctest.Must(b, err)
	for ev, err := range process.Events(b.Context(), p, process.ReadOptions{}) {
		proctest.Must(b, err)
		if ev.Kind == process.EventOutput {
			return
		}
	}
}

// BenchmarkLife is what docs/performance.md says of sandboxes, through the driver.
func BenchmarkLife(b *testing.B) {
	d := openReal(b, real(b))
	var created, first, gone []time.Duration
	var all []driver.Sandbox
	create := func() {
		began := time.Now()
		s, err := d.Create(b.Context(), driver.Spec{})
		proctest.Must(b, err)
		created = append(created, time.Since(began))
		run(b, s.Processes())
		first = append(first, time.Since(began))
		all = append(all, s)
	}
	create()
	created, first = nil, nil
	b.ResetTimer()
	for range b.N {
		create()
	}
	for _, s := range all {
		began := time.Now()
		proctest.Must(b, s.Destroy(b.Context()))
		gone = append(gone, time.Since(began))
	}
	times(b, "create", created)
	times(b, "first-output", first)
	times(b, "destroy", gone)
}

// BenchmarkStart is a start to its end, in a sandbox and outside.
func BenchmarkStart(b *testing.B) {
	d := openReal(b, real(b))
	s, err := d.Create(b.Context(), driver.Spec{})
	proctest.Must(b, err)
	for _, place := range []struct {
		name string
		m    process.Manager
	}{{"inside", s.Processes()}, {"outside", d.cfg.Manager}} {
		b.Run(place.name, func(b *testing.B) {
			var all []time.Duration
			for b.Loop() {
				began := time.Now()
				p, err := place.m.Start(b.Context(), process.Spec{Argv: []string{"/bin/true"}})
				proctest.Must(b, err)
				_, err = p.Wait(b.Context(), process.Until{})
				proctest.Must(b, err)
				all = append(all, time.Since(began))
			}
			times(b, "start", all)
		})
	}
}

// BenchmarkThousand makes a thousand, four at a time.
func BenchmarkThousand(b *testing.B) {
	d := openReal(b, real(b))
	for range b.N {
		began := time.Now()
		var all [1000]driver.Sandbox
		done := make(chan error)
		for w := range 4 {
			go func() {
				for i := w; i < len(all); i += 4 {
					var err error
					if all[i], err = d.Create(b.Context(), driver.Spec{}); err != nil {
						done <- err
						return
					}
				}
				done <- nil
			}()
		}
		for range 4 {
			proctest.Must(b, <-done)
		}
		b.ReportMetric(time.Since(began).Seconds(), "s/1000")
		for _, s := range all {
			proctest.Must(b, s.Destroy(b.Context()))
		}
	}
}
