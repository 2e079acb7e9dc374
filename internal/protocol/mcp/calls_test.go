package mcp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/protocol/mcp"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// running waits for the one process that runs with a name.
func (w *world) running(name string) process.Process {
	w.t.Helper()
	var p process.Process
	proctest.Eventually(w.t, name+" runs", func() (ok bool) {
		var err error
		p, err = w.m.Get(w.t.Context(), process.Selector{Name: name})
		return err == nil
	})
	return p
}

// TestACancelledRunKillsItsTree in all versions of the protocol; of what is waited for,
// nothing is killed.
func TestACancelledRunKillsItsTree(t *testing.T) {
	w := newWorld(t)
	each(t, func(t *testing.T, version string) {
		s := w.connect(version, nil)
		name := "tree" + version
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := s.CallTool(ctx, &sdk.CallToolParams{Name: "run", Arguments: args{"command": "setsid sleep 1000 & echo started; wait", "name": name, "timeout_s": 600}})
			done <- err
		}()
		p := w.running(name)
		proctest.Wait(t, p, process.Until{Match: "started"})
		cancel()
		if err := <-done; err == nil {
			t.Error("the call was answered")
		}
		if res := proctest.Wait(t, p, process.Until{TreeGone: true}); !res.Met || res.Exit.Cause != process.CauseKilled {
			t.Errorf("after the cancellation: %+v, %+v", res, res.Exit)
		}

		_, facts := ask(t, s, "run", args{"command": "cat", "stdin": "pipe"})
		ctx, cancel = context.WithCancel(t.Context())
		go func() {
			_, err := s.CallTool(ctx, &sdk.CallToolParams{Name: "wait", Arguments: args{"id": facts["id"], "timeout_s": 600}})
			done <- err
		}()
		proctest.Eventually(t, "the wait is under way", func() bool { return w.face.Status()["calls"] != "0" })
		cancel()
		<-done
		proctest.Eventually(t, "the wait has ended", func() bool { return w.face.Status()["calls"] == "0" })
		text, _ := ask(t, s, "input", args{"id": facts["id"], "text": "alive\n", "match": "alive"})
		wants(t, text, "alive")
	})
}

// TestACancellationComesFirst, or the call that it is for was another server's.
func TestACancellationComesFirst(t *testing.T) {
	w := newWorld(t)
	session := []string{"Mcp-Session-Id", "s1", "Mcp-Protocol-Version", "2025-11-25"}
	cancel := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`
	run := `{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"run","arguments":{"command":"sleep 1000","name":%s,"timeout_s":%s}}}`
	if status, text, _ := w.post(fmt.Sprintf(cancel, `"a"`), session...); status != 202 {
		t.Fatalf("%d %s", status, text)
	}
	status, text, _ := w.post(fmt.Sprintf(run, `"a"`, `"early"`, "600"), session...)
	wants(t, fmt.Sprint(status, text), "200", "the client cancelled the call")
	if live := proctest.Value(w.m.List(t.Context(), process.Filter{Live: true}))(t); len(live) > 0 {
		t.Errorf("%s runs", live[0].Spec.Command())
	}

	_, text, _ = w.post(fmt.Sprintf(run, "7", `"left"`, "0.05"), session...)
	wants(t, text, "it runs on")
	w.serve() // the next server, which knows nothing of the call
	w.post(fmt.Sprintf(cancel, "7"), "Mcp-Session-Id", "another")
	w.post(fmt.Sprintf(cancel, "8"), session...)
	p := w.running("left")
	if info := proctest.Info(t, p); info.Exit != nil {
		t.Errorf("another one's cancellation killed it: %v", info.Exit)
	}
	w.post(fmt.Sprintf(cancel, "7"), session...)
	if res := proctest.Wait(t, p, process.Until{}); res.Exit.Cause != process.CauseKilled {
		t.Errorf("the cancelled run: %+v", res.Exit)
	}
}

// TestACancellationComesAtAnyMoment of a run: before it, while its process starts, while
// it writes. Nothing of it is left, and what others run continues.
func TestACancellationComesAtAnyMoment(t *testing.T) {
	w := newWorld(t)
	session := []string{"Mcp-Session-Id", "s1", "Mcp-Protocol-Version", "2025-11-25"}
	_, text, _ := w.post(`{"jsonrpc":"2.0","id":"by","method":"tools/call","params":{"name":"run","arguments":{"command":"cat","stdin":"pipe","name":"bystander","timeout_s":0.01}}}`, session...)
	wants(t, text, "it runs on")
	for i := range 40 {
		run := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"run","arguments":{"command":"echo on; sleep 1000 & wait","timeout_s":600}}}`, i)
		answered := make(chan string)
		go func() {
			_, text, _ := w.post(run, session...)
			answered <- text
		}()
		time.Sleep(time.Duration(i) * 250 * time.Microsecond) // the moment, not a wait for something
		for text = ""; text == ""; {
			w.post(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, i), session...)
			select {
			case text = <-answered:
			case <-time.After(time.Second): // one that came too early is not remembered for ever
			}
		}
		wants(t, text, "the client cancelled the call")
	}
	proctest.Eventually(t, "nothing of the cancelled is left", func() bool {
		live := proctest.Value(w.m.List(t.Context(), process.Filter{Live: true}))(t)
		return len(live) == 1 && live[0].Spec.Name == "bystander" && w.face.Status()["calls"] == "0"
	})
	for _, info := range proctest.Value(w.m.List(t.Context(), process.Filter{}))(t) {
		if info.Spec.Name != "bystander" && (info.Exit == nil || info.Exit.Cause != process.CauseKilled) {
			t.Errorf("%s ended with %+v", info.ID, info.Exit)
		}
	}
}

