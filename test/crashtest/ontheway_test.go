//go:build linux

package crashtest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	envd "github.com/tend-run/tend/internal/gen/envd/process"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// Output that is freed after it was sent, and before its client has read it, is
// what the process wrote all the same: what lies in a socket is no part of the
// file any more. It is freed in many small steps, each of which ends in the middle
// of what the kernel may hold as one large page.
func TestOutputThatIsFreedOnItsWayIsNotChanged(t *testing.T) {
	t.Parallel()
	const size, step = 24 << 20, 20 << 10
	d := serve(t)
	c := d.Connect(t)
	want := make([]byte, size)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range want {
		want[i] = byte(1 + random.IntN(255)) // a zero is none of them
	}
	file := filepath.Join(t.TempDir(), "output")
	proctest.Must(t, os.WriteFile(file, want, 0o600))
	for _, kind := range []string{"application/connect+proto", "application/connect+json", "application/json"} {
		t.Run(strings.ReplaceAll(kind, "/", " "), func(t *testing.T) {
			p := proctest.Start(t, c, process.Spec{Shell: "cat " + file + "; read x", Stdin: process.StdinPipe})
			defer p.Kill(t.Context())
			info := proctest.Info(t, p)
			next := envdOutput(t, d, kind, info.PID)
			d.awaitStall(t, p, size, letGo)
			for at := int64(step); at <= size; at += step {
				proctest.Must(t, p.Trim(t.Context(), process.Stdout, at))
			}
			at := 0
			for {
				data, end, err := next()
				switch {
				case err != nil:
					t.Fatalf("after byte %d: %v", at, err)
				case end != "":
					if !strings.HasPrefix(end, "data_loss: ") || at == 0 {
						t.Errorf("after byte %d it ended with %q", at, end)
					}
					return
				case !bytes.HasPrefix(want[at:], data):
					t.Fatalf("of the %d bytes after byte %d %d are zero", len(data), at, bytes.Count(data, []byte{0}))
				}
				at += len(data)
			}
		})
	}
}

// envdOutput reads the output of a process from its beginning: in pieces, and last
// how the stream ended.
func envdOutput(t *testing.T, d *daemon, kind string, pid int) func() (data []byte, end string, err error) {
	from, url := "Tend-From: stdout=0", d.URL+"/process.Process/Connect"
	body := fmt.Sprintf(`{"process":{"pid":%d}}`, pid)
	var lines *json.Decoder
	var next func() (byte, []byte, error)
	switch kind {
	case "application/json":
		lines = json.NewDecoder(post(t, url, kind, body, from))
	case "application/connect+proto":
		b := proctest.Value(proto.Marshal(&envd.ConnectRequest{Process: &envd.ProcessSelector{Selector: &envd.ProcessSelector_Pid{Pid: uint32(pid)}}}))(t)
		body = string(b)
		fallthrough
	default:
		next = frames(t, url, kind, body, from)
	}
	return func() ([]byte, string, error) {
		var m struct {
			wireError
			Event struct{ Data struct{ Stdout string } }
		}
		if lines != nil {
			err := lines.Decode(&m)
			data, derr := base64.StdEncoding.DecodeString(m.Event.Data.Stdout)
			if m.Error.Code == "" {
				return data, "", errors.Join(err, derr)
			}
			return nil, m.text(), err
		}
		flags, msg, err := next()
		switch {
		case err != nil:
			return nil, "", err
		case flags&endStream != 0:
			err := json.Unmarshal(msg, &m)
			return nil, m.text(), err
		case kind == "application/connect+proto":
			var r envd.ConnectResponse
			err := proto.Unmarshal(msg, &r)
			return r.GetEvent().GetData().GetStdout(), "", err
		}
		err = json.Unmarshal(msg, &m)
		data, derr := base64.StdEncoding.DecodeString(m.Event.Data.Stdout)
		return data, "", errors.Join(err, derr)
	}
}
