package cli

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tend-run/tend/internal/cli/doctor"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

var update = flag.Bool("update", false, "write the golden files again")

// golden compares got with a file under testdata/golden.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", "golden", name)
	if *update {
		proctest.Must(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (go test ./internal/cli -update writes it)", err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("the JSON is API and has changed (-want +got):\n%s", diff)
	}
}

var testStart = time.Date(2026, 11, 21, 6, 30, 0, 123456000, time.UTC)

func testInfos() map[string]process.Info {
	return map[string]process.Info{
		"running": {
			ID: "01kaha0000aaaaaaaaaaaaaaaa", PID: 4242, State: process.Running, Started: testStart,
			Spec: process.Spec{
				Name: "web", Tag: "front", Argv: []string{"node", "server.js", "--title=a b"}, Dir: "/srv", User: "user",
				Stdin: process.StdinPipe, Labels: map[string]string{"team": "x"}, Env: map[string]string{"SECRET": "not shown"},
			},
			Stdin: process.StdinInfo{Open: true, Accepted: 12},
			Streams: []process.StreamInfo{
				{Stream: process.Stdout, Base: 4096, End: 10000}, {Stream: process.Stderr, End: 5, EOF: true},
			},
		},
		"exited with a code on a terminal": {
			ID: "build-1", PID: 7, State: process.Exited, Started: testStart, TreeGone: true,
			Spec:    process.Spec{Shell: "make | tee log", PTY: &process.Size{Cols: 80, Rows: 24}},
			Streams: []process.StreamInfo{{Stream: process.PTY, End: 99, EOF: true}},
			Exit: &process.Exit{
				Code: 3, Cause: process.CauseExited, Time: testStart.Add(1500 * time.Millisecond),
				UserTime: 250 * time.Millisecond, SystemTime: 30 * time.Millisecond, MaxRSS: 1 << 20,
			},
		},
		"killed": {
			ID: "01kaha0000bbbbbbbbbbbbbbbb", PID: 9, State: process.Exited, Started: testStart,
			Spec: process.Spec{Argv: []string{"sleep", "9"}},
			Exit: &process.Exit{Signal: 9, Cause: process.CauseTimeout, Time: testStart},
		},
		"lost": {
			ID: "01kaha0000cccccccccccccccc", PID: 10, State: process.Exited, Started: testStart,
			Spec: process.Spec{Argv: []string{"sleep", "9"}},
			Exit: &process.Exit{Cause: process.CauseLost, Time: testStart},
		},
	}
}

func TestProcessJSONKeepsItsShape(t *testing.T) {
	infos := testInfos()
	var facts []processFacts
	for _, name := range []string{"running", "exited with a code on a terminal", "killed", "lost"} {
		info := infos[name]
		facts = append(facts, factsOf(&info))
	}
	var b bytes.Buffer
	proctest.Must(t, printJSON(&b, facts))
	golden(t, "ps.json", b.Bytes())
	if bytes.Contains(b.Bytes(), []byte("not shown")) {
		t.Error("the environment, which may hold secrets, is printed")
	}
}

// TestNoJSONActsOnATerminal: what a process is called may turn the direction of the lines that show it.
func TestNoJSONActsOnATerminal(t *testing.T) {
	const text = "a\u202eb\u2066c\u200fd\u2028e\ufefff\u0085g\u007fh\u009bié"
	var b bytes.Buffer
	proctest.Must(t, printJSON(&b, text))
	if want := `"a\u202eb\u2066c\u200fd\u2028e\ufefff\u0085g\u007fh\u009bié"` + "\n"; b.String() != want {
		t.Errorf("it is printed as %q", b.String())
	}
	var back string
	if proctest.Must(t, json.Unmarshal(b.Bytes(), &back)); back != text {
		t.Errorf("it is read as %q", back)
	}
}

func TestEventJSONKeepsItsShape(t *testing.T) {
	killed := testInfos()["killed"]
	var b bytes.Buffer
	for _, ev := range []process.Event{
		{Kind: process.EventStarted, ID: killed.ID, Time: testStart, PID: 9},
		{Kind: process.EventExited, ID: killed.ID, Time: testStart, Exit: killed.Exit},
		{Kind: process.EventTreeGone, ID: killed.ID},
		{Kind: process.EventRemoved, ID: killed.ID, Time: testStart},
	} {
		proctest.Must(t, printJSONLine(&b, eventFactsOf(ev, "sleep 9")))
	}
	golden(t, "events.jsonl", b.Bytes())
}

func TestAnswerJSONKeepsItsShape(t *testing.T) {
	exited := testInfos()["exited with a code on a terminal"].Exit
	var b bytes.Buffer
	for _, v := range []any{
		waitFactsOf("a", "exit", process.WaitResult{Exit: exited, Met: true}),
		waitFactsOf("a", "match=rea.y", process.WaitResult{Met: true, Match: "ready\n", Stream: process.Stderr, Offset: 17}),
		waitFactsOf("a", "port=3000", process.WaitResult{Met: true, Listening: []process.Listener{{Address: "127.0.0.1:3000", PID: 5}}}),
		waitFactsOf("a", "input", process.WaitResult{Met: true, Input: process.InputPassword}),
		waitFactsOf("a", "input", process.WaitResult{Exit: exited}),
		killFacts{ID: "a", Verified: true, Survivors: []int{}},
		killFacts{ID: "a", Survivors: []int{3, 4}},
		statusFacts{
			Version: "v1", URL: "http://127.0.0.1:49983", StateDir: "/var/lib/tend", Processes: 2,
			Roles:    map[string]roleFacts{"anchor": {1}, "keeper": {2}, "server": {3}},
			Promises: map[string]doctor.Promise{"cgroup_kill": {Kept: true}, "splice": {Detail: "copied instead"}},
			Parts:    map[string]map[string]string{"driver": {"name": "host", "isolation": "none"}},
		},
	} {
		proctest.Must(t, printJSONLine(&b, v))
	}
	golden(t, "answers.jsonl", b.Bytes())
}

func TestOutputJSONKeepsItsShape(t *testing.T) {
	var b bytes.Buffer
	inv := &invocation{out: &b, errs: &b, flags: &globals{JSON: true}}
	for _, ev := range []process.Event{
		{Kind: process.EventStarted, PID: 3},
		{Kind: process.EventOutput, Stream: process.Stdout, Offset: 0, Time: testStart, Data: []byte("héllo <b>\n")},
		{Kind: process.EventOutput, Stream: process.Stderr, Offset: 7, Data: []byte{0xff, 0, 1}},
		{Kind: process.EventGap, Gap: process.Gap{Stream: process.Stdout, From: 10, To: 4096}},
	} {
		proctest.Must(t, inv.printOutput(ev))
	}
	golden(t, "logs.jsonl", b.Bytes())
}