// TestARunInASandboxIsCancelledAfterTheServersDeath, also by a client of the machine that
// gave the sandbox as an argument; what runs elsewhere continues.
func TestARunInASandboxIsCancelledAfterTheServersDeath(t *testing.T) {
	w := newWorld(t)
	s := w.connect("", nil)
	for _, name := range []string{"one", "two"} {
		ask(t, s, "sandbox", args{"action": "create", "name": name})
	}
	session := []string{"Mcp-Session-Id", "s1", "Mcp-Protocol-Version", "2025-11-25"}
	for id, sandbox := range map[int]string{7: "two", 8: "one"} {
		_, text, _ := w.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"run","arguments":{"command":"sleep 1000","sandbox":%q,"timeout_s":0.05}}}`, id, sandbox), session...)
		wants(t, text, "it runs on")
	}
	w.serve() // the next server, which knows nothing of the calls
	w.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`, session...)
	in := func(sandbox string) process.Process {
		m := proctest.Value(w.d.Get(t.Context(), sandbox))(t).Processes()
		all := proctest.Value(m.List(t.Context(), process.Filter{}))(t)
		if len(all) != 1 {
			t.Fatalf("%d processes in %s", len(all), sandbox)
		}
		return proctest.Find(t, m, all[0].ID)
	}
	if res := proctest.Wait(t, in("two"), process.Until{}); res.Exit.Cause != process.CauseKilled {
		t.Errorf("the cancelled run: %+v", res.Exit)
	}
	if info := proctest.Info(t, in("one")); info.Exit != nil {
		t.Errorf("the other one: %+v", info.Exit)
	}
}

// TestAClientOfASandboxCancelsNothingElse, whatever session and call it names.
func TestAClientOfASandboxCancelsNothingElse(t *testing.T) {
	w := newWorld(t)
	w.token = "s3cret"
	full := []string{"Authorization", "Bearer s3cret", "Mcp-Session-Id", "s1", "Mcp-Protocol-Version", "2025-11-25"}
	_, facts := ask(t, w.connect("", nil, full[:2]...), "sandbox", args{"action": "create", "name": "box"})
	own := []string{"Authorization", "Bearer " + string(w.secret.SandboxToken(facts["id"].(string))), "Tend-Sandbox", "box", "Mcp-Session-Id", "s1", "Mcp-Protocol-Version", "2025-11-25"}
	run := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"run","arguments":{"command":"cat","stdin":"pipe","name":"cat","match":"end","timeout_s":600}}}`
	cancel := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`
	answered := make(chan string, 1)
	r := proctest.Value(http.NewRequestWithContext(t.Context(), "POST", w.url, strings.NewReader(run)))(t)
	r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
	for i := 0; i < len(full); i += 2 {
		r.Header.Set(full[i], full[i+1])
	}
	go func() {
		text := ""
		if resp, err := http.DefaultClient.Do(r); err == nil {
			all, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			text = string(all)
		}
		answered <- text
	}()
	p := w.running("cat")
	if status, text, _ := w.post(cancel, own...); status != 202 {
		t.Fatalf("%d %s", status, text)
	}
	proctest.WriteLast(t, p, "end\n")
	wants(t, <-answered, "stdout 0 to 4")
	if info := proctest.Wait(t, p, process.Until{}); info.Exit.Cause != process.CauseExited {
		t.Errorf("a client of a sandbox has cancelled a run of the machine: %+v", info.Exit)
	}
}

