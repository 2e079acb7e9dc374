package langsmith_test

import (
	"testing"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"
)

func TestAnOffsetBeyondTheEndGivesNothingButTheExit(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	c, _ := s.execute(object{"command": `printf 'out\377'; printf err >&2; exit 3`, "command_id": "done"})
	c.rest(0, 0)
	for _, at := range [][2]int64{{7, 3}, {6, 4}, {1 << 62, 1<<63 - 1}} {
		c, f := s.reconnect("done", at[0], at[1])
		if f.Type != "started" {
			t.Fatalf("from %v: %+v", at, f)
		}
		if d := cmp.Diff(outcome{Exit: exit(3), Code: websocket.StatusNormalClosure}, c.rest(at[0], at[1])); d != "" {
			t.Errorf("from %v:\n%s", at, d)
		}
	}
	c, _ = s.reconnect("done", 1<<62, 0) // the other stream is not concerned
	if o := c.rest(1<<62, 0); o.Stdout != "" || o.Stderr != "err" || o.Exit == nil {
		t.Errorf("%+v", o)
	}
}

func TestAnOffsetBeyondTheEndOfWhatRunsIsReachedInTime(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	// é is two bytes, 0xFF becomes three.
	c, _ := s.execute(object{"command": `printf 'ab'; read x; printf 'é\377cd'; read x; printf 'ef'`, "command_id": "live"})
	c.until("ab")
	var checks []func()
	for from, want := range map[int64]string{2: "é\uFFFDcdef", 3: "é\uFFFDcdef", 4: "\uFFFDcdef", 5: "\uFFFDcdef", 7: "cdef", 8: "def", 10: "f", 11: "", 100: ""} {
		ahead, f := s.reconnect("live", from, 0)
		if f.Type != "started" {
			t.Fatalf("%+v", f)
		}
		checks = append(checks, func() {
			// An offset inside a character continues at its beginning.
			begin := map[int64]int64{3: 2, 5: 4}[from]
			if begin == 0 {
				begin = from
			}
			if o := ahead.rest(begin, 0); o.Stdout != want || o.Exit == nil {
				t.Errorf("from %d: %+v, want %q", from, o, want)
			}
		})
	}
	c.send(object{"type": "input", "data": "\n"})
	c.until("cd")
	c.send(object{"type": "input", "data": "\n"})
	if o := c.rest(9, 0); o.Stdout != "ef" {
		t.Errorf("%+v", o)
	}
	for _, check := range checks {
		check()
	}
}
