//go:build linux

package client_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/tend-run/tend/internal/core/client"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// finished waits until nothing of a process is left.
func finished(t *testing.T, p process.Process) {
	t.Helper()
	proctest.Eventually(t, string(p.ID())+" is over", func() bool {
		in := proctest.Info(t, p)
		for _, s := range in.Streams {
			if !s.EOF {
				return false
			}
		}
		return in.TreeGone && in.Exit != nil
	})
}

// output reads all that is kept, and where it begins.
func output(t *testing.T, p process.Process) (from int64, data []byte) {
	t.Helper()
	r := proctest.Read(t, p, process.ReadOptions{NoFollow: true})
	for {
		ev, ok, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return from, data
		case err != nil:
			t.Fatal(err)
		case !ok:
			<-r.Ready()
		case ev.Kind == process.EventGap:
			from = ev.Gap.To
		case ev.Kind == process.EventOutput:
			data = append(data, ev.Data...)
		}
	}
}

// What a server did to a finished process is known to the next one, although
// the first died before it gave the process's place on the board back.
func TestTheNextServerKnowsWhatWasDoneToAFinishedProcess(t *testing.T) {
	dir := testkeeper.Start(t)
	m, end := nextServer(t, dir, client.Config{})
	m.HoldSlots()
	p := proctest.Start(t, m, process.Spec{ID: "done", Shell: "head -c 65536 /dev/zero | tr '\\0' x"})
	finished(t, p)
	proctest.Must(t, p.Trim(t.Context(), process.Stdout, 32768))
	proctest.Must(t, p.Pin(t.Context(), true))
	end()

	m, _ = nextServer(t, dir, client.Config{})
	p = proctest.Find(t, m, "done")
	from, data := output(t, p)
	if from != 32768 || !bytes.Equal(data, bytes.Repeat([]byte("x"), 32768)) {
		t.Errorf("from %d on, %d bytes, %d of them zeros; want 32768 bytes from 32768 on", from, len(data), bytes.Count(data, []byte{0}))
	}
	if in, err := p.Info(t.Context()); err != nil || !in.Pinned {
		t.Errorf("pinned %v, %v", in.Pinned, err)
	}
}

// The input of a process that nobody has written to is closed although the server
// died in the middle of that. Who repeats it is told that it was done.
func TestInputIsClosedThoughTheServerDies(t *testing.T) {
	dir := testkeeper.Start(t)
	m, end := nextServer(t, dir, client.Config{})
	p := proctest.Start(t, m, process.Spec{ID: "reader", Argv: []string{"cat"}, Stdin: process.StdinPipe})
	client.WishEOF(p)
	end()

	m, _ = nextServer(t, dir, client.Config{})
	p = proctest.Find(t, m, "reader")
	proctest.Value(p.Write(t.Context(), process.Input{Offset: new(int64(0)), EOF: true}))(t)
	proctest.Eventually(t, "it reads the end of its input", func() bool {
		in, err := p.Info(t.Context())
		return err == nil && in.Exit != nil
	})
}

// A write whose answer was lost is acknowledged when it is repeated, although
// the process has ended and another server answers; what was not taken is not.
func TestTheNextServerKnowsWhatInputAProcessTook(t *testing.T) {
	for name, hold := range map[string]bool{"from its files": false, "from the board": true} {
		t.Run(name, func(t *testing.T) {
			dir := testkeeper.Start(t)
			m, end := nextServer(t, dir, client.Config{})
			if hold {
				m.HoldSlots()
			}
			p := proctest.Start(t, m, process.Spec{ID: "reader", Argv: []string{"cat"}, Stdin: process.StdinPipe})
			zero, three := int64(0), int64(3)
			last := process.Input{Data: []byte("abc"), Offset: &zero, EOF: true}
			proctest.Value(p.Write(t.Context(), last))(t)
			finished(t, p)
			end()
			if !hold {
				killKeeper(t, dir)
			}

			m, _ = nextServer(t, dir, client.Config{})
			p = proctest.Find(t, m, "reader")
			if taken, err := p.Write(t.Context(), last); err != nil || taken.Offset != 3 {
				t.Errorf("repeated: %d, %v; want it acknowledged at 3", taken.Offset, err)
			}
			if in, err := p.Info(t.Context()); err != nil || in.Stdin.Accepted != 3 || in.Stdin.Open {
				t.Errorf("%+v, %v; want 3 bytes accepted, and closed", in.Stdin, err)
			}
			for what, in := range map[string]process.Input{
				"more":       {Data: []byte("d"), Offset: &three},
				"longer":     {Data: []byte("abcd"), Offset: &zero},
				"no offset":  {Data: []byte("abc")},
				"before all": {Data: []byte("abc"), Offset: new(int64(-1))},
			} {
				if _, err := p.Write(t.Context(), in); !errors.Is(err, process.ErrExited) {
					t.Errorf("%s: %v; want %v", what, err, process.ErrExited)
				}
			}
		})
	}
}
