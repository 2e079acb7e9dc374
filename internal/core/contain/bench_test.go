//go:build linux && (amd64 || arm64)

package contain

import (
	"bufio"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/core/container"
)

// series are durations of one step.
type series []time.Duration

func (s *series) time(f func() error) error {
	began := time.Now()
	err := f()
	*s = append(*s, time.Since(began))
	return err
}

func (s series) report(b *testing.B, name string) {
	slices.Sort(s)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	b.ReportMetric(ms(s[len(s)/2]), name+"-p50-ms")
	b.ReportMetric(ms(s[len(s)*99/100]), name+"-p99-ms")
}

// BenchmarkContainer is the life of one container, step by step.
func BenchmarkContainer(b *testing.B) {
	w := newWorld(b)
	var makes, nets, freezes, ends series
	for b.Loop() {
		s := w.spec(b)
		s.Net = container.NetOwn
		var c *Container
		if err := makes.time(func() (err error) { c, err = w.Make(&s); return err }); err != nil {
			b.Fatal(err)
		}
		if err := nets.time(c.Network); err != nil {
			b.Fatal(err)
		}
		if err := freezes.time(func() error { return c.Nest.Freeze(true, time.Now().Add(patience)) }); err != nil {
			b.Fatal(err)
		}
		if err := ends.time(func() error { c.Kill(); return c.End(time.Now().Add(patience)) }); err != nil {
			b.Fatal(err)
		}
	}
	makes.report(b, "make")
	nets.report(b, "network")
	freezes.report(b, "freeze")
	ends.report(b, "end")
}

// BenchmarkManyContainers is what a thousand idle containers take of the memory that the kernel
// cannot take back.
func BenchmarkManyContainers(b *testing.B) {
	w := newWorld(b)
	const many = 1000
	for b.Loop() {
		specs := make([]container.Spec, many)
		for i := range specs {
			specs[i] = w.spec(b)
			specs[i].UIDBase = uint32(0x70000000 + i*container.IDs)
		}
		before, began := unreclaimable(b), time.Now()
		containers := make([]*Container, many)
		for i := range specs {
			c, err := w.Make(&specs[i])
			if err != nil {
				b.Fatal(err)
			}
			containers[i] = c
		}
		made := time.Since(began)
		kib := unreclaimable(b) - before
		began = time.Now()
		for _, c := range containers {
			w.end(b, c)
		}
		b.ReportMetric(made.Seconds(), "made-s")
		b.ReportMetric(time.Since(began).Seconds(), "ended-s")
		b.ReportMetric(float64(kib)/many, "KiB/box")
	}
}

// unreclaimable memory of the machine, in KiB.
func unreclaimable(b *testing.B) (kib int64) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ":")
		switch name {
		case "SUnreclaim", "KernelStack", "PageTables", "Percpu", "AnonPages":
			n, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(value, "kB")), 10, 64)
			kib += n
		}
	}
	return kib
}
