//go:build linux

package crashtest

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// A process that is over and whose output had to make room is known to every
// face: it has its exit, and readers learn which bytes are missing.
func TestAFinishedProcessWhoseOutputIsFreedIsKnownOnEveryFace(t *testing.T) {
	t.Parallel()
	const size = 1_000_000
	d := serve(t, "--spool-budget", "64MiB")
	c := d.Connect(t)
	ctx := t.Context()
	shell := fmt.Sprintf("head -c %d /dev/zero; exit 7", size)
	p := proctest.Start(t, c, process.Spec{Shell: shell, Tag: "distant-77", Name: "web"})
	info := proctest.Info(t, p)
	say := langsmithSandbox(t, d)
	first := say(fmt.Sprintf(`{"type":"execute","command_id":"told","command":%q}`, shell))
	if last := first[len(first)-1]; last.Type != "exit" || last.ExitCode != 7 {
		t.Fatalf("the command ended with %+v", last)
	}
	freed := func(sel process.Selector) func() bool {
		return func() bool {
			q, err := c.Get(ctx, sel)
			if err != nil {
				t.Fatalf("%+v: %v", sel, err)
			}
			in, err := q.Info(ctx)
			return err == nil && in.Exit != nil && in.Exit.Code == 7 && in.Streams[0].Base == size && in.Streams[0].End == size
		}
	}
	list, err := c.List(ctx, process.Filter{Labels: map[string]string{"langsmith.command": "told"}})
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	for _, done := range []func() bool{freed(process.Selector{Name: "web"}), freed(process.Selector{ID: list[0].ID})} {
		for end := time.Now().Add(time.Minute); !done(); {
			if time.Now().After(end) {
				t.Fatal("the output is not freed")
			}
			// Who has the most gives first: both the machine and the sandbox have to have it.
			q := proctest.Start(t, c, process.Spec{Shell: "head -c 8000000 /dev/zero"})
			proctest.Value(q.Wait(ctx, process.Until{EOF: true}))(t)
			say(`{"type":"execute","command":"head -c 8000000 /dev/zero"}`)
		}
	}
	check := func(when string) {
		for _, r := range []lateReader{
			{name: "the native API in JSON", open: nativeJSON, want: `"to":"(1000000)"()`},
			{name: "tend logs -f", open: logsFollow(), want: `^tend: \d+ bytes of stdout \((0) to (1000000)\) were freed by retention before they were read$`},
			{name: "distant in lines", open: distantLines, want: `^unexpected_eof: bytes (0) to (1000000) of proc_stdout of process 77 were freed by retention`},
			{name: "envd, asked for a finished one", open: envdIn("application/connect+json", "Tend-From: stdout=0"), want: `^data_loss: bytes (0) to (1000000) of stdout were freed`},
		} {
			t.Run(r.name+", "+when, func(t *testing.T) {
				told, err := r.open(t, d, p, info.PID)()
				if err != nil {
					t.Fatalf("the stream broke: %v (told: %q)", err, told)
				}
				if !regexp.MustCompile(r.want).MatchString(told) {
					t.Errorf("the gap was told as %.300q; want %s", told, r.want)
				}
			})
		}
		t.Run("LangSmith, "+when, func(t *testing.T) {
			lost := say(`{"type":"reconnect","command_id":"told"}`)
			last := lost[len(lost)-1]
			if last.ErrorType != "OutputTruncated" || !strings.Contains(last.Error, "bytes 0 to 1000000 of stdout") {
				t.Fatalf("a client that has read nothing is told %+v", last)
			}
			rest := say(`{"type":"reconnect","command_id":"told","stdout_offset":1000000}`)
			if last := rest[len(rest)-1]; last.Type != "exit" || last.ExitCode != 7 {
				t.Errorf("and behind the gap %+v", last)
			}
		})
	}
	check("at once")
	for _, role := range []string{"keeper", "server"} {
		d.killer(ctx, t, 1, role)()
	}
	check("after the death of server and keeper")
}

type langsmithFrame struct {
	Type, Error string
	ErrorType   string `json:"error_type"`
	ExitCode    int    `json:"exit_code"`
}

// newBox makes a sandbox of LangSmith's, and returns the URL of its data plane.
func (d *daemon) newSandbox(t *testing.T, name string) (url string) {
	t.Helper()
	status, text := d.Post(t, "/v2/sandboxes/boxes", fmt.Sprintf(`{"name":%q}`, name))
	var sandbox struct {
		DataplaneURL string `json:"dataplane_url"`
	}
	if err := json.Unmarshal([]byte(text), &sandbox); err != nil || sandbox.DataplaneURL == "" {
		t.Fatalf("no box: %d, %s, %v", status, text, err)
	}
	return sandbox.DataplaneURL
}

// langsmithBox makes a sandbox, and returns what says one first message to it and
// collects the frames until the exit or an error.
func langsmithSandbox(t *testing.T, d *daemon) (say func(first string) []langsmithFrame) {
	t.Helper()
	url := d.newSandbox(t, "freed")
	return func(first string) (all []langsmithFrame) {
		ws, _, err := websocket.Dial(t.Context(), url+"/execute/ws", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer ws.CloseNow()
		ws.SetReadLimit(4 << 20)
		proctest.Must(t, ws.Write(t.Context(), websocket.MessageText, []byte(first)))
		for {
			_, b, err := ws.Read(t.Context())
			if err != nil {
				t.Fatalf("%v after %+v", err, all)
			}
			var m langsmithFrame
			proctest.Must(t, json.Unmarshal(b, &m))
			if all = append(all, m); m.Type == "exit" || m.Type == "error" {
				return all
			}
		}
	}
}
