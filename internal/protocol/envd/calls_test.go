package envd_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

func sel(pid int) string { return fmt.Sprintf(`"process":{"pid":%d}`, pid) }

func TestConnect(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	first := s.stream("Start", sh("printf early; read x; printf late; exit 7", `"tag":"job"`)).started()
	first.until("early")
	id := first.res.Header.Get("Tend-Id")

	live := s.stream("Connect", "{"+sel(first.pid)+"}").started()
	if got := live.res.Header.Get("Tend-Offset"); got != "stdout=5,stderr=0" {
		t.Errorf("Tend-Offset is %q", got)
	}
	if got := live.res.Header.Get("Tend-Id"); got != id || id == "" {
		t.Errorf("Tend-Id is %q on Connect and %q on Start", got, id)
	}
	all := s.stream("Connect", `{"process":{"tag":"job"}}`, "Tend-From: 0").started()
	part := s.stream("Connect", `{"process":{"tag":"job"}}`, "Tend-From: stdout=2").started()
	s.call("SendInput", "{"+sel(first.pid)+`,"input":{"stdin":"`+b64("go\n")+`"}}`)

	for name, tc := range map[string]struct {
		st   *stream
		want string
	}{
		"the starter reads on": {first, "late"}, "a plain Connect gets only what comes from now on": {live, "late"},
		"Tend-From 0 replays all": {all, "earlylate"}, "Tend-From stdout=2 replays from there": {part, "rlylate"},
	} {
		if d := cmp.Diff(result{Stdout: tc.want, End: exitEnd(7)}, tc.st.rest()); d != "" {
			t.Errorf("%s: -want +got:\n%s", name, d)
		}
	}
	if d := cmp.Diff(result{End: exitEnd(7)}, s.stream("Connect", "{"+sel(first.pid)+"}").started().rest()); d != "" {
		t.Errorf("a finished process gives start and end, -want +got:\n%s", d)
	}
	if d := cmp.Diff(result{Stdout: "earlylate", End: exitEnd(7)}, s.stream("Connect", `{"process":{"tag":"job"}}`, "Tend-From: 0").started().rest()); d != "" {
		t.Errorf("a finished process can be replayed, -want +got:\n%s", d)
	}

	for name, tc := range map[string]struct{ body, header, want string }{
		"an unknown pid":         {`{"process":{"pid":4194305}}`, "X: y", "not_found: process with pid 4194305 not found"},
		"an unknown tag":         {`{"process":{"tag":"none"}}`, "X: y", "not_found: process with tag none not found"},
		"no selector":            {`{}`, "X: y", "unimplemented: invalid input type *process.ProcessSelector"},
		"an offset past the end": {`{"process":{"tag":"job"}}`, "Tend-From: stdout=10000", "out_of_range: "},
		"offsets in disorder":    {`{"process":{"tag":"job"}}`, "Tend-From: stdin=1", "invalid_argument: Tend-From has \"stdin=1\""},
		"a negative offset":      {`{"process":{"tag":"job"}}`, "Tend-From: -1", "invalid_argument: Tend-From"},
	} {
		if got := s.stream("Connect", tc.body, tc.header).rest(); !strings.HasPrefix(got.Err, tc.want) {
			t.Errorf("%s: got %q, want %q…", name, got.Err, tc.want)
		}
	}
}

func TestTagOfSeveralProcesses(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	pids := map[string]int{}
	for _, tag := range []string{"a", "b", "c", "d", "e", "f", "a", strings.Repeat("t", 1000), strings.Repeat("t", 10000)} {
		pids[tag] = s.stream("Start", sh("read x", `"tag":"`+tag+`"`)).started().pid
	}
	for tag, pid := range pids {
		if got := s.stream("Connect", `{"process":{"tag":"`+tag+`"}}`).started().pid; got != pid {
			t.Errorf("tag %s finds pid %d, want the newest, %d", tag, got, pid)
		}
	}
	// When the newest holder has ended, the live one is meant.
	end := s.stream("Start", sh("exit 0", `"tag":"b"`)).started()
	end.rest()
	if got := s.stream("Connect", `{"process":{"tag":"b"}}`).started().pid; got != pids["b"] {
		t.Errorf("tag b finds pid %d, want the live one, %d", got, pids["b"])
	}
}

