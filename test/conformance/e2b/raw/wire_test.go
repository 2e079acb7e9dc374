//go:build linux

package raw

import (
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	pb "github.com/tend-run/tend/internal/gen/envd/process"
	"github.com/tend-run/tend/internal/gen/envd/process/processconnect"
	"github.com/tend-run/tend/internal/support/proctest"
)

func TestACommandInBothCodecs(t *testing.T) {
	t.Parallel()
	codecs(t, func(t *testing.T, c codec) {
		s := shared.open(t, c, "Start", sh("echo out; echo err >&2; exit 3")).started(t).finish(t)
		if string(s.stdout) != "out\n" || string(s.stderr) != "err\n" {
			t.Errorf("stdout %q, stderr %q", s.stdout, s.stderr)
		}
		if e := s.end; e.GetExitCode() != 3 || !e.GetExited() || e.GetStatus() != "exit status 3" || e.GetError() != "exit status 3" {
			t.Errorf("end is %v", e)
		}
		if got, want := s.res.Header.Get("Content-Type"), "application/connect+"+string(c); got != want {
			t.Errorf("content type %q, want %q", got, want)
		}
	})
}

func TestJSONEventsLeaveOutZeroValues(t *testing.T) {
	t.Parallel()
	s := shared.open(t, inJSON, "Start", sh("printf hi"))
	var events []map[string]any
	for {
		msg, err := s.frame()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		var m struct{ Event map[string]any }
		proctest.Must(t, json.Unmarshal(msg, &m))
		events = append(events, m.Event)
	}
	if len(events) != 3 {
		t.Fatalf("events %v, want start, data, end", events)
	}
	want := []map[string]any{
		{"data": map[string]any{"stdout": base64.StdEncoding.EncodeToString([]byte("hi"))}},
		{"end": map[string]any{"exited": true, "status": "exit status 0"}},
	}
	if diff := cmp.Diff(want, events[1:]); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestAllBytesComeThroughBothCodecs(t *testing.T) {
	t.Parallel()
	codecs(t, func(t *testing.T, c codec) {
		s := shared.open(t, c, "Start", sh(`awk 'BEGIN { for (i = 0; i < 256; i++) printf "\\%03o", i }' > bytes.$$; printf "$(cat bytes.$$ | sed 's/\\000//')"; rm bytes.$$`)).started(t).finish(t)
		var want []byte
		for i := 1; i < 256; i++ {
			want = append(want, byte(i))
		}
		// The command substitution takes no byte away: the last is no newline.
		if string(s.stdout) != string(want) {
			t.Errorf("got %q; stderr %q", s.stdout, s.stderr)
		}
	})
}

func TestRoutesAndMethods(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct {
		method, path, body string
		status             int
	}{
		"GET on an RPC is not allowed": {http.MethodGet, "/process.Process/Start", "", http.StatusMethodNotAllowed},
		"an unknown method is missing": {http.MethodPost, "/process.Process/Nope", "", http.StatusNotFound},
		"an unknown path is missing":   {http.MethodGet, "/nope", "", http.StatusNotFound},
		"a stream may be called plain": {http.MethodPost, "/process.Process/Start", `{"process":{"cmd":"/bin/true"}}`, http.StatusOK},
		"half a body is refused":       {http.MethodPost, "/process.Process/List", `{"a`, http.StatusBadRequest},
		"unknown fields are ignored":   {http.MethodPost, "/process.Process/List", `{"nope": 1}`, http.StatusOK},
		"enums may be numbers":         {http.MethodPost, "/process.Process/SendSignal", `{"process":{"pid":4000000},"signal":9}`, http.StatusNotFound},
		"enums may be names":           {http.MethodPost, "/process.Process/SendSignal", `{"process":{"pid":4000000},"signal":"SIGNAL_SIGTERM"}`, http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, text := shared.Ask(t, want.method, want.path, want.body, "Content-Type", "application/json")
			if status != want.status {
				t.Errorf("status %d with %q, want %d", status, text, want.status)
			}
		})
	}
}

