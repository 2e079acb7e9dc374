package langsmith_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"

	"github.com/tend-run/tend/internal/protocol/langsmith"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

func TestWhatACommandTells(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	tests := []struct {
		name string
		m    object
		want outcome
	}{
		{"output and exit code", object{"command": "echo out; echo err >&2; exit 3"}, outcome{Stdout: "out\n", Stderr: "err\n", Exit: exit(3)}},
		{"a shell of one's own", object{"command": "echo $0", "shell": "/bin/sh"}, outcome{Stdout: "/bin/sh\n", Exit: exit(0)}},
		{"a program that is missing", object{"command": "no-such-program-4711 2>/dev/null"}, outcome{Exit: exit(127)}},
		{"a signal", object{"command": "kill -9 $$"}, outcome{Exit: exit(137)}},
		{"environment", object{"command": `echo "$A"`, "env": object{"A": "b c"}}, outcome{Stdout: "b c\n", Exit: exit(0)}},
		{"run_config", object{"command": `echo "$A $PWD"`, "run_config": object{"work_dir": "/", "env_vars": object{"A": "b"}}}, outcome{Stdout: "b /\n", Exit: exit(0)}},
		{"a relative directory", object{"command": "mkdir -p sub; cd sub; pwd", "cwd": "."}, outcome{Stdout: s.box.Dir + "/sub\n", Exit: exit(0)}},
		{"a closed stdin", object{"command": "cat; echo end", "close_stdin": true}, outcome{Stdout: "end\n", Exit: exit(0)}},
		{"a terminal", object{"command": "stty size; echo $TERM", "pty": true}, outcome{Stdout: "24 80\r\nxterm-256color\r\n", Exit: exit(0)}},
		{"control characters and quotes", object{"command": `printf '\0\1"\\\n\t\177\342\200\250'`}, outcome{Stdout: "\x00\x01\"\\\n\t\x7f\u2028", Exit: exit(0)}},
		{"bytes that are no text", object{"command": `printf 'a\377\303b\342\202'`}, outcome{Stdout: "a\uFFFD\uFFFDb\uFFFD\uFFFD", Exit: exit(0)}},
		{"a background job does not hold the end back", object{"command": "sleep 600 & echo done"}, outcome{Stdout: "done\n", Exit: exit(0)}},
		{"a timeout is an error", object{"command": "echo early; sleep 600", "timeout_seconds": 0.3}, outcome{Stdout: "early\n", ErrorType: "CommandTimeout", Error: "Command timed out and was killed with all its children"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, f := s.execute(tt.m)
			if f.Type != "started" || f.PID == 0 || f.CommandID == "" {
				t.Fatalf("the first frame is %+v", f)
			}
			tt.want.Code = websocket.StatusNormalClosure
			if d := cmp.Diff(tt.want, c.rest(0, 0)); d != "" {
				t.Error(d)
			}
			// Reading again gives the same, however it ended.
			again, f := s.reconnect(f.CommandID, 0, 0)
			if f.Type != "started" {
				t.Fatalf("the first frame of the second time is %+v", f)
			}
			if d := cmp.Diff(tt.want, again.rest(0, 0)); d != "" {
				t.Error("the second time:\n", d)
			}
		})
	}
}

func TestExecuteIsGetOrCreate(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	conns := make([]*wsConn, 20)
	for i := range conns {
		conns[i] = s.dial()
	}
	for i, c := range conns { // with other words for the same id, too
		c.send(object{"type": "execute", "command": "echo ran >> count; read x; cat count", "command_id": "once", "timeout_seconds": 60 + i%2})
	}
	pids := map[int]bool{}
	for _, c := range conns {
		f, _, _ := c.next()
		if f.Type != "started" || f.CommandID != "once" {
			t.Fatalf("%+v", f)
		}
		pids[f.PID] = true
	}
	conns[0].send(object{"type": "input", "data": "\n"})
	for _, c := range conns {
		if o := c.rest(0, 0); o.Stdout != "ran\n" {
			t.Errorf("%+v", o)
		}
	}
	if len(pids) != 1 {
		t.Errorf("%d processes were started", len(pids))
	}
}