// TestCalls makes unary calls on one set of processes, in order.
func TestCalls(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	cat := s.stream("Start", `{"process":{"cmd":"cat"},"tag":"cat"}`).started()
	null := s.stream("Start", sh("exec sleep 600", `"stdin":false`)).started()
	tty := s.stream("Start", sh("stty -echo raw; printf ready; exec cat", `"pty":{"size":{"cols":10,"rows":5}}`)).started()
	tty.until("ready")
	deaf := s.stream("Start", sh("exec <&-; printf deaf; exec sleep 600")).started()
	deaf.until("deaf")
	done := s.stream("Start", sh("true")).started()
	done.rest()
	in := func(kind, text string) string { return `,"input":{"` + kind + `":"` + b64(text) + `"}}` }
	for _, tc := range []struct {
		name, method, body string
		header             string
		code               int
		want               string
	}{
		{"input reaches stdin", "SendInput", "{" + sel(cat.pid) + in("stdin", "hello"), "", 200, `{}`},
		{"input by tag", "SendInput", `{"process":{"tag":"cat"}` + in("stdin", " again"), "", 200, `{}`},
		{"input in odd spelling is understood", "SendInput", `{ "input" : {"stdin":"ISE="}, "process":{"tag":"c\u0061t"}, "more":1}`, "", 200, `{}`},
		{"stdin that was never open", "SendInput", "{" + sel(null.pid) + in("stdin", "x"), "", 500, `{"code":"internal","message":"error writing to stdin: stdin not enabled or closed"}`},
		{"stdin that the process closed", "SendInput", "{" + sel(deaf.pid) + in("stdin", "x"), "", 500, fmt.Sprintf(`{"code":"internal","message":"error writing to stdin: error writing to stdin of process '%d': write |1: broken pipe"}`, deaf.pid)},
		{"the same again", "SendInput", "{" + sel(deaf.pid) + in("stdin", "x"), "", 500, fmt.Sprintf(`{"code":"internal","message":"error writing to stdin: error writing to stdin of process '%d': write |1: broken pipe"}`, deaf.pid)},
		{"terminal input to a pipe", "SendInput", "{" + sel(cat.pid) + in("pty", "x"), "", 500, `{"code":"internal","message":"error writing to tty: tty not assigned to process — input should be written to the stdin, not the tty"}`},
		{"pipe input to a terminal", "SendInput", "{" + sel(tty.pid) + in("stdin", "x"), "", 500, `{"code":"internal","message":"error writing to stdin: tty assigned to process — input should be written to the pty, not the stdin"}`},
		{"terminal input", "SendInput", "{" + sel(tty.pid) + in("pty", "keys"), "", 200, `{}`},
		{"no input", "SendInput", "{" + sel(cat.pid) + "}", "", 501, `{"code":"unimplemented","message":"invalid input type \u003cnil\u003e"}`},
		{"input to a finished process", "SendInput", "{" + sel(done.pid) + in("stdin", "x"), "", 404, fmt.Sprintf(`{"code":"not_found","message":"process with pid %d not found"}`, done.pid)},
		{"input that is no base64", "SendInput", "{" + sel(cat.pid) + `,"input":{"stdin":"?"}}`, "", 400, ``},
		{"no selector", "SendInput", "{}", "", 501, `{"code":"unimplemented","message":"invalid input type *process.ProcessSelector"}`},
		{"an update without a size", "Update", "{" + sel(cat.pid) + "}", "", 200, `{}`},
		{"an update of a pipe", "Update", "{" + sel(cat.pid) + `,"pty":{}}`, "", 500, `{"code":"internal","message":"error resizing tty: tty not assigned to process"}`},
		{"an update of a terminal", "Update", "{" + sel(tty.pid) + `,"pty":{"size":{"cols":99999,"rows":0}}}`, "", 200, `{}`},
		{"an unspecified signal", "SendSignal", "{" + sel(cat.pid) + "}", "", 501, `{"code":"unimplemented","message":"invalid signal: SIGNAL_UNSPECIFIED"}`},
		{"an unknown signal name is unspecified", "SendSignal", "{" + sel(cat.pid) + `,"signal":"SIGNAL_SIGWHAT"}`, "", 501, `{"code":"unimplemented","message":"invalid signal: SIGNAL_UNSPECIFIED"}`},
		{"signal 2", "SendSignal", "{" + sel(cat.pid) + `,"signal":2}`, "", 501, `{"code":"unimplemented","message":"invalid signal: 2"}`},
		{"a signal of no name", "SendSignal", "{" + sel(cat.pid) + "}", "Tend-Signal: WHAT", 400, `{"code":"invalid_argument","message":"Tend-Signal is \"WHAT\"; give a number or a name such as INT or SIGUSR1"}`},
		{"signal 99", "SendSignal", "{" + sel(cat.pid) + "}", "Tend-Signal: 99", 400, `{"code":"invalid_argument","message":"Tend-Signal is 99; 1 to 64 are allowed"}`},
		{"a signal to a finished process", "SendSignal", "{" + sel(done.pid) + `,"signal":"SIGNAL_SIGKILL"}`, "", 404, fmt.Sprintf(`{"code":"not_found","message":"process with pid %d not found"}`, done.pid)},
		{"stdin is closed", "CloseStdin", "{" + sel(cat.pid) + "}", "", 200, `{}`},
		{"stdin of a terminal", "CloseStdin", "{" + sel(tty.pid) + "}", "", 500, `{"code":"unknown","message":"error closing stdin: cannot close stdin for PTY process — send Ctrl+D (0x04) instead"}`},
		{"stdin that was never open is closed", "CloseStdin", "{" + sel(null.pid) + "}", "", 200, `{}`},
		{"any signal by header, by name", "SendSignal", "{" + sel(null.pid) + "}", "Tend-Signal: int", 200, `{}`},
		{"an unknown method", "Nope", "{}", "", 404, "404 page not found\n"},
	} {
		var headers []string
		if tc.header != "" {
			headers = []string{tc.header}
		}
		code, body := s.call(tc.method, tc.body, headers...)
		if code != tc.code || tc.want != "" && body != tc.want {
			t.Errorf("%s: got %d %s, want %d %s", tc.name, code, body, tc.code, tc.want)
		}
	}
	if d := cmp.Diff(result{Stdout: "hello again!!", End: exitEnd(0)}, cat.rest()); d != "" {
		t.Errorf("cat, -want +got:\n%s", d)
	}
	tty.until("keys") // cat may be slow to read them
	if code, body := s.call("SendSignal", "{"+sel(tty.pid)+`,"signal":"SIGNAL_SIGTERM"}`); code != 200 || body != "{}" {
		t.Errorf("SIGTERM: got %d %s", code, body)
	}
	if d := cmp.Diff(result{End: signalEnd("terminated")}, tty.rest()); d != "" {
		t.Errorf("the terminal, -want +got:\n%s", d)
	}
	if d := cmp.Diff(result{End: signalEnd("interrupt")}, null.rest()); d != "" {
		t.Errorf("the signal by header, -want +got:\n%s", d)
	}
}

