package e2bapi_test

import (
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// What the programs of a sandbox have done and written is its log, and nothing of others.
func TestTheLogOfASandbox(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	run := func(line string, ends ...int64) (id, name string) {
		id = s.call(201, "POST", "/v2/sandboxes", `{}`)["sandboxID"].(string)
		sandbox := proctest.Value(s.driver.Get(t.Context(), id))(t)
		p := proctest.Value(sandbox.Processes().Start(t.Context(), process.Spec{Argv: []string{"sh", "-c", line}, Stdin: process.StdinPipe}))(t)
		proctest.Step(t, p, ends...)
		proctest.Value(p.Wait(t.Context(), process.Until{EOF: true}))(t)
		return id, string(p.ID())
	}
	run("echo of another")
	id, name := run("echo out; read go; echo wrong >&2; exit 3", 4)
	messages := func(path string) (all []string) {
		res := s.call(200, "GET", path, "")
		for _, e := range res["logs"].([]any) {
			e := e.(map[string]any)
			text, ok := e["message"]
			if !ok {
				text = e["line"]
			}
			level, _ := e["level"].(string)
			if f, ok := e["fields"].(map[string]any); ok && f["process"] != name {
				t.Errorf("%v is of another process", e)
			}
			all = append(all, fmt.Sprint(level, " ", text))
		}
		return all
	}
	const began = "started: sh -c 'echo out; read go; echo wrong >&2; exit 3'"
	want := []string{"info " + began, "info out", "error wrong", "warn ended: exit status 3"}
	path := "/v2/sandboxes/" + id + "/logs"
	got := messages(path)
	slices.Sort(got[2:]) // an exit may be known before the last line
	if !slices.Equal(got, want) {
		t.Errorf("it is %q", got)
	}
	got = messages(path + "?direction=backward&limit=4")
	slices.Reverse(got)
	slices.Sort(got[2:])
	if !slices.Equal(got, want) {
		t.Errorf("backward it is %q", got)
	}
	for query, want := range map[string][]string{
		"?level=error": {"error wrong"}, "?search=out&limit=2": {"info " + began, "info out"}, "?search=of+another": nil,
		"?cursor=99999999999999": nil, "?direction=backward&cursor=1": nil, "?direction=forward&limit=1&cursor=1": {"info " + began},
	} {
		if got := messages(path + query); !slices.Equal(got, want) {
			t.Errorf("%s: %q", query, got)
		}
	}
	// A line is a record as JSON, of strings alone: E2B's command line decodes it.
	var lines []string
	for _, text := range messages("/sandboxes/" + id + "/logs?limit=2") {
		var record map[string]string
		if err := json.Unmarshal([]byte(text), &record); err != nil || record["process"] != name || record["timestamp"] == "" {
			t.Errorf("the line %s: %v", text, err)
		}
		lines = append(lines, record["level"]+" "+record["logger"]+" "+record["message"])
	}
	if want := []string{"info process " + began, "info process out"}; !slices.Equal(lines, want) {
		t.Errorf("lines: %q", lines)
	}
}

// Clients that ask for logs and take no answer have the server keep few of them.
func TestLogsThatNobodyTakesAreFew(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	id := s.call(201, "POST", "/v2/sandboxes", `{}`)["sandboxID"].(string)
	sandbox := proctest.Value(s.driver.Get(t.Context(), id))(t)
	p := proctest.Value(sandbox.Processes().Start(t.Context(), process.Spec{Argv: []string{"sh", "-c", "head -c 17000000 /dev/zero"}}))(t)
	proctest.Value(p.Wait(t.Context(), process.Until{EOF: true}))(t)
	var answered atomic.Int32
	began := make(chan net.Conn, 8)
	for range cap(began) {
		c := proctest.Value(net.Dial("tcp", strings.TrimPrefix(s.url, "http://")))(t)
		t.Cleanup(func() { c.Close() })
		proctest.Value(fmt.Fprintf(c, "GET /v2/sandboxes/%s/logs HTTP/1.1\r\nHost: x\r\n\r\n", id))(t)
		go func() {
			if n, _ := c.Read(make([]byte, 1)); n == 1 {
				answered.Add(1)
				began <- c
			}
		}()
	}
	proctest.Eventually(t, "four answers begin", func() bool { return answered.Load() >= 4 })
	time.Sleep(time.Second) // others would come now; late ones only make this see less
	if n := answered.Load(); n != 4 {
		t.Errorf("%d answers are in flight", n)
	}
	for range 4 { // who leaves makes room
		(<-began).Close()
	}
	proctest.Eventually(t, "the others are answered", func() bool { return answered.Load() == 8 })
}