func TestTextOffsetsResumeExactly(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	// Bytes that are text, bytes that are not, and characters cut by the
	// pieces in which they are written.
	line := `for i in $(seq 400); do printf 'text %d \377\303\250\342\202' $i; printf '\254\360\237\n'; done; head -c 150000 /bin/bash; exit 4`
	c, f := s.execute(object{"command": line})
	whole := c.rest(0, 0)
	if whole.Exit == nil || *whole.Exit != 4 || len(whole.Stdout) < 150_000 {
		t.Fatalf("exit %v after %d bytes", whole.Exit, len(whole.Stdout))
	}
	check := func(t *testing.T) {
		starts := []int{}
		for i := range whole.Stdout { // where characters begin
			starts = append(starts, i)
		}
		for i := 0; i < len(starts); i += len(starts)/40 + 1 {
			at := starts[i]
			again, _ := s.reconnect(f.CommandID, int64(at), 0)
			if o := again.rest(int64(at), 0); o.Stdout != whole.Stdout[at:] || o.Exit == nil || *o.Exit != 4 {
				t.Fatalf("from %d: %d bytes and %v, want %d", at, len(o.Stdout), o.Exit, len(whole.Stdout)-at)
			}
		}
		end, _ := s.reconnect(f.CommandID, int64(len(whole.Stdout)), 0)
		if o := end.rest(int64(len(whole.Stdout)), 0); o.Stdout != "" || o.Exit == nil {
			t.Errorf("at the end: %+v", o)
		}
		// Inside a character: from its beginning, and told so.
		at := strings.Index(whole.Stdout, "\uFFFD") + 1
		inside, _ := s.reconnect(f.CommandID, int64(at), 0)
		if g, _, _ := inside.next(); g.Offset != int64(at-1) {
			t.Errorf("inside a character at %d the output goes on at %d", at, g.Offset)
		}
	}
	check(t)
	t.Run("at another server, too", func(t *testing.T) {
		s.face.Close()
		s.start(nil)
		check(t)
	})
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	done, f := s.execute(object{"command": "printf 12345", "command_id": "done"})
	done.rest(0, 0)
	if f.Type != "started" {
		t.Fatal(f)
	}
	long := strings.Repeat("x", 300)
	tests := []struct {
		name      string
		first     any
		kind, say string
	}{
		{"an unknown command", object{"type": "reconnect", "command_id": "nobody"}, "CommandNotFound", "nobody"},
		{"no command id at all", object{"type": "reconnect"}, "CommandNotFound", ""},
		{"a command id that is too long", object{"type": "reconnect", "command_id": long}, "CommandNotFound", ""},
		{"a command id that is too long, to execute", object{"type": "execute", "command": "true", "command_id": long}, "InvalidRequest", "command_id"},
		{"malformed JSON", `{"type":`, "InvalidRequest", "not what this protocol sends"},
		{"JSON that is no object", `[1]`, "InvalidRequest", "not what this protocol sends"},
		{"a wrong first message", object{"type": "input", "data": "x"}, "InvalidRequest", "execute or reconnect"},
		{"an unknown type", object{"type": "dance"}, "InvalidRequest", "dance"},
		{"no type", object{}, "InvalidRequest", "execute or reconnect"},
		{"a negative offset", object{"type": "reconnect", "command_id": "done", "stdout_offset": -1}, "InvalidRequest", "negative"},
		{"an offset that is no number", object{"type": "reconnect", "command_id": "done", "stdout_offset": "0"}, "InvalidRequest", "stdout_offset"},
		{"no command", object{"type": "execute"}, "InvalidRequest", "command is empty"},
		{"a variable without a name", object{"type": "execute", "command": "true", "env": object{"": "x"}}, "InvalidRequest", "env"},
		{"a variable with = in its name", object{"type": "execute", "command": "true", "env": object{"A=B": "x"}}, "InvalidRequest", "env"},
		{"a NUL byte in a variable", object{"type": "execute", "command": "true", "env": object{"A": "\x00"}}, "InvalidRequest", "env"},
		{"a variable that is no text", object{"type": "execute", "command": "true", "env": object{"A": 1}}, "InvalidRequest", "env"},
		{"env beside run_config", object{"type": "execute", "command": "true", "env": object{"A": "1"}, "run_config": object{}}, "InvalidRequest", "run_config"},
		{"a NUL byte in the command", object{"type": "execute", "command": "a\x00b"}, "InvalidRequest", "NUL"},
		{"a negative timeout", object{"type": "execute", "command": "true", "timeout_seconds": -1}, "InvalidRequest", "timeout_seconds"},
		{"a negative idle timeout that is not -1", object{"type": "execute", "command": "true", "idle_timeout_seconds": -2}, "InvalidRequest", "idle_timeout_seconds"},
		{"a shell that is missing", object{"type": "execute", "command": "true", "shell": "/no/such/shell"}, "CommandError", "/no/such/shell"},
		{"a directory that is missing", object{"type": "execute", "command": "true", "cwd": "/no/such/dir"}, "CommandError", "/no/such/dir"},
		{"a user that is missing", object{"type": "execute", "command": "true", "run_config": object{"user": "no-such-user"}}, "CommandError", "no-such-user"},
		{"an agent to forward", object{"type": "execute", "command": "true", "ssh_agent_forward": true}, "InvalidRequest", "ssh_agent_forward"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := s.dial()
			c.send(tt.first)
			var got frame
			for {
				f, code, ok := c.next()
				if !ok {
					if code != websocket.StatusNormalClosure {
						t.Errorf("closed with %d", code)
					}
					break
				}
				got = f
			}
			if got.Type != "error" || got.ErrorType != tt.kind || !strings.Contains(got.Error, tt.say) {
				t.Errorf("the last frame is %+v, want an error %s that says %q", got, tt.kind, tt.say)
			}
		})
	}
	t.Run("a frame that is too large closes with 1009", func(t *testing.T) {
		c := s.dial()
		c.send(`{"type":"execute","command":"` + strings.Repeat("x", 17<<20) + `"}`)
		if o := c.rest(0, 0); o.Code != websocket.StatusMessageTooBig || o.ErrorType != "InvalidRequest" {
			t.Errorf("%+v", o)
		}
	})
	t.Run("a binary frame is refused", func(t *testing.T) {
		c := s.dial()
		proctest.Must(t, c.Write(t.Context(), websocket.MessageBinary, []byte(`{"type":"execute"}`)))
		if f, _, _ := c.next(); f.ErrorType != "InvalidRequest" {
			t.Errorf("%+v", f)
		}
	})
	for _, later := range []any{object{"type": "execute", "command": "true"}, object{"type": "reconnect", "command_id": "done"}, object{"type": "dance"}, "{"} {
		t.Run(fmt.Sprintf("later, %v is an error and the command goes on", later), func(t *testing.T) {
			c, f := s.execute(object{"command": "read x; echo got $x"})
			c.send(later)
			if o := c.rest(0, 0); o.ErrorType != "InvalidRequest" || o.Exit != nil {
				t.Errorf("%+v", o)
			}
			c, _ = s.reconnect(f.CommandID, 0, 0)
			c.send(object{"type": "input", "data": "on\n"})
			if o := c.rest(0, 0); o.Stdout != "got on\n" {
				t.Errorf("%+v", o)
			}
		})
	}
}

