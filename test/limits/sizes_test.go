//go:build linux

package limits

import (
	"fmt"
	"os"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// Outputs around each boundary are whole, from their beginning and from their
// middle.
func TestOutputsOfAllSizesAreWhole(t *testing.T) {
	sizes := []int64{1, 64<<10 - 1, 64 << 10, 64<<10 + 1, 1<<20 - 1, 1 << 20, 1<<20 + 1, 256 << 20}
	if os.Getenv("LIMITS_LARGE") != "" {
		sizes = append(sizes, 4<<30+1)
	}
	d := serve(t)
	for _, size := range sizes {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			p := d.writer(size, process.Retention{Limit: 8 << 30})
			d.setOff(p)
			// Once while it is written, then from the files.
			for _, from := range []int64{0, size / 2, size - 1, size} {
				if err := wholeFrom(t.Context(), p, from, size); err != nil {
					t.Errorf("from %d: %v", from, err)
				}
			}
			if err := p.Remove(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// Offsets beyond 2^32, of a stream of which only the end is kept.
func TestOffsetsGoBeyondFourGigabytes(t *testing.T) {
	const size, keep = 4<<30 + 12345, 1 << 20
	d := serve(t)
	p := d.writer(size, process.Retention{Limit: keep})
	d.setOff(p)
	if res, err := p.Wait(t.Context(), process.Until{EOF: true}); err != nil || res.Exit == nil || res.Exit.Code != 0 {
		t.Fatalf("the process ended with %+v, %v", res, err)
	}
	info := proctest.Info(t, p)
	out, _ := info.Stream(process.Stdout)
	if out.End != size || out.Base <= 1<<32-keep || size-out.Base > keep {
		t.Fatalf("the stream is kept from %d to %d; want at most %d bytes to %d", out.Base, out.End, keep, int64(size))
	}
	for _, from := range []int64{out.Base, 1 << 32, 1<<32 + 1, size - 1} {
		if from < out.Base {
			continue
		}
		if err := wholeFrom(t.Context(), p, from, size); err != nil {
			t.Errorf("from %d: %v", from, err)
		}
	}
	// A reader from offset 0 receives one gap with all that was freed.
	for ev, err := range process.Events(t.Context(), p, process.ReadOptions{Drain: -1}) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Kind == process.EventOutput {
			t.Fatal("output before the gap")
		}
		if ev.Kind == process.EventGap {
			if want := (process.Gap{Stream: process.Stdout, To: out.Base}); ev.Gap != want {
				t.Errorf("a gap of %+v, want %+v", ev.Gap, want)
			}
			break
		}
	}
}
