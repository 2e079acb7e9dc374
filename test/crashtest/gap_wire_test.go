//go:build linux

package crashtest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/coder/websocket"
	"google.golang.org/protobuf/proto"

	envd "github.com/tend-run/tend/internal/gen/envd/process"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// frames opens a stream of Connect's envelopes and returns a function for the
// next one.
func frames(t *testing.T, url, kind, body string, headers ...string) func() (flags byte, msg []byte, err error) {
	t.Helper()
	var frame bytes.Buffer
	frame.WriteByte(0)
	binary.Write(&frame, binary.BigEndian, uint32(len(body)))
	frame.WriteString(body)
	resp := post(t, url, kind, frame.String(), headers...)
	return func() (byte, []byte, error) {
		var head [5]byte
		if _, err := io.ReadFull(resp, head[:]); err != nil {
			return 0, nil, err
		}
		msg := make([]byte, binary.BigEndian.Uint32(head[1:]))
		_, err := io.ReadFull(resp, msg)
		return head[0], msg, err
	}
}

func post(t *testing.T, url, kind, body string, headers ...string) io.Reader {
	t.Helper()
	req := proctest.Value(http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body)))(t)
	req.Header.Set("Content-Type", kind)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	// The kernel would take all of it in for a client that does not read.
	small := &net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			if err := syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 256<<10); err != nil {
				t.Error(err)
			}
		})
	}}
	transport := &http.Transport{DialContext: small.DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	resp := proctest.Value(transport.RoundTrip(req))(t)
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s answers %s", url, resp.Status)
	}
	return resp.Body
}

const endStream = 2 // the flag of the last envelope

func nativeJSON(t *testing.T, d *daemon, p process.Process, _ int) func() (string, error) {
	next := frames(t, d.URL+"/tend.v1.ProcessService/Read", "application/connect+json", fmt.Sprintf(`{"process":{"id":%q}}`, p.ID()))
	return func() (told string, err error) {
		for {
			flags, msg, err := next()
			if err != nil || flags&endStream != 0 {
				return told, err
			}
			var m struct{ Event struct{ Gap json.RawMessage } }
			if err := json.Unmarshal(msg, &m); err != nil {
				return told, err
			}
			if m.Event.Gap != nil {
				var b bytes.Buffer
				if err := json.Compact(&b, m.Event.Gap); err != nil {
					return told, err
				}
				told = b.String()
			}
		}
	}
}

// wireError is an error as Connect's end frames and our lines have it.
type wireError struct {
	Error struct{ Code, Message string }
}

func (e *wireError) text() string { return e.Error.Code + ": " + e.Error.Message }

func envdIn(kind string, headers ...string) func(*testing.T, *daemon, process.Process, int) func() (string, error) {
	return func(t *testing.T, d *daemon, _ process.Process, pid int) func() (string, error) {
		body := fmt.Sprintf(`{"process":{"pid":%d}}`, pid)
		if kind == "application/connect+proto" {
			b := proctest.Value(proto.Marshal(&envd.ConnectRequest{Process: &envd.ProcessSelector{Selector: &envd.ProcessSelector_Pid{Pid: uint32(pid)}}}))(t)
			body = string(b)
		}
		next := frames(t, d.URL+"/process.Process/Connect", kind, body, headers...)
		return func() (string, error) {
			for {
				flags, msg, err := next()
				if err != nil {
					return "", err
				}
				if flags&endStream != 0 {
					var e wireError
					err := json.Unmarshal(msg, &e)
					return e.text(), err
				}
			}
		}
	}
}

func envdLines(t *testing.T, d *daemon, _ process.Process, pid int) func() (string, error) {
	body := post(t, d.URL+"/process.Process/Connect", "application/json", fmt.Sprintf(`{"process":{"pid":%d}}`, pid))
	return func() (string, error) {
		var e wireError
		for dec := json.NewDecoder(body); e.Error.Code == ""; {
			if err := dec.Decode(&e); err != nil {
				return "", err
			}
		}
		return e.text(), nil
	}
}

func logsFollow(flags ...string) func(*testing.T, *daemon, process.Process, int) func() (string, error) {
	return func(t *testing.T, d *daemon, p process.Process, _ int) func() (string, error) {
		cmd := exec.CommandContext(t.Context(), bin, append([]string{"--url", d.URL, "logs", "-f", string(p.ID())}, flags...)...)
		out := proctest.Value(cmd.StdoutPipe())(t)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		proctest.Must(t, cmd.Start())
		return func() (told string, err error) {
			lines := bufio.NewReader(out)
			for err == nil {
				var line string
				line, err = lines.ReadString('\n')
				if strings.Contains(line, `"gap_to"`) && told == "" {
					told = strings.TrimSpace(line)
				}
			}
			if err := cmd.Wait(); err != nil {
				return told, fmt.Errorf("tend logs ended with %v: %s", err, &errs)
			}
			return told + strings.TrimSpace(errs.String()), nil
		}
	}
}

func distantLines(t *testing.T, d *daemon, _ process.Process, _ int) func() (string, error) {
	cmd := exec.CommandContext(t.Context(), bin, "--url", d.URL, "distant", "--stdio")
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	proctest.Must(t, errors.Join(err1, err2, cmd.Start()))
	t.Cleanup(func() {
		in.Close()
		io.Copy(io.Discard, out)
		cmd.Wait()
	})
	proctest.Value(io.WriteString(in, `{"type":"tend_attach","id":77}`+"\n"))(t)
	dec := json.NewDecoder(out)
	var m struct{ Type, Kind, Description string }
	if err := dec.Decode(&m); err != nil || m.Type != "proc_spawned" {
		t.Fatalf("%+v: %v", m, err)
	}
	return func() (told string, err error) {
		for m.Type != "proc_done" {
			m.Kind, m.Description = "", ""
			if err := dec.Decode(&m); err != nil {
				return told, err
			}
			if m.Type == "error" {
				told += m.Kind + ": " + m.Description
			}
		}
		return told, nil
	}
}

// langsmithGap: commands of this face are kept to the daemon's own limit, so
// the head is freed by hand here.
func langsmithGap(t *testing.T, d *daemon, c *tend.Client) {
	ws, _, err := websocket.Dial(t.Context(), d.newSandbox(t, "late")+"/execute/ws", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ws.CloseNow()
	ws.SetReadLimit(1 << 20)
	first := fmt.Sprintf(`{"type":"execute","command_id":"late","command":%q}`, twice)
	proctest.Must(t, ws.Write(t.Context(), websocket.MessageText, []byte(first)))
	var m langsmithFrame
	next := func() error {
		_, b, err := ws.Read(t.Context())
		if err == nil {
			err = json.Unmarshal(b, &m)
		}
		return err
	}
	if err := next(); err != nil || m.Type != "started" {
		t.Fatalf("%+v: %v", m, err)
	}
	list, err := c.List(t.Context(), process.Filter{Labels: map[string]string{"langsmith.command": "late"}})
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	p := proctest.Value(c.Get(t.Context(), process.Selector{ID: list[0].ID}))(t)
	d.overtake(t, p, 0)
	proctest.Must(t, p.Trim(t.Context(), process.Stdout, written-kept))
	for m.Type != "error" && err == nil {
		err = next()
	}
	checkGap(t, `^OutputTruncated: bytes (\d+) to (\d+) of stdout were freed`, m.ErrorType+": "+m.Error, err)
}