func TestFreedOutputIsTold(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	c, f := s.execute(object{"command": `for i in $(seq 3000); do printf 'line %05d \377\n' $i; done; read x`})
	var text string
	for len(text) < 3000*15 {
		g, code, ok := c.next()
		if !ok {
			t.Fatalf("closed with %d after %d bytes", code, len(text))
		}
		text += g.Data
	}
	list, err := s.manager.List(t.Context(), process.Filter{Labels: map[string]string{"langsmith.command": f.CommandID}})
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	p := proctest.Value(s.manager.Get(t.Context(), process.Selector{ID: list[0].ID}))(t)
	proctest.Must(t, p.Trim(t.Context(), process.Stdout, 20_000))
	for range 2 { // the second time at a server that has not seen the output
		late, _ := s.reconnect(f.CommandID, 0, 0)
		o := late.rest(0, 0)
		var from, to int64
		if _, err := fmt.Sscanf(o.Error, "bytes %d to %d of stdout were freed", &from, &to); err != nil || o.ErrorType != "OutputTruncated" || from != 0 || to < 4096 || o.Stdout != "" {
			t.Fatalf("%+v: %v", o, err)
		}
		rest, _ := s.reconnect(f.CommandID, to, 0)
		var got string
		for int64(len(got)) < int64(len(text))-to {
			g, _, ok := rest.next()
			if !ok || g.Offset != to+int64(len(got)) {
				t.Fatalf("%+v after %d bytes from %d on", g, len(got), to)
			}
			got += g.Data
		}
		if got != text[to:] {
			t.Error("what is left is other text")
		}
		s.face.Close()
		s.start(nil)
	}
}

