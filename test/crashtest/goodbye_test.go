//go:build linux

package crashtest

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// TestAShutdownIsReportedOnEachFace: clients that read while the daemon shuts down
// receive the exits of their processes.
func TestAShutdownIsReportedOnEachFace(t *testing.T) {
	t.Parallel()
	d := serve(t)
	const script = `trap 'echo bye; exit 7' TERM; echo hi; while :; do sleep 0.05; done`
	quoted := proctest.Value(json.Marshal(script))(t)
	url := d.newSandbox(t, "leaving")
	// Each face is a function that starts the process and returns when its
	// first output is there; what it returns reads to the end.
	faces := map[string]func() func() (string, error){
		"native": func() func() (string, error) {
			p := proctest.Value(d.Connect(t).Start(t.Context(), process.Spec{Shell: script}))(t)
			r := proctest.Value(p.Read(t.Context(), process.ReadOptions{}))(t)
			t.Cleanup(func() { r.Close() })
			next := func(end process.EventKind) (out string, last process.Event, err error) {
				for {
					ev, ok, err := r.Next()
					switch {
					case err != nil:
						return out, ev, err
					case !ok:
						<-r.Ready()
						continue
					}
					if out += string(ev.Data); ev.Kind == end {
						return out, ev, nil
					}
				}
			}
			if _, _, err := next(process.EventOutput); err != nil {
				t.Fatal(err)
			}
			return func() (string, error) {
				out, ev, err := next(process.EventExited)
				if err != nil {
					return out, err
				}
				if ev.Exit.Code != 7 {
					t.Errorf("native: the exit is %+v", ev.Exit)
				}
				return out + "exit 7", nil
			}
		},
		"envd": func() func() (string, error) {
			next := frames(t, d.URL+"/process.Process/Start", "application/connect+json", `{"process":{"cmd":"/bin/bash","args":["-c",`+string(quoted)+`]}}`)
			read := func(until string) (string, error) {
				var all bytes.Buffer
				for !strings.Contains(all.String(), until) {
					_, msg, err := next()
					if err != nil {
						return all.String(), err
					}
					all.Write(msg)
				}
				return all.String(), nil
			}
			if _, err := read("aGkK"); err != nil { // hi
				t.Fatal(err)
			}
			return func() (string, error) {
				got, err := read(`{"end"`)
				return strings.NewReplacer("YnllCg==", "bye\n", "exit status 7", "exit 7").Replace(got), err
			}
		},
		"langsmith": func() func() (string, error) {
			ws, _, err := websocket.Dial(t.Context(), url+"/execute/ws", nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { ws.CloseNow() })
			proctest.Must(t, ws.Write(t.Context(), websocket.MessageText, []byte(`{"type":"execute","command":`+string(quoted)+`}`)))
			read := func(until string) (string, error) {
				var all bytes.Buffer
				for !strings.Contains(all.String(), until) {
					_, msg, err := ws.Read(t.Context())
					if err != nil {
						return all.String(), err
					}
					all.Write(msg)
				}
				return all.String(), nil
			}
			proctest.Value(read(`hi\n`))(t)
			return func() (string, error) {
				got, err := read(`"exit_code"`)
				return strings.NewReplacer(`bye\n`, "bye\n", `"exit_code":7`, "exit 7").Replace(got), err
			}
		},
		"langsmith by events": func() func() (string, error) {
			body := post(t, url+"/execute/stream/start", "application/json", `{"command":`+string(quoted)+`}`)
			read := func(until string) (string, error) {
				var all bytes.Buffer
				b := make([]byte, 1)
				for !strings.Contains(all.String(), until) {
					if _, err := body.Read(b); err != nil {
						return all.String(), err
					}
					all.Write(b)
				}
				return all.String(), nil
			}
			proctest.Value(read("aGkK"))(t)
			return func() (string, error) {
				got, err := read(`"exit_code":7`)
				return strings.NewReplacer("YnllCg==", "bye\n", `"exit_code":7`, "exit 7").Replace(got), err
			}
		},
	}
	rest := map[string]func() (string, error){}
	for name, begin := range faces {
		rest[name] = begin()
	}
	if out, err := exec.Command(bin, "--url", d.URL, "shutdown").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for name, end := range rest {
		if got, err := end(); err != nil || !strings.Contains(got, "bye\n") || !strings.Contains(got, "exit 7") {
			t.Errorf("%s: %q, %v; want the last words and the exit", name, got, err)
		}
	}
}