func TestKillScope(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	st := s.stream("Start", sh("sleep 600 & printf ready; wait")).started()
	st.until("ready")
	if code, body := s.call("SendSignal", "{"+sel(st.pid)+`,"signal":9}`, "Tend-Kill-Scope: tree"); code != 200 {
		t.Fatalf("%d %s", code, body)
	}
	// The child holds stdout: that it is at its end shows that the child died.
	if d := cmp.Diff(result{End: signalEnd("killed")}, st.rest()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	p := proctest.Value(s.manager.Get(t.Context(), process.Selector{PID: st.pid}))(t)
	proctest.Eventually(t, "the child holds stdout no more", func() bool {
		info := proctest.Info(t, p)
		out, _ := info.Stream(process.Stdout)
		return out.EOF
	})
}

func TestTailAfterSIGTERM(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	st := s.stream("Start", sh(`trap 'head -c 200000 /dev/zero; exit 3' TERM; printf ready; while :; do sleep 0.01; done`)).started()
	st.until("ready")
	s.call("SendSignal", "{"+sel(st.pid)+`,"signal":"SIGNAL_SIGTERM"}`)
	if got := st.rest(); len(got.Stdout) != 200000 || got.End == nil || got.End.ExitCode != 3 {
		t.Errorf("got %d bytes and end %+v, want the whole tail and exit 3", len(got.Stdout), got.End)
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := serve(t, nil)
	bodies := []string{
		`{"process":{"cmd":"sleep","args":["600"],"envs":{"A":"1","B":"x=y"},"cwd":"` + dir + `"},"tag":"one"}`,
		`{"process":{"cmd":"sleep","args":["600"]}}`,
		`{"process":{"cmd":"sleep","args":["600"],"cwd":"/usr/.."}}`,
	}
	want := []string{
		`{"cmd":"sleep","args":["600"],"envs":{"A":"1","B":"x=y"},"cwd":"` + dir + `"}`,
		`{"cmd":"sleep","args":["600"]}`,
		`{"cmd":"sleep","args":["600"],"cwd":"/usr/.."}`,
	}
	var pids []int
	for _, b := range bodies {
		pids = append(pids, s.stream("Start", b).started().pid)
	}
	s.stream("Start", sh("true")).started().rest() // finished: not listed
	foreign := proctest.Start(t, s.manager, process.Spec{Argv: []string{"sleep", "601"}, Dir: "/", Env: map[string]string{"K": "v"}})
	info := proctest.Info(t, foreign)
	pids, want = append(pids, info.PID), append(want, `{"cmd":"sleep","args":["601"],"envs":{"K":"v"},"cwd":"/"}`)

	code, body := s.call("List", "{}")
	var got struct {
		Processes []struct {
			Config map[string]any
			PID    int
			Tag    *string
		}
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil || code != 200 || len(got.Processes) != len(want) {
		t.Fatalf("%d %s: %v", code, body, err)
	}
	for i, p := range got.Processes {
		var w map[string]any
		proctest.Must(t, json.Unmarshal([]byte(want[i]), &w))
		if d := cmp.Diff(w, p.Config); d != "" || p.PID != pids[i] || (p.Tag != nil) != (i == 0) {
			t.Errorf("process %d has pid %d, want %d; config -want +got:\n%s", i, p.PID, pids[i], d)
		}
	}
}
