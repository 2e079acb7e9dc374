package envd_test

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	pb "github.com/tend-run/tend/internal/gen/envd/process"
	"github.com/tend-run/tend/internal/support/proctest"
)

// exchange sends a request and renders the whole answer but for its date.
func (s *server) exchange(method string, headers []string, body []byte) string {
	s.t.Helper()
	c := s.dial()
	defer c.Close()
	c.send("POST", "/process.Process/"+method, append(headers, "Connection: close"), body)
	res := c.response()
	text := proctest.Value(io.ReadAll(res.Body))(s.t)
	res.Header.Del("Date")
	res.Header.Del("Content-Length") // short answers have one or come in chunks
	var h strings.Builder
	proctest.Must(s.t, res.Header.Write(&h))
	// connect-go's JSON has a space here and there, at random, on purpose.
	return fmt.Sprintf("%d %d\n%s\n%s", res.StatusCode, len(compact(string(text))), h.String(), compact(string(text)))
}

// TestBothPathsOfInputAnswerTheSame sends requests as SDKs do, and the same
// with a header that means nothing and sends them to connect-go.
func TestBothPathsOfInputAnswerTheSame(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	cat := s.stream("Start", `{"process":{"cmd":"cat"},"stdin":true,"tag":"cat"}`).started()
	tty := s.stream("Start", `{"process":{"cmd":"cat"},"pty":{"size":{"cols":80,"rows":24}},"tag":"tty"}`).started()
	null := s.stream("Start", sh("sleep 60")).started()
	unary := [][]byte{}
	for _, pid := range []int{cat.pid, tty.pid, null.pid, 1 << 22, 0} {
		for _, in := range []string{`{"stdin":"aGk="}`, `{"pty":"aGk="}`, `{"stdin":""}`, `{}`, `{"stdin":"aGk"}`, `{"stdin":"?"}`, `null`} {
			unary = append(unary, fmt.Appendf(nil, `{"process":{"pid":%d},"input":%s}`, pid, in))
		}
	}
	for _, text := range []string{`{}`, ``, `null`, `[]`, `{"process":{"tag":"cat"},"input":{"stdin":"aGk="},"more":{}}`, `{"process":{"tag":"none"}}`, "\xff", `{"process":{"tag":""},"input":{"stdin":"aA=="}}`} {
		unary = append(unary, []byte(text))
	}
	both := func(what, method string, headers []string, away string, body []byte) {
		t.Helper()
		hot, cold := s.exchange(method, headers, body), s.exchange(method, append([]string{away}, headers...), body)
		if d := cmp.Diff(cold, hot); d != "" {
			t.Errorf("%s: %s %q: -connect-go +hot path\n%s", what, method, body, d)
		}
	}
	for _, body := range unary {
		both("JSON", "SendInput", []string{"Content-Type: application/json"}, "Content-Encoding: identity", body)
		both("JSON", "StreamInput", []string{"Content-Type: application/connect+json"}, "Connect-Accept-Encoding: gzip;q=0", envelope(body))
	}
	for _, req := range []proto.Message{
		&pb.SendInputRequest{}, &pb.SendInputRequest{Process: byTag("cat")}, &pb.SendInputRequest{Process: byTag("cat"), Input: &pb.ProcessInput{}},
		&pb.SendInputRequest{Process: byTag("cat"), Input: &pb.ProcessInput{Input: &pb.ProcessInput_Stdin{Stdin: []byte("hi")}}},
		&pb.SendInputRequest{Process: byTag("tty"), Input: &pb.ProcessInput{Input: &pb.ProcessInput_Stdin{Stdin: []byte("hi")}}},
	} {
		b := proctest.Value(proto.Marshal(req))(t)
		for _, body := range [][]byte{b, append(b[:len(b):len(b)], 0xff), append(b[:len(b):len(b)], b...), append(b[:len(b):len(b)], 0x7a, 1, 'x')} {
			both("binary", "SendInput", []string{"Content-Type: application/proto"}, "Content-Encoding: identity", body)
		}
	}
	start, data := envelope([]byte(`{"start":{"process":{"tag":"cat"}}}`)), envelope([]byte(`{"data":{"input":{"stdin":"aGk="}}}`))
	for what, body := range map[string][]byte{
		"a whole call":              joined(start, data, data, envelope([]byte(`{"keepalive":{}}`)), data),
		"data for nobody":           data,
		"nothing":                   nil,
		"start alone":               start,
		"two starts":                joined(start, start, data),
		"an unknown process":        joined(envelope([]byte(`{"start":{"process":{"tag":"none"}}}`)), data),
		"input for a terminal":      joined(start, envelope([]byte(`{"data":{"input":{"pty":"aGk="}}}`))),
		"a message that is no JSON": joined(start, envelope([]byte(`{`))),
	} {
		both(what, "StreamInput", []string{"Content-Type: application/connect+json"}, "Connect-Accept-Encoding: gzip;q=0", body)
	}
}

func joined(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
