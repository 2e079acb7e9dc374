//go:build linux

package client_test

import (
	"fmt"
	"iter"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/failpoint"
	"github.com/tend-run/tend/internal/core/spool"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// A process that writes for ever in small pieces must not fill the disk with
// records of what was freed long ago.
func TestTheIndexIsFreedWithTheOutput(t *testing.T) {
	dir := testkeeper.Start(t)
	m := testkeeper.Open(t, dir)
	p := proctest.Start(t, m, process.Spec{
		// One write for each line.
		Shell:     "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); echo line-$i-0123456789; done",
		Retention: process.Retention{Limit: 64 << 10},
	})
	proctest.Wait(t, p, process.Until{EOF: true})
	var st unix.Stat_t
	proctest.Must(t, unix.Stat(filepath.Join(dir, "spool", string(p.ID()), spool.IndexName), &st))
	t.Logf("index of %d bytes takes %d on disk", st.Size, st.Blocks*512)
	if st.Blocks*512 > max(st.Size/2, 64<<10) {
		t.Errorf("an index of %d bytes takes %d on disk for 64 KiB of output", st.Size, st.Blocks*512)
	}
	// From the first byte: one gap, then all that is kept, in order.
	r := proctest.Read(t, p, process.ReadOptions{})
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

// A client that changes the size of a terminal without end fills no disk, and what is
// shown has the size on which it was written, for the next keeper, too.
func TestAStormOfSizesIsBoundedInTheIndex(t *testing.T) {
	dir := testkeeper.Start(t)
	m := testkeeper.Open(t, dir)
	p := proctest.Start(t, m, process.Spec{Shell: "stty -echo; echo ready; while read x; do stty size; done", PTY: &process.Size{Cols: 80, Rows: 24}})
	var text strings.Builder
	r := process.Events(t.Context(), p, process.ReadOptions{})
	next, stop := iter.Pull2(r)
	defer stop()
	until := func(end string) {
		t.Helper()
		for !strings.HasSuffix(text.String(), end) {
			ev, err, ok := next()
			if !ok || err != nil {
				t.Fatalf("%q, then %v", text.String(), err)
			}
			text.Write(ev.Data)
		}
	}
	storm := func(cols, n int) {
		t.Helper()
		for i := range n {
			proctest.Value(p.Resize(t.Context(), process.Resize{To: process.Size{Cols: uint16(cols + i), Rows: 30}}))(t)
		}
	}
	until("ready\r\n")
	storm(1000, 10_000)
	var st unix.Stat_t
	proctest.Must(t, unix.Stat(filepath.Join(dir, "spool", string(p.ID()), spool.IndexName), &st))
	if most := int64(300 * spool.IndexSize); st.Size > most {
		t.Errorf("the index has %d bytes after 10,000 changes of size; want at most %d", st.Size, most)
	}
	killKeeper(t, dir)
	input := func() { proctest.Value(p.Write(t.Context(), process.Input{Data: []byte("\n")}))(t) }
	input()
	until("30 10999\r\n")
	storm(20, 3)
	input()
	until("30 22\r\n")
	proctest.Value(p.Kill(t.Context()))(t)
	var sizes []string
	for ev, err := range process.Events(t.Context(), p, process.ReadOptions{Sizes: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Kind == process.EventResized {
			sizes = append(sizes, fmt.Sprintf("%d:%d", ev.Offset, ev.Size.Cols))
		}
	}
	if n := len(sizes); n > 300 || sizes[0] != "0:80" || !slices.Equal(sizes[n-4:], []string{"7:10999", "17:20", "17:21", "17:22"}) {
		t.Errorf("%d sizes, %q", n, sizes)
	}
}

// The keeper dies while it takes the first bytes of a terminal: they have a size even so.
func TestTheFirstByteOfATerminalHasASize(t *testing.T) {
	m, table, _ := pointsManager(t)
	for _, at := range []failpoint.Point{failpoint.Staged, failpoint.Spliced, failpoint.Indexed} {
		table.Arm(at, 1, false)
		p := proctest.Start(t, m, process.Spec{Shell: "echo one; read x", PTY: &process.Size{Cols: 90, Rows: 30}})
		proctest.Eventually(t, "the keeper dies", func() bool {
			times, _ := table.Struck(at)
			return times == 1
		})
		proctest.Value(p.Write(t.Context(), process.Input{Data: []byte("\n")}))(t)
		var sizes []string
		for ev, err := range process.Events(t.Context(), p, process.ReadOptions{Sizes: true}) {
			if err != nil {
				t.Fatal(err)
			}
			if ev.Kind == process.EventResized {
				sizes = append(sizes, fmt.Sprintf("%d:%dx%d", ev.Offset, ev.Size.Cols, ev.Size.Rows))
			}
		}
		if !slices.Equal(sizes, []string{"0:90x30"}) {
			t.Errorf("%s: the sizes are %q", at, sizes)
		}
	}
}
