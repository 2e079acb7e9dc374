package local

import (
	"slices"
	"testing"
	"time"

	"github.com/tend-run/tend/driver"
	"github.com/tend-run/tend/internal/scene"
	"github.com/tend-run/tend/process"
)

// times reports the median of what was measured, in milliseconds.
func times(b *testing.B, name string, all []time.Duration) {
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2])/float64(time.Millisecond), name+"-p50-ms")
}

// BenchmarkLife measures what docs/performance.md says of sandboxes, through the driver.
func BenchmarkLife(b *testing.B) {
	d := openReal(b, real(b))
	outside := d.cfg.Manager
	b.ResetTimer()
	run := func(m process.Manager) {
		p, err := m.Start(b.Context(), process.Spec{Argv: []string{"/bin/echo", "x"}})
		scene.Must(b, err)
		for ev, err := range process.Events(b.Context(), p, process.ReadOptions{}) {
			scene.Must(b, err)
			if ev.Kind == process.EventOutput {
				break
			}
		}
	}
	start := func(m process.Manager) time.Duration {
		began := time.Now()
		p, err := m.Start(b.Context(), process.Spec{Argv: []string{"/bin/true"}})
		scene.Must(b, err)
		_, err = p.Wait(b.Context(), process.Until{})
		scene.Must(b, err)
		return time.Since(began)
	}
	var created, first, inside, out, gone []time.Duration
	for range b.N {
		began := time.Now()
		s, err := d.Create(b.Context(), driver.Spec{})
		scene.Must(b, err)
		created = append(created, time.Since(began))
		run(s.Processes())
		first = append(first, time.Since(began))
		for range 5 {
			inside = append(inside, start(s.Processes()))
			out = append(out, start(outside))
		}
		began = time.Now()
		scene.Must(b, s.Destroy(b.Context()))
		gone = append(gone, time.Since(began))
	}
	times(b, "create", created)
	times(b, "first-output", first)
	times(b, "start-inside", inside)
	times(b, "start-outside", out)
	times(b, "destroy", gone)
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
			scene.Must(b, <-done)
		}
		b.ReportMetric(time.Since(began).Seconds(), "s/1000")
		for _, s := range all {
			scene.Must(b, s.Destroy(b.Context()))
		}
	}
}