// TestAClientThatLeavesCancelsNothing: its connection may have broken.
func TestAClientThatLeavesCancelsNothing(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	r := proctest.Value(http.NewRequestWithContext(ctx, "POST", w.url, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run","arguments":{"command":"cat","stdin":"pipe","match":"x","name":"stays","timeout_s":600}}}`)))(t)
	r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Mcp-Protocol-Version": {"2025-11-25"}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if resp, err := http.DefaultClient.Do(r); err == nil {
			resp.Body.Close() // with the beginning of the answer, which may come before the start
		}
	}()
	p := w.running("stays")
	cancel()
	<-done
	proctest.Eventually(t, "the call has ended", func() bool { return w.face.Status()["calls"] == "0" })
	proctest.WriteLast(t, p, "alive")
	proctest.WantOutput(t, p, process.Stdout, "alive")
}

// event is the id of the first event of an answer.
func eventID(t testing.TB, text string) string {
	t.Helper()
	_, id, ok := strings.Cut(text, "\nid: ")
	if !ok {
		t.Fatalf("no event has an id: %s", text)
	}
	id, _, _ = strings.Cut(id, "\n")
	return id
}

// TestACallIsMadeOnce, however often it is asked for: by its key, and by the id of its
// first event, on this server and the next one.
func TestACallIsMadeOnce(t *testing.T) {
	w := newWorld(t)
	old := []string{"Mcp-Session-Id", "s", "Mcp-Protocol-Version", "2025-11-25"}
	call := func(tool, arguments string) string {
		return `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"` + tool + `","arguments":` + arguments + `}}`
	}
	_, first, _ := w.post(call("run", `{"command":"echo once >> `+w.dir+`/log; cat; echo end","stdin":"pipe","match":"never","timeout_s":0.01,"name":"cat"}`), old...)
	wants(t, first, "it runs on")
	w.serve()
	_, again, _ := w.send("GET", "", append(old, "Last-Event-Id", eventID(t, first))...)
	wants(t, again, "it runs on", `"id":5`)
	p := w.running("cat")
	if all := proctest.Value(w.m.List(t.Context(), process.Filter{}))(t); len(all) != 1 {
		t.Errorf("%d processes were started", len(all))
	}

	_, first, _ = w.post(call("input", `{"id":"cat","text":"hello\n","match":"hello"}`), old...)
	wants(t, first, `stdout 0 to 6:\nhello`)
	_, again, _ = w.send("GET", "", append(old, "Last-Event-Id", eventID(t, first))...)
	wants(t, again, `stdout 0 to 6:\nhello`)
	byKey := append(old, "Idempotency-Key", "k1")
	_, _, _ = w.post(call("input", `{"id":"cat","text":"twice\n","match":"twice"}`), byKey...)
	_, again, _ = w.post(call("input", `{"id":"cat","text":"twice\n","match":"hello","timeout_s":0.01}`), append(byKey, "Tend-Again", "1", "Tend-Dir", "/")...)
	_ = again
	proctest.WriteLast(t, p, "")
	proctest.WantOutput(t, p, process.Stdout, "hello\ntwice\nend\n")

	edit := call("edit_file", `{"path":"`+w.dir+`/log","old":"once","new":"done"}`)
	_, first, _ = w.post(edit, old...)
	wants(t, first, "replaced 1 times")
	_, again, _ = w.send("GET", "", append(old, "Last-Event-Id", eventID(t, first))...)
	wants(t, again, "replaced.")
	if got := string(proctest.Value(os.ReadFile(w.dir + "/log"))(t)); got != "done\n" {
		t.Errorf("the file is %q", got)
	}
	// What an edit has put there may hold what it has replaced.
	for _, tt := range [][3]string{{"one\n", "one", "one two"}, {"x\n", "x", "xx"}, {"x\n", "x", "axb"}} {
		proctest.Must(t, os.WriteFile(w.dir+"/log", []byte(tt[0]), 0o600))
		_, first, _ = w.post(call("edit_file", fmt.Sprintf(`{"path":"%s/log","old":"%s","new":"%s"}`, w.dir, tt[1], tt[2])), old...)
		wants(t, first, "replaced 1 times")
		_, again, _ = w.send("GET", "", append(old, "Last-Event-Id", eventID(t, first))...)
		wants(t, again, "replaced.")
		if got := string(proctest.Value(os.ReadFile(w.dir + "/log"))(t)); got != tt[2]+"\n" {
			t.Errorf("the file is %q", got)
		}
	}
	// Nobody has made this one before.
	proctest.Must(t, os.WriteFile(w.dir+"/log", []byte("one\n"), 0o600))
	_, first, _ = w.post(call("edit_file", `{"path":"`+w.dir+`/log","old":"one","new":"one two"}`), append(old, "Idempotency-Key", "k2", "Tend-Again", "1")...)
	wants(t, first, "replaced 1 times")
	sandbox := call("sandbox", `{"action":"create"}`)
	_, first, _ = w.post(sandbox, old...)
	_, again, _ = w.send("GET", "", append(old, "Last-Event-Id", eventID(t, first))...)
	wants(t, again, "created mcp-")
	if all := proctest.Value(w.d.List(t.Context()))(t); len(all) != 1 {
		t.Errorf("%d sandboxes were made", len(all))
	}

	for name, id := range map[string]string{
		"garbage": "x", "signed by nobody": strings.Split(eventID(t, first), ".")[0] + ".00", "cut": eventID(t, first)[:40], "long": strings.Repeat("x", mcp.MaxResume+1),
	} {
		if status, text, _ := w.send("GET", "", append(old, "Last-Event-Id", id)...); status != 400 {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
	if _, text, _ := w.post(call("write_file", `{"path":"`+w.dir+`/big","content":"`+random(t, 20_000)+`"}`), old...); strings.Contains(text, "\nid: ") {
		t.Error("a large call has an id of an event")
	}
	if _, text, _ := w.post(call("list", `{}`), "Mcp-Protocol-Version", "2025-06-18"); strings.Contains(text, "prime") {
		t.Error("an old client gets an event that it does not know")
	}
}

func random(t testing.TB, n int) string {
	b := make([]byte, n)
	s := uint32(1)
	for i := range b {
		s = s*1664525 + 1013904223
		b[i] = 'a' + byte(s>>24)%26
	}
	return string(b)
}

// TestAServerThatStopsKillsNothing, and its clients go on with the next one.
func TestAServerThatStopsKillsNothing(t *testing.T) {
	w := newWorld(t)
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run","arguments":{"command":"cat; echo end","stdin":"pipe","match":"end","name":"stays","timeout_s":600}}}`
	for version, want := range map[string]string{"2025-06-18": "the server is going away", "2025-11-25": "", "2026-07-28": ""} {
		w.serve()
		name := "stays" + version
		done := make(chan string, 1)
		extra := []string{"Mcp-Protocol-Version", version}
		text := strings.Replace(body, `"stays"`, `"`+name+`"`, 1)
		if version == "2026-07-28" {
			extra = append(extra, "Idempotency-Key", "k", "Mcp-Method", "tools/call", "Mcp-Name", "run")
			text = strings.Replace(text, `"params":{`, `"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"x","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}},`, 1)
		}
		go func() { _, got, _ := w.post(text, extra...); done <- got }()
		p := w.running(name)
		w.face.Close()
		got := <-done
		if want != "" {
			wants(t, got, want)
		} else if strings.Contains(got, `"result"`) {
			t.Errorf("%s: an answer that ends the call: %s", version, got)
		}
		if want == "" {
			w.serve()
			proctest.WriteLast(t, p, "")
			_, got, _ = w.send("GET", "", append(extra, "Last-Event-Id", eventID(t, got))...)
			wants(t, got, `"result"`, "end")
		}
		if info := proctest.Info(t, p); info.Exit != nil && info.Exit.Cause != process.CauseExited {
			t.Errorf("%s: %v", version, info.Exit)
		}
	}
}

func TestAClientOfASandboxReachesNothingElse(t *testing.T) {
	w := newWorld(t)
	w.token = "s3cret"
	full := w.connect("", nil, "Authorization", "Bearer s3cret")
	_, facts := ask(t, full, "sandbox", args{"action": "create", "name": "box"})
	id := facts["id"].(string)
	_, other := ask(t, full, "sandbox", args{"action": "create", "name": "other"})
	_, outside := ask(t, full, "run", args{"command": "echo machine; cat", "stdin": "pipe"})
	own := "Bearer " + string(w.secret.SandboxToken(id))
	for name, headers := range map[string][]string{
		"its own token":            {"Authorization", own, "Tend-Sandbox", id},
		"its own token and a name": {"X-Access-Token", string(w.secret.SandboxToken(id)), "Tend-Sandbox", "box"},
		"the server's token":       {"Authorization", "Bearer s3cret", "Tend-Sandbox", "box"},
	} {
		s := w.connect("", nil, append(headers, "Tend-Dir", "")...)
		text, facts := ask(t, s, "run", args{"command": "echo inside"})
		wants(t, text, "inside")
		p := proctest.Find(t, w.m, process.ID(facts["id"].(string)))
		if info := proctest.Info(t, p); len(info.Spec.Labels) < 1 {
			t.Errorf("%s: labels %v", name, info.Spec.Labels)
		}
		text, _ = ask(t, s, "list", args{"all": true})
		if strings.Contains(text, outside["id"].(string)) {
			t.Errorf("%s: sees the machine's processes:\n%s", name, text)
		}
		for tool, a := range map[string]args{
			"output": {"id": outside["id"]}, "input": {"id": outside["id"], "text": "x"}, "stop": {"id": outside["id"]}, "wait": {"id": outside["id"], "timeout_s": 0.1},
		} {
			if text, failed, _ := try(t, s, tool, a); !failed || !strings.Contains(text, "there is no process") {
				t.Errorf("%s: %s of a process outside: %s", name, tool, text)
			}
		}
		if _, err := s.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: fmt.Sprintf("tend://process/%s/stdout", outside["id"])}); err == nil {
			t.Errorf("%s: reads a log outside", name)
		}
		for _, sandbox := range []string{"other", other["id"].(string)} {
			if text, failed, _ := try(t, s, "run", args{"command": "true", "sandbox": sandbox}); !failed || strings.Contains(text, "exited") {
				t.Errorf("%s: runs in another sandbox: %s", name, text)
			}
		}
		all := proctest.Value(s.ListTools(t.Context(), nil))(t)
		for _, tool := range all.Tools {
			if text := fmt.Sprint(tool.InputSchema); tool.Name == "sandbox" || tool.Name == "service" || strings.Contains(text, "sandbox") {
				t.Errorf("%s: is offered %s %s", name, tool.Name, text)
			}
		}
		for _, tool := range []string{"sandbox", "service"} {
			if _, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: args{"action": "list"}}); err == nil {
				t.Errorf("%s: may call %s", name, tool)
			}
		}
	}
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	for name, tt := range map[string]struct {
		headers []string
		want    int
	}{
		"nothing":                             {nil, 401},
		"a wrong token":                       {[]string{"Authorization", "Bearer x"}, 401},
		"a sandbox's token without a sandbox": {[]string{"Authorization", own}, 401},
		"a sandbox's token for another":       {[]string{"Authorization", own, "Tend-Sandbox", other["id"].(string)}, 401},
		"a sandbox's token for none":          {[]string{"Authorization", own, "Tend-Sandbox", "nothing"}, 401},
		"the server's token for none":         {[]string{"Authorization", "Bearer s3cret", "Tend-Sandbox", "nothing"}, 404},
		"the server's token":                  {[]string{"Authorization", "Bearer s3cret"}, 200},
		"an empty sandbox":                    {[]string{"Authorization", "Bearer s3cret", "Tend-Sandbox", ""}, 400},
	} {
		for _, method := range []string{"POST", "GET", "DELETE"} {
			want := tt.want
			switch {
			case want == 200 && method == "GET":
				want = 405
			case want == 200 && method == "DELETE":
				want = 204
			}
			if got, text, _ := w.send(method, ping, tt.headers...); got != want {
				t.Errorf("%s: %s is %d %s; want %d", name, method, got, text, want)
			}
		}
	}
}

