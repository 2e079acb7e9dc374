//go:build linux

package crashtest

import (
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testdaemon"
	"github.com/tend-run/tend/process"
)

// Roles are killed in the middle of calls of MCP, by `tend mcp` and by an unmodified HTTP
// client: each call is answered once, with all of the output; input arrives once; one
// command is started for each run.
func TestCallsOfMCPOutliveDeaths(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"2025-06-18", "2025-11-25", "2026-07-28"} {
		for _, door := range []string{"stdio", "HTTP"} {
			if door == "HTTP" && version != "2025-11-25" {
				continue // there an answer that breaks off is lost, as the protocol has it
			}
			t.Run(door+" "+version, func(t *testing.T) {
				t.Parallel()
				d := serve(t)
				var tr sdk.Transport = &sdk.CommandTransport{Command: exec.Command(bin, "mcp", "--url", d.URL)}
				if door == "HTTP" {
					client := &http.Client{Transport: &http.Transport{}}
					t.Cleanup(client.CloseIdleConnections)
					tr = &sdk.StreamableClientTransport{Endpoint: d.URL + "/mcp", HTTPClient: client, DisableStandaloneSSE: true, MaxRetries: 20}
				}
				c := sdk.NewClient(&sdk.Implementation{Name: "crashtest"}, nil)
				s, err := c.Connect(t.Context(), tr, &sdk.ClientSessionOptions{ProtocolVersion: version})
				s = proctest.Value(s, err)(t)
				t.Cleanup(func() { s.Close() })
				if got := s.InitializeResult(); got != nil && got.ProtocolVersion != version {
					t.Fatalf("%s was agreed on", got.ProtocolVersion)
				}
				callsOutlive(t, d, s, door)
			})
		}
	}
}

type mcpAnswer struct {
	text string
	meta map[string]any
	err  error
}

func callsOutlive(t *testing.T, d *daemon, s *sdk.ClientSession, door string) {
	call := func(tool string, args map[string]any) <-chan mcpAnswer {
		done := make(chan mcpAnswer, 1)
		go func() {
			var a mcpAnswer
			res, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: args})
			if a.err = err; err == nil {
				a.text, a.meta = res.Content[0].(*sdk.TextContent).Text, res.Meta
				if res.IsError {
					a.err = fmt.Errorf("%s", a.text)
				}
			}
			done <- a
		}()
		return done
	}
	want := func(a mcpAnswer, words ...string) {
		t.Helper()
		proctest.Must(t, a.err)
		for _, w := range words {
			if !strings.Contains(a.text, w) {
				t.Errorf("%q is missing in:\n%.2000s", w, a.text)
			}
		}
	}
	m := d.Connect(t)
	deaths := [][]string{{testdaemon.Server}, {testdaemon.Keeper}, {testdaemon.Server, testdaemon.Keeper}, {testdaemon.Anchor}, {testdaemon.Server}}
	const lines = 4000 // in each round
	for round, roles := range deaths {
		name := fmt.Sprintf("round%d", round)
		running := call("run", map[string]any{
			"command": fmt.Sprintf("echo begun; read go; seq 1 %d; echo $go >&2; exit %d", lines, round), "stdin": "pipe", "match": "never matches", "name": name, "timeout_s": 120, "max_tokens": 50000,
		})
		var p process.Process
		proctest.Eventually(t, name+" runs", func() (ok bool) {
			var err error
			p, err = m.Get(t.Context(), process.Selector{Name: name})
			return err == nil
		})
		proctest.Wait(t, p, process.Until{Match: "begun"})
		for _, role := range roles {
			proctest.Must(t, d.Replace(t.Context(), role))
		}
		// The input is under way while a role dies, too.
		giving := call("input", map[string]any{"id": name, "text": "word\n", "timeout_s": 60})
		if door == "HTTP" { // it continues from the answer's first event: before that nobody knows of the call
			proctest.Eventually(t, "the input is taken", func() bool { return proctest.Value(p.Info(t.Context()))(t).Stdin.Accepted > 0 })
		}
		proctest.Must(t, d.Replace(t.Context(), roles[0]))
		want(<-giving, fmt.Sprintf("exited with code %d", round), "word")
		a := <-running
		want(a, fmt.Sprintf("exited with code %d", round), "\nstderr 0 to 5:\nword\n", "stdout 0 to ")
		_, body, _ := strings.Cut(a.text, "stdout 0 to ")
		_, body, _ = strings.Cut(body, ":\n")
		body, _, _ = strings.Cut(body, "stderr")
		var all strings.Builder
		all.WriteString("begun\n")
		for i := range lines {
			fmt.Fprintln(&all, i+1)
		}
		if body != all.String() {
			t.Errorf("round %d: the output has %d bytes, want %d", round, len(body), all.Len())
		}
	}
	started := proctest.Value(m.List(t.Context(), process.Filter{}))(t)
	if len(started) != len(deaths) {
		t.Errorf("%d commands were started for %d runs", len(started), len(deaths))
	}
}
