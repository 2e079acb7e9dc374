package server

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	envdpb "github.com/tend-run/tend/internal/gen/envd/process"
	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// begun is a request of which a part of the body was sent.
func begun(t *testing.T, s *served, path, contentType string, length int, part []byte, header ...http.Header) net.Conn {
	t.Helper()
	conn := proctest.Value(net.Dial("tcp", strings.TrimPrefix(s.tcp, "http://")))(t)
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(2 * time.Minute))
	var more bytes.Buffer
	for _, h := range header {
		proctest.Must(t, h.Write(&more))
	}
	proctest.Value(fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nContent-Length: %d\r\n%s\r\n",
		path, contentType, length, &more))(t)
	proctest.Value(conn.Write(part))(t)
	return conn
}

// envelope is a message of a Connect stream.
func envelope(size int, data []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(size)), data...)
}

// TestRequestsInFlightHaveOneBudget fills the budget with requests whose bodies
// do not end, on each face, and asks for more.
func TestRequestsInFlightHaveOneBudget(t *testing.T) {
	const max, part = 8 << 20, 400 << 10
	large := []byte(`{"x":"` + strings.Repeat("x", 1<<20) + `"}`)
	for _, tt := range []struct {
		name, path, kind string
		held             []byte
	}{
		{"a start of the native API", "/tend.v1.ProcessService/Start", "application/json", large[:part]},
		{"a write of the native API", "/tend.v1.ProcessService/Write", "application/json", bytes.Repeat(large[:part:part], 6)},
		{"a start of envd", "/process.Process/Start", "application/connect+json", envelope(len(large), large[:part])},
		{"input of envd", "/process.Process/SendInput", "application/json", bytes.Repeat(large[:part:part], 6)},
		{"a stream of input of envd", "/process.Process/StreamInput", "application/connect+json", envelope(4<<20, make([]byte, 6*part))},
		{"a request of envd's filesystem", "/filesystem.Filesystem/Stat", "application/json", large[:part]},
		{"envd's init", "/init", "application/json", large[:part]},
		{"a box of langsmith", "/v2/sandboxes/boxes", "application/json", large[:part]},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(c *Config) { c.Budget = budget.New(max) })
			conn := begun(t, s, tt.path, tt.kind, 16<<20, tt.held)
			proctest.Eventually(t, "most of the budget is used", func() bool { return s.budget.Used() > max*3/4 })
			c := s.client(t, "h1", "tcp")
			asJSON := map[string]string{"Content-Type": "application/json"}
			for _, more := range []struct{ path, code string }{
				{"/tend.v1.ProcessService/Start", "resource_exhausted"}, {"/process.Process/List", "resource_exhausted"},
				{"/process.Process/SendInput", "resource_exhausted"}, {"/v2/sandboxes/boxes", "large requests in flight"}, {"/init", "large requests in flight"},
			} {
				status, text := do(t, c, "POST", s.tcp+more.path, string(large), asJSON)
				if status != http.StatusTooManyRequests || !strings.Contains(text, more.code) {
					t.Errorf("a large %s is answered %d %.200s; want 429 with %s", more.path, status, text, more.code)
				}
			}
			// Small ones are served all the same.
			if status, text := do(t, c, "POST", s.tcp+"/tend.v1.ProcessService/Hello", "{}", asJSON); status != 200 {
				t.Errorf("a small request is answered %d %s", status, text)
			}
			conn.Close()
			proctest.Eventually(t, "the budget is free again", func() bool { return s.budget.Used() == 0 })
			if status, text := do(t, c, "POST", s.tcp+"/tend.v1.ProcessService/Hello", string(large[:part-2])+`"}`, asJSON); status != 200 {
				t.Errorf("a large request is answered %d %s", status, text)
			}
			proctest.Eventually(t, "all of the budget is given back", func() bool { return s.budget.Used() == 0 })
		})
	}
}

// TestAStreamIsNotChargedForItsRequest: it continues for hours.
func TestAStreamIsNotChargedForItsRequest(t *testing.T) {
	s := serve(t, nil)
	word := strings.Repeat("x", 100<<10)
	msg := proctest.Value(json.Marshal(map[string]any{"process": map[string]any{"cmd": "/bin/sh", "args": []string{"-c", "echo here; exec sleep 1000", word}}}))(t)
	for _, protocol := range []string{"h1", "h2"} {
		req := proctest.Value(http.NewRequestWithContext(t.Context(), "POST", s.tcp+"/process.Process/Start", bytes.NewReader(envelope(len(msg), msg))))(t)
		req.Header.Set("Content-Type", "application/connect+json")
		res := proctest.Value(s.client(t, protocol, "tcp").Do(req))(t)
		defer res.Body.Close()
		proctest.Value(io.ReadFull(res.Body, make([]byte, 40)))(t)
		proctest.Eventually(t, protocol+": nothing is charged", func() bool { return s.budget.Used() == 0 })
	}
}

