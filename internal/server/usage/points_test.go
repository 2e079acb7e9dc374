package usage

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/support/proctest"
)

// began is a moment at the beginning of five minutes.
var began = time.Unix(1_800_000_000, 0)

func opened(t *testing.T, path string) *points {
	p := proctest.Value(openPoints(path))(t)
	t.Cleanup(func() { p.close() })
	return p
}

// A day of points, with a pause of two hours: what was not measured is missing, and the rest is as
// it was, also for a reader of the file whose writer was killed.
func TestPointsOfADay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "points")
	p := opened(t, path)
	at := func(m int) time.Time { return began.Add(time.Duration(m) * time.Minute) }
	const last = 26 * 60
	for m := range last + 1 {
		if m >= last-300 && m < last-180 || m > last-10 && m <= last-7 {
			continue
		}
		one := point{At: uint32(at(m).Unix()), CPU: uint32(m), Memory: uint64(m), Received: uint64(m), Sent: unknown}
		if m%2 == 0 {
			one.Received = unknown
		} else {
			one.Sent = 7
		}
		proctest.Must(t, p.add("machine", one))
	}
	again := opened(t, path) // the first is still open, as that of a server that was killed
	hour := proctest.Value(again.since("machine", at(last-60), at(last)))(t)
	want := 60
	for _, one := range hour {
		m := int(time.Unix(int64(one.At), 0).Sub(began) / time.Minute)
		if m <= last-60 || m > last-10 && m <= last-7 || one.CPU != uint32(m) || one.Memory != uint64(m) {
			t.Errorf("minute %d: %+v", m, one)
		}
	}
	if len(hour) != want-3 || !slices.IsSortedFunc(hour, func(a, b point) int { return int(a.At) - int(b.At) }) {
		t.Errorf("%d points of an hour: %v", len(hour), hour)
	}
	day := proctest.Value(again.since("machine", at(last).Add(-24*time.Hour), at(last)))(t)
	if len(day) != 288-24 || !slices.IsSortedFunc(day, func(a, b point) int { return int(a.At) - int(b.At) }) {
		t.Errorf("%d points of a day", len(day))
	}
	for _, one := range day {
		m := int(time.Unix(int64(one.At), 0).Sub(began) / time.Minute)
		if m > last-15 { // with what is missing, and the one that has just begun
			continue
		}
		// Minutes m-4 to m: two or three of them have counted bytes.
		if m%5 != 4 || one.CPU != uint32(m-2) || one.Memory != uint64(m) || one.Received != uint64(m-2) || one.Sent != 7 {
			t.Errorf("the five minutes until %d: %+v", m, one)
		}
	}
	if none, err := again.since("service web", began, at(last)); err != nil || len(none) != 0 {
		t.Errorf("of another subject: %v, %v", none, err)
	}
}

func TestTheFileHasABound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "points")
	p := opened(t, path)
	one := point{At: uint32(began.Unix()), CPU: 1}
	for n := range maxSubjects + 10 {
		proctest.Must(t, p.add(fmt.Sprintf("sandbox %d", n), one))
	}
	if size := proctest.Value(os.Stat(path))(t).Size(); size != 3<<20 {
		t.Errorf("the file has %d bytes", size)
	}
	has := func(p *points, key string) bool {
		return len(proctest.Value(p.since(key, began.Add(-time.Minute), began.Add(time.Minute)))(t)) == 1
	}
	if !has(p, "sandbox 255") || has(p, "sandbox 256") {
		t.Error("not the first 256 are kept")
	}
	// The place of one that is gone is for another, which has none of its points.
	proctest.Must(t, p.keep(func(key string) bool { return key != "sandbox 7" }))
	later := point{At: one.At + 60, CPU: 2}
	proctest.Must(t, p.add("service web", later))
	again := opened(t, path)
	if has(again, "sandbox 7") || !has(again, "sandbox 8") || !has(again, "service web") || len(again.slots) != maxSubjects {
		t.Errorf("%d subjects", len(again.slots))
	}
}

// A file that was cut anywhere is still one.
func TestACutFile(t *testing.T) {
	for _, size := range []int64{1, 511, 513, slotSize, slotSize + 3, 2*slotSize - 1} {
		path := filepath.Join(t.TempDir(), "points")
		p := opened(t, path)
		one := point{At: uint32(began.Unix()), CPU: 1}
		proctest.Must(t, p.add("machine", one))
		proctest.Must(t, p.add("service web", one))
		proctest.Must(t, os.Truncate(path, size))
		again := opened(t, path)
		for _, key := range []string{"machine", "service web", "service other"} {
			proctest.Must(t, again.add(key, one))
			if got := proctest.Value(again.since(key, began.Add(-time.Minute), began))(t); len(got) != 1 || got[0] != together(got, one) {
				t.Errorf("of %d bytes, %s: %v", size, key, got)
			}
		}
	}
}

// testdata/v1/points was written by the first version, and never again.
func TestTheFormatStays(t *testing.T) {
	data := proctest.Value(os.ReadFile("testdata/v1/points"))(t)
	path := filepath.Join(t.TempDir(), "points")
	proctest.Must(t, os.WriteFile(path, data, 0o600))
	p := opened(t, path)
	want := []point{{uint32(began.Unix()), 250, 1 << 20, 100, 200}, {uint32(began.Unix()) + 60, 750, 3 << 20, unknown, unknown}}
	for _, key := range []string{"machine", "service shop/web"} {
		if got := proctest.Value(p.since(key, began.Add(-time.Minute), began.Add(time.Minute)))(t); !slices.Equal(got, want) {
			t.Errorf("%s: %+v", key, got)
		}
		five := point{want[1].At, 500, 3 << 20, 100, 200}
		if got := proctest.Value(p.since(key, began.Add(-2*time.Hour), began.Add(time.Minute)))(t); !slices.Equal(got, []point{five}) {
			t.Errorf("%s in a day: %+v", key, got)
		}
	}
}
