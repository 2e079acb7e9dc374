package distant_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/tend-run/tend/internal/protocol/distant/distanttest"
	"github.com/tend-run/tend/internal/protocol/distant/wire"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// TestAFullStdin: the input of a process that does not read waits by itself, up
// to a bound, and what is beyond it is refused.
func TestAFullStdin(t *testing.T) {
	piece := make([]byte, 64<<10)
	t.Run("as lines", func(t *testing.T) {
		c := dialLines(t, serveLines(t))
		id := c.ask("proc_spawned", `{"type":"proc_spawn","cmd":"sleep 100000"}`).ID
		in := fmt.Sprintf(`{"type":"proc_stdin","id":%d,"data":%s}`, id, wire.AppendByteArray(nil, piece))
		const pieces = 300
		go func() {
			for range pieces {
				fmt.Fprintln(c, in)
			}
			fmt.Fprintln(c, `{"type":"proc_spawn","cmd":"sleep 100000"}`)
		}()
		taken := 0
		for range pieces {
			switch l := c.next(); {
			case l.Type == "ok":
				taken++
			case l.Kind != "would_block":
				t.Fatalf("%+v", l)
			}
		}
		if taken < 40 || taken == pieces {
			t.Errorf("%d of %d pieces were taken", taken, pieces)
		}
		if l := c.next(); l.Type != "proc_spawned" {
			t.Errorf("%+v", l)
		}
	})
	t.Run("native", func(t *testing.T) {
		c := serveNative(t).connect()
		id := spawned(t, c, "sh -c 'exec sleep 100000'")
		const pieces = 600
		go func() {
			for range pieces {
				c.Stdin(id, piece)
			}
			c.Spawn("sleep 100000")
		}()
		taken, refused := 0, 0
		for {
			m := one(t, c)
			if m.Type == "proc_spawned" {
				break
			}
			if m.Type == "ok" {
				taken++
			} else if refused++; m.Kind != "would_block" {
				t.Fatalf("%+v", m)
			}
		}
		// Some wait still: they are answered once the process has ended.
		c.About("proc_kill", id)
		ended := 0
		for taken+refused+ended < pieces {
			switch m := one(t, c); {
			case m.Type == "ok": // answers are in no order
				taken++
			case m.Kind == "would_block":
				refused++
			case m.Type == "error":
				ended++
			}
		}
		if taken < 40 || refused == 0 || ended == 0 {
			t.Errorf("of %d pieces %d were taken, %d waited and %d were refused", pieces, taken, ended, refused)
		}
	})
}

// TestNativeInputOfTwoSessions: both write to one process, both are cut again
// and again, the server is restarted, and a third appends beside them.
func TestNativeInputOfTwoSessions(t *testing.T) {
	const lines = 300
	n := serveNative(t)
	first, second := n.connect(), n.connect() // a restart would refuse a new session
	spawn := spawned(t, first, "cat")
	proc := processOf(t, n.manager, spawn)
	write := func(name string, c *distanttest.Client, number int) {
		go func() {
			for i := range lines {
				c.Stdin(spawn, fmt.Appendf(nil, "%s %d %s\n", name, i, strings.Repeat(name, i%300)))
			}
		}()
		for oks := 0; oks < lines; {
			m, err := c.Receive()
			if err != nil {
				t.Error(err)
				return
			}
			if m[0].Type == "ok" {
				oks++
			} else if m[0].Type == "error" {
				t.Errorf("%s: %+v", name, m)
				return
			}
			switch {
			case m[0].Type != "ok":
			case oks%100 == 99 && number == 0:
				n.restart()
			case oks%40 == 0:
				c.Cut()
			}
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() { write("a", first, 0) })
	wg.Go(func() { write("b", second, 1) })
	wg.Go(func() {
		for i := range lines {
			if _, err := proc.Write(context.Background(), process.Input{Data: fmt.Appendf(nil, "c %d %s\n", i, strings.Repeat("c", i%300))}); err != nil {
				t.Error(err)
				return
			}
		}
	})
	wg.Wait()
	proctest.Value(proc.Write(context.Background(), process.Input{EOF: true}))(t)
	next := map[string]int{}
	for _, line := range bytes.SplitAfter(outputOf(t, proc), []byte("\n")) {
		if len(line) == 0 {
			continue
		}
		name := string(line[:1])
		if want := fmt.Sprintf("%s %d %s\n", name, next[name], strings.Repeat(name, next[name]%300)); string(line) != want {
			t.Fatalf("%.60q came for %.60q", line, want)
		}
		next[name]++
	}
	for _, name := range []string{"a", "b", "c"} {
		if next[name] != lines {
			t.Errorf("%d lines of %s", next[name], name)
		}
	}
}

// processOf finds a process by the number that clients know.
func processOf(t *testing.T, m process.Manager, number uint32) process.Process {
	t.Helper()
	p := proctest.Value(m.Get(context.Background(), process.Selector{Tag: fmt.Sprint("distant-", number)}))(t)
	return p
}

// outputOf reads stdout to its end.
func outputOf(t *testing.T, p process.Process) (out []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r := proctest.Value(p.Read(ctx, process.ReadOptions{Streams: []process.Stream{process.Stdout}, Drain: -1}))(t)
	defer r.Close()
	for ev, err := range process.Follow(ctx, r) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Kind == process.EventOutput {
			out = append(out, ev.Data...)
		}
	}
	return out
}