func TestKillAndInput(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	t.Run("kill overtakes input that nobody reads", func(t *testing.T) {
		c, _ := s.execute(object{"command": "sleep 600", "timeout_seconds": 0})
		for range 40 {
			c.send(object{"type": "input", "data": strings.Repeat("x", 256<<10)})
		}
		c.send(object{"type": "kill"})
		if o := c.rest(0, 0); o.Exit == nil || *o.Exit != 137 {
			t.Errorf("%+v", o)
		}
	})
	t.Run("kill with the close right behind it", func(t *testing.T) {
		c, f := s.execute(object{"command": "while :; do echo tick; done"})
		c.send(object{"type": "kill"})
		c.CloseNow()
		again, _ := s.reconnect(f.CommandID, 0, 0)
		for {
			g, _, ok := again.next()
			if !ok {
				t.Fatal("no exit")
			}
			if g.Type == "exit" {
				if *g.ExitCode != 137 {
					t.Errorf("%+v", g)
				}
				break
			}
		}
	})
	t.Run("a terminal has a size, input and an end of its own", func(t *testing.T) {
		c, _ := s.execute(object{"command": "trap 'stty size; exit 5' WINCH; echo up; while :; do sleep 0.05; done", "pty": true})
		c.until("up\r\n")
		c.send(object{"type": "close_stdin"}) // ignored
		c.send(object{"type": "resize", "cols": 1 << 40, "rows": 50})
		if o := c.rest(4, 0); !strings.HasSuffix(o.Stdout, "50 65535\r\n") || o.Exit == nil || *o.Exit != 5 {
			t.Errorf("%+v", o)
		}
	})
	t.Run("kill_on_disconnect waits for the last client", func(t *testing.T) {
		c, f := s.execute(object{"command": "echo up; sleep 600", "kill_on_disconnect": true})
		c.until("up\n")
		other, _ := s.reconnect(f.CommandID, 0, 0)
		other.until("up\n")
		proctest.Must(t, c.Close(websocket.StatusNormalClosure, ""))
		list, err := s.manager.List(t.Context(), process.Filter{Labels: map[string]string{"langsmith.command": f.CommandID}})
		if err != nil || len(list) != 1 || list[0].Exit != nil {
			t.Fatalf("%+v, %v", list, err)
		}
		other.CloseNow()
		p := proctest.Value(s.manager.Get(t.Context(), process.Selector{ID: list[0].ID}))(t)
		if res, err := p.Wait(t.Context(), process.Until{}); err != nil || res.Exit.Signal != 9 {
			t.Errorf("%+v, %v", res.Exit, err)
		}
	})
	t.Run("the times of a command reach the process", func(t *testing.T) {
		for name, tt := range map[string]struct {
			m    object
			want [3]time.Duration // timeout, without readers, ttl
		}{
			"defaults":          {object{}, [3]time.Duration{time.Minute, 5 * time.Minute, 10 * time.Minute}},
			"never":             {object{"timeout_seconds": 0, "idle_timeout_seconds": -1, "ttl_seconds": -1}, [3]time.Duration{0, 0, process.MaxTimeout}},
			"as short as it is": {object{"timeout_seconds": 1e-9, "idle_timeout_seconds": 0, "ttl_seconds": 0}, [3]time.Duration{time.Millisecond, time.Second, time.Second}},
			"more than any":     {object{"timeout_seconds": 1e300, "idle_timeout_seconds": 1e300, "ttl_seconds": 1e300}, [3]time.Duration{process.MaxTimeout, process.MaxTimeout, process.MaxTimeout}},
		} {
			tt.m["command"] = "true"
			c, f := s.execute(tt.m)
			c.rest(0, 0)
			list, err := s.manager.List(t.Context(), process.Filter{Labels: map[string]string{"langsmith.command": f.CommandID}})
			if err != nil || len(list) != 1 {
				t.Fatal(list, err)
			}
			spec := list[0].Spec
			if d := cmp.Diff(tt.want, [3]time.Duration{spec.Timeout, spec.KillWithoutReaders, spec.Retention.TTL}); d != "" {
				t.Errorf("%s:\n%s", name, d)
			}
		}
	})
}

