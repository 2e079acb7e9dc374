package langsmith

import (
	"encoding/json"
	"testing"

	"github.com/tend-run/tend/internal/sandbox/driver"
)

// FuzzMessage: whatever a client sends, it is either refused or makes a spec
// that the runtime accepts.
func FuzzMessage(f *testing.F) {
	for _, s := range []string{
		`{"type":"execute","command":"true","timeout_seconds":60,"ttl_seconds":-1,"idle_timeout_seconds":-1,"env":{"A":"b"},"cwd":"sub"}`,
		`{"type":"execute","command":"","pty":true,"cols":-1,"rows":1e9}`,
		`{"type":"execute","command":"x","run_config":{"user":"u","work_dir":"/","env_vars":{"A":""}},"timeout_seconds":1e308}`,
		`{"type":"reconnect","command_id":"\u0000","stdout_offset":9223372036854775807}`,
		`{"command":"\ud800"}`, `[]`, `null`, `{"type":1}`, "\xff",
	} {
		f.Add([]byte(s))
	}
	for _, x := range recorded(f) {
		if x.method == "WS" {
			f.Add([]byte(x.bodies[0]))
		}
	}
	box := &driver.Info{ID: "box", Dir: "/work"}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parseMessage(b)
		if err != nil || checkCommandID(m.CommandID) != nil {
			return
		}
		spec, err := m.spec(processID(box.ID, m.CommandID), box)
		if err != nil {
			return
		}
		// What only the runtime refuses is named by it: a NUL byte or a size.
		if err := spec.Validate(); err != nil && problemOf(err).kind != kindInvalid {
			t.Errorf("%q: %v", b, err)
		}
	})
}

func TestFramesAreJSON(t *testing.T) {
	for _, text := range []string{"", "plain", "\"\\\n\x00", "é\xff", "\u2028"} {
		for _, b := range [][]byte{startedFrame(text, 1), exitFrame(-1), errorFrame(text, text)} {
			if !json.Valid(b) {
				t.Errorf("%q is no JSON", b)
			}
		}
	}
}