func TestAPlainStartIsAnsweredAsLines(t *testing.T) {
	t.Parallel()
	status, text := shared.Post(t, "/process.Process/Start", `{"process":{"cmd":"/bin/sh","args":["-c","echo hi"]},"stdin":false}`)
	if status != http.StatusOK {
		t.Fatalf("status %d with %q", status, text)
	}
	for _, part := range []string{`"start"`, `"aGkK"`, `"exit status 0"`} {
		if !strings.Contains(text, part) {
			t.Errorf("%s is missing in %q", part, text)
		}
	}
}

func TestOtherProtocols(t *testing.T) {
	t.Parallel()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	h2c := &http.Client{Transport: &http.Transport{Protocols: protocols}}
	for name, client := range map[string]processconnect.ProcessClient{
		"gRPC over h2c":            processconnect.NewProcessClient(h2c, shared.URL, connect.WithGRPC()),
		"gRPC-Web over HTTP/1.1":   processconnect.NewProcessClient(http.DefaultClient, shared.URL, connect.WithGRPCWeb()),
		"Connect over h2c":         processconnect.NewProcessClient(h2c, shared.URL),
		"Connect with JSON":        processconnect.NewProcessClient(http.DefaultClient, shared.URL, connect.WithProtoJSON()),
		"Connect with gzip bodies": processconnect.NewProcessClient(http.DefaultClient, shared.URL, connect.WithSendGzip()),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			res := proctest.Value(client.Start(t.Context(), connect.NewRequest(sh("seq 1000; exit 4"))))(t)
			defer res.Close()
			var out []byte
			var end *pb.ProcessEvent_EndEvent
			for res.Receive() {
				ev := res.Msg().GetEvent()
				out = append(out, ev.GetData().GetStdout()...)
				if ev.GetEnd() != nil {
					end = ev.GetEnd()
				}
			}
			proctest.Must(t, res.Err())
			if n := strings.Count(string(out), "\n"); n != 1000 || end.GetExitCode() != 4 {
				t.Errorf("%d lines and end %v", n, end)
			}
			if _, err := client.List(t.Context(), connect.NewRequest(&pb.ListRequest{})); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestGzipFramesForWhoeverAsks(t *testing.T) {
	t.Parallel()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, shared.URL+"/process.Process/Start",
		strings.NewReader(string(envelope(inProto.marshal(sh("head -c 100000 /dev/zero"))))))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/connect+proto")
	req.Header.Set("Connect-Accept-Encoding", "gzip")
	res := proctest.Value(http.DefaultClient.Do(req))(t)
	defer res.Body.Close()
	if got := res.Header.Get("Connect-Content-Encoding"); got != "gzip" {
		t.Fatalf("encoding %q", got)
	}
	var total int
	for {
		var head [5]byte
		proctest.Value(io.ReadFull(res.Body, head[:]))(t)
		var body io.Reader = io.LimitReader(res.Body, int64(head[1])<<24|int64(head[2])<<16|int64(head[3])<<8|int64(head[4]))
		wire := body
		if head[0]&1 != 0 {
			body = proctest.Value(gzip.NewReader(body))(t)
		}
		msg := proctest.Value(io.ReadAll(body))(t)
		proctest.Value(io.Copy(io.Discard, wire))(t)
		if head[0]&2 != 0 {
			break
		}
		var ev pb.StartResponse
		proctest.Must(t, inProto.unmarshal(msg, &ev))
		total += len(ev.GetEvent().GetData().GetStdout())
	}
	if total != 100000 {
		t.Errorf("%d bytes, want 100000", total)
	}
}

func TestAnyOriginMayNotRunPrograms(t *testing.T) {
	t.Parallel()
	status, text := shared.Ask(t, http.MethodPost, "/process.Process/List", "{}",
		"Content-Type", "application/json", "Origin", "https://evil.example")
	if status != http.StatusForbidden {
		t.Errorf("status %d with %q, want 403", status, text)
	}
}