// TestSessionsHaveNoMemory: thousands cost nothing, and each continues for ever.
func TestSessionsHaveNoMemory(t *testing.T) {
	w := newWorld(t)
	initialize := `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`
	ids := map[string]bool{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			for range 100 {
				status, text, h := w.post(initialize)
				if id := h.Get("Mcp-Session-Id"); status != 200 || id == "" {
					t.Errorf("%d %s", status, text)
				} else {
					mu.Lock()
					ids[id] = true
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	if len(ids) != 2_000 {
		t.Errorf("%d sessions have names of their own", len(ids))
	}
	if n := w.face.Status()["calls"]; n != "0" {
		t.Errorf("%s calls are under way", n)
	}
	w.serve() // after the death of the server
	for id := range ids {
		status, text, _ := w.post(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "Mcp-Session-Id", id, "Mcp-Protocol-Version", "2025-11-25")
		wants(t, fmt.Sprint(status, text), "200", `"run"`)
		break
	}
}

func TestHostileRequests(t *testing.T) {
	w := newWorld(t)
	deep := strings.Repeat("[", 1_000_000)
	call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list","arguments":{}}}`
	for name, tt := range map[string]struct {
		body    string
		headers []string
		status  int
		want    string
	}{
		"nothing":                {"", nil, 400, `"code":-32700`},
		"garbage":                {"\x00\xff{", nil, 400, `"code":-32700`},
		"half a message":         {call[:30], nil, 400, "the body is no JSON: unexpected end"},
		"null":                   {"null", nil, 400, ""},
		"a number":               {"7", nil, 400, `"code":-32600,"message":"the body is not one message`},
		"a batch":                {"[" + call + "]", nil, 400, "one message in each POST"},
		"deep":                   {`{"a":` + deep, nil, 400, "deeper than 64"},
		"deep arguments":         {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list","arguments":{"all":` + deep + `}}}`, nil, 400, "deeper"},
		"deep in a string":       {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"output","arguments":{"id":"` + strings.Repeat("[", 200) + `"}}}`, nil, 200, "no process"},
		"too long":               {`{"a":"` + strings.Repeat("x", mcp.MaxBody) + `"}`, nil, 413, "4194304"},
		"too many values":        {strings.Replace(call, `{}`, `{"all":[`+strings.Repeat("{},", 300_000)+`{}]}`, 1), nil, 413, "more than"},
		"a huge id":              {strings.Replace(call, `"id":1`, `"id":"`+strings.Repeat("x", 1000)+`"`, 1), nil, 400, "id has 1002 bytes"},
		"an id that is a list":   {strings.Replace(call, `"id":1`, `"id":[1]`, 1), nil, 400, ""},
		"a huge number":          {strings.Replace(call, `"id":1`, `"id":1e400`, 1), nil, 400, ""},
		"a huge session":         {call, []string{"Mcp-Session-Id", strings.Repeat("x", 300)}, 400, "Mcp-Session-Id has 300 bytes"},
		"a huge key":             {call, []string{"Idempotency-Key", strings.Repeat("x", 300)}, 400, "Idempotency-Key has 300 bytes"},
		"an unknown version":     {call, []string{"Mcp-Protocol-Version", "1999-01-01"}, 400, "version"},
		"an unknown method":      {`{"jsonrpc":"2.0","id":1,"method":"tools/burn"}`, nil, 400, ""},
		"an unknown tool":        {strings.Replace(call, "list", "burn", 1), nil, 200, "burn"},
		"no params":              {`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`, nil, 0, ""},
		"params that are a list": {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[]}`, nil, 0, ""},
		"arguments that are no":  {strings.Replace(call, `{}`, `7`, 1), nil, 0, ""},
		"an answer":              {`{"jsonrpc":"2.0","id":1,"result":{}}`, nil, 202, ""},
		"a cancelled nobody":     {`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{"a":1}}}`, nil, 202, ""},
		"no text/event-stream":   {call, []string{"Accept", "application/json"}, 400, "text/event-stream"},
		"another type":           {call, []string{"Content-Type", "text/plain"}, 415, "application/json"},
		"a directory of nobody":  {call, []string{"Tend-Dir", "relative"}, 400, "absolute"},
	} {
		status, text, _ := w.post(tt.body, tt.headers...)
		if tt.status != 0 && status != tt.status || status >= 500 || !strings.Contains(text, tt.want) {
			t.Errorf("%s: %d %.300s; want %d %s", name, status, text, tt.status, tt.want)
		}
	}
	for _, method := range []string{"PUT", "PATCH", "HEAD"} {
		if status, _, _ := w.send(method, call); status != 405 {
			t.Errorf("%s: %d", method, status)
		}
	}
	if status, text, _ := w.post(call); status != 200 || !strings.Contains(text, "(none)") {
		t.Errorf("afterwards: %d %s", status, text)
	}
}

// TestAFloodIsBounded: calls beyond the limit are refused, and served once others have
// ended.
func TestAFloodIsBounded(t *testing.T) {
	w := newWorld(t)
	_, text, _ := w.post(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run","arguments":{"command":"cat; echo end","stdin":"pipe","name":"cat","timeout_s":0.01,"match":"end"}}}`)
	wants(t, text, "it runs on")
	wait := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait","arguments":{"id":"cat","timeout_s":600}}}`
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	var all sync.WaitGroup
	var mu sync.Mutex
	got := map[int]int{}
	for range mcp.MaxCalls + 76 {
		all.Go(func() {
			r, err := http.NewRequestWithContext(t.Context(), "POST", w.url, strings.NewReader(wait))
			if err == nil {
				r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
				var resp *http.Response
				if resp, err = client.Do(r); err == nil {
					// An answer that takes long has begun before: who closes it leaves.
					_, err = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
					mu.Lock()
					got[resp.StatusCode]++
					mu.Unlock()
				}
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	proctest.Eventually(t, "all have come", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return got[503] == 76 && w.face.Status()["calls"] == fmt.Sprint(mcp.MaxCalls)
	})
	proctest.WriteLast(t, w.running("cat"), "")
	all.Wait()
	if got[200] != mcp.MaxCalls {
		t.Errorf("answers are %v", got)
	}
	_, text, _ = w.post(wait)
	wants(t, text, "exited with code 0")
}

func FuzzMessage(f *testing.F) {
	w := newWorld(f)
	w.token = protocol.Token("t")
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"output","arguments":{"id":"x","grep":"a","max_tokens":-1}}}`,
		`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"wait","arguments":{"id":"x","timeout_s":1e308}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"tend://process/x/stdout"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`,
	} {
		for v := range versions {
			f.Add([]byte(s), v)
		}
	}
	f.Fuzz(func(t *testing.T, body []byte, v int) {
		if strings.Contains(string(body), `run`) || strings.Contains(string(body), "_file") || strings.Contains(string(body), "listen") || strings.Contains(string(body), "\\u") {
			return // no program of a fuzzer's
		}
		w := *w
		w.t = t
		start := time.Now()
		status, text, _ := w.post(string(body), "Authorization", "Bearer t", "Mcp-Protocol-Version", versions[uint(v)%3], "Mcp-Session-Id", "s", "Mcp-Method", "tools/call", "Mcp-Name", "wait")
		if status >= 500 || strings.Contains(text, "fault of the server") {
			t.Errorf("%d %s after %v", status, text, time.Since(start))
		}
	})
}

// FuzzEventID: no id of an event but one that was signed is taken.
func FuzzEventID(f *testing.F) {
	w := newWorld(f)
	_, text, _ := w.post(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list","arguments":{}}}`, "Mcp-Protocol-Version", "2025-11-25")
	good := eventID(f, text)
	f.Add(good)
	f.Add(good[:20])
	f.Add(".")
	f.Fuzz(func(t *testing.T, id string) {
		if strings.ContainsAny(id, "\r\n\x00") || strings.TrimSpace(id) != id || id == "" || id == good {
			return
		}
		for _, c := range []byte(id) {
			if c < ' ' || c > '~' {
				return
			}
		}
		w := *w
		w.t = t
		if status, text, _ := w.send("GET", "", "Last-Event-Id", id); status != 400 {
			t.Errorf("%q: %d %s", id, status, text)
		}
	})
}