func TestReloadTellsEachClientWhatHelps(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	running, f := s.execute(object{"command": "printf 'one '; read x; printf two"})
	running.until("one ")
	undecided := s.dial() // has not said what it wants
	closed := make(chan struct{})
	go func() { s.face.Close(); close(closed) }()
	if o := running.rest(4, 0); o.Code != websocket.StatusGoingAway || o.Exit != nil || o.ErrorType != "" {
		t.Errorf("a running command's client got %+v, want close code 1001", o)
	}
	if _, code, ok := undecided.next(); ok || code != websocket.StatusNormalClosure {
		t.Errorf("a client without a command was closed with %d, want 1000", code)
	}
	// Still accepting: a clean close, so that it is tried again.
	late := s.dial()
	if _, code, ok := late.next(); ok || code != websocket.StatusNormalClosure {
		t.Errorf("a late client was closed with %d, want 1000", code)
	}
	<-closed
	s.start(nil)
	again, g := s.reconnect(f.CommandID, 4, 0)
	if g.Type != "started" || g.PID != f.PID {
		t.Errorf("%+v", g)
	}
	again.send(object{"type": "input", "data": "\n"})
	if o := again.rest(4, 0); o.Stdout != "two" || o.Exit == nil || *o.Exit != 0 {
		t.Errorf("%+v", o)
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *langsmith.Config) { c.MaxConnections = 2 })
	var open, refused atomic.Int32
	var all sync.WaitGroup
	for range 20 { // at one instant
		all.Go(func() {
			res := s.do("GET", s.data()+"/execute/ws", "", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==")
			t.Cleanup(func() { res.Body.Close() })
			switch {
			case res.StatusCode == 101:
				open.Add(1)
			case res.StatusCode == 503 && res.Header.Get("Retry-After") != "":
				refused.Add(1)
			default:
				t.Errorf("%s, Retry-After %q", res.Status, res.Header.Get("Retry-After"))
			}
		})
	}
	all.Wait()
	if open.Load() != 2 || refused.Load() != 18 {
		t.Errorf("%d are open, %d were refused; want 2 and 18", open.Load(), refused.Load())
	}
}