// TestACallThatWaitsGivesBackWhatDecodingNeeded: waiting calls of MCP leave room for the
// large requests of others.
func TestACallThatWaitsGivesBackWhatDecodingNeeded(t *testing.T) {
	const max, input, most = 64 << 20, 1_000_000, 6
	s := serve(t, func(c *Config) { c.Budget = budget.New(max) })
	run := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run","arguments":{"command":"cat >/dev/null; exec sleep 1000","timeout_s":600,"input":"` + strings.Repeat("x", input) + `"}}}`
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for n := 1; n <= 8; n++ {
		all.Go(func() {
			req, err := http.NewRequestWithContext(ctx, "POST", s.tcp+"/mcp", strings.NewReader(run))
			if err != nil {
				t.Error(err)
				return
			}
			req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
			res, err := http.DefaultTransport.RoundTrip(req)
			if err != nil {
				if ctx.Err() == nil {
					t.Error(err)
				}
				return
			}
			defer res.Body.Close()
			if res.StatusCode != http.StatusOK {
				t.Errorf("waiting call %d is answered %s", n, res.Status)
			}
			_, _ = io.Copy(io.Discard, res.Body) // until it is cancelled
		})
		// 16 bytes for each byte of one that is read, and at most 6 of one that waits.
		proctest.Eventually(t, fmt.Sprintf("%d calls wait", n), func() bool {
			live, err := s.cfg.Manager.List(t.Context(), process.Filter{Live: true})
			return err == nil && len(live) == n && s.budget.Used() <= int64(n*most*input) || t.Failed()
		})
	}
}

// TestCompressedBodiesAreChargedForWhatTheyStandFor: 16 KiB may be 16 MiB.
func TestCompressedBodiesAreChargedForWhatTheyStandFor(t *testing.T) {
	s := serve(t, func(c *Config) { c.Budget = budget.New(8 << 20) })
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	fmt.Fprintf(z, `{"process":{"tag":"%s"}}`, strings.Repeat("x", 12<<20))
	z.Close()
	status, text := do(t, s.client(t, "h1", "tcp"), "POST", s.tcp+"/process.Process/Update", packed.String(),
		map[string]string{"Content-Type": "application/json", "Content-Encoding": "gzip"})
	if status != 429 || !strings.Contains(text, "resource_exhausted") {
		t.Errorf("%d bytes that stand for 12 MiB are answered %d %.200s", packed.Len(), status, text)
	}
}

// TestMessagesOfTooManyFieldsAreRefused before they are decoded: each byte could
// become an object.
func TestMessagesOfTooManyFieldsAreRefused(t *testing.T) {
	s := serve(t, nil)
	args := make([]string, protocol.MaxFields+1)
	env := make(map[string]string)
	for i := range protocol.MaxFields/3 + 1 {
		env[fmt.Sprint(i)] = ""
	}
	asJSON := func(v any) []byte {
		b := proctest.Value(json.Marshal(v))(t)
		return b
	}
	asProto := func(m proto.Message) []byte {
		b := proctest.Value(proto.Marshal(m))(t)
		return b
	}
	for name, tt := range map[string]struct {
		path, kind string
		body       []byte
	}{
		"envd's arguments":         {"/process.Process/Start", "application/connect+json", asJSON(map[string]any{"process": map[string]any{"args": args}})},
		"envd's variables, binary": {"/process.Process/Start", "application/connect+proto", asProto(&envdpb.StartRequest{Process: &envdpb.ProcessConfig{Cmd: "x", Envs: env}})},
		"envd's arguments, binary": {"/process.Process/Start", "application/connect+proto", asProto(&envdpb.StartRequest{Process: &envdpb.ProcessConfig{Cmd: "x", Args: args}})},
		"our arguments":            {"/tend.v1.ProcessService/Start", "application/json", asJSON(map[string]any{"spec": map[string]any{"argv": args}})},
		"our labels, binary":       {"/tend.v1.ProcessService/Start", "application/proto", asProto(&tendv1.StartRequest{Spec: &tendv1.Spec{Labels: env}})},
		"a list's filter, binary":  {"/tend.v1.ProcessService/List", "application/proto", asProto(&tendv1.ListRequest{Labels: env})},
		"a box's variables":        {"/v2/sandboxes/boxes", "application/json", asJSON(map[string]any{"run_config": map[string]any{"env_vars": env, "x": args}})},
		"the settings of init":     {"/init", "application/json", asJSON(map[string]any{"envVars": env, "x": args})},
	} {
		if strings.HasPrefix(tt.kind, "application/connect") {
			tt.body = envelope(len(tt.body), tt.body)
		}
		_, text := do(t, s.client(t, "h1", "tcp"), "POST", s.tcp+tt.path, string(tt.body), map[string]string{"Content-Type": tt.kind})
		if !strings.Contains(text, "fields (array elements and map entries are fields, too)") {
			t.Errorf("%s: the answer is %.300s", name, text)
		}
	}
}

// TestAMessageMustArriveAtARate: a client may pause between two messages, and
// not in the middle of a large one.
func TestAMessageMustArriveAtARate(t *testing.T) {
	s := serve(t, func(c *Config) { c.Limits.BodyPause = 50 * time.Millisecond })
	for _, path := range []string{"/process.Process/StreamInput"} {
		conn := begun(t, s, path, "application/connect+json", 16<<20, envelope(smallBody+1, make([]byte, smallBody-100)))
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err == nil {
			_, err = io.ReadAll(res.Body)
			res.Body.Close()
		}
		if err != nil && !strings.Contains(err.Error(), "reset") && err != io.EOF && err != io.ErrUnexpectedEOF {
			t.Errorf("%s: %v", path, err)
		}
		proctest.Eventually(t, "the budget is free again", func() bool { return s.budget.Used() == 0 })
	}
}
