//go:build linux

package client_test

import (
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/scene"
	"github.com/tend-run/tend/internal/testkeeper"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/spool"
)

// A process that writes for ever in small pieces must not fill the disk with
// records of what was freed long ago.
func TestTheIndexIsFreedWithTheOutput(t *testing.T) {
	dir := testkeeper.Start(t)
	m := testkeeper.Open(t, dir)
	p := scene.Start(t, m, process.Spec{
		// One write for each line.
		Shell:     "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); echo line-$i-0123456789; done",
		Retention: process.Retention{Limit: 64 << 10},
	})
	scene.Wait(t, p, process.Until{EOF: true})
	var st unix.Stat_t
	scene.Must(t, unix.Stat(filepath.Join(dir, "spool", string(p.ID()), spool.IndexName), &st))
	t.Logf("index of %d bytes takes %d on disk", st.Size, st.Blocks*512)
	if st.Blocks*512 > max(st.Size/2, 64<<10) {
		t.Errorf("an index of %d bytes takes %d on disk for 64 KiB of output", st.Size, st.Blocks*512)
	}
	// From the first byte: one gap, then all that is kept, in order.
	r := scene.Read(t, p, process.ReadOptions{})
	var at, gaps int64
	var text strings.Builder
	for ev, err := range process.Follow(t.Context(), r) {
		if err != nil {
			t.Fatal(err)
		}
		switch ev.Kind {
		case process.EventGap:
			gaps++
			at = ev.Gap.To
		case process.EventOutput:
			if ev.Offset != at {
				t.Fatalf("output at %d after %d", ev.Offset, at)
			}
			at += int64(len(ev.Data))
			text.Write(ev.Data)
		}
	}
	if gaps != 1 || !strings.HasSuffix(text.String(), "line-59999-0123456789\nline-60000-0123456789\n") {
		t.Errorf("%d gaps, and %d bytes that end otherwise", gaps, text.Len())
	}
}
