package envd_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

// openInput sends the head of a StreamInput and some of its body, and leaves the
// request there.
func (s *server) openInput(part []byte, headers ...string) *conn {
	s.t.Helper()
	c := s.dial()
	head := "POST /process.Process/StreamInput HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/connect+json\r\nTransfer-Encoding: chunked\r\n"
	for _, h := range headers {
		head += h + "\r\n"
	}
	proctest.Value(fmt.Fprintf(c, "%s\r\n%x\r\n%s\r\n", head, len(part), part))(s.t)
	return c
}

// answer reads the whole answer.
func (c *conn) answer() string {
	c.t.Helper()
	b := proctest.Value(io.ReadAll(c.response().Body))(c.t)
	return string(b)
}

// TestStreamInputAnswersClientsThatSendNoMore: the client continues holding the
// request open, and is told all the same.
func TestStreamInputAnswersClientsThatSendNoMore(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	cat := s.stream("Start", `{"process":{"cmd":"cat"},"stdin":true,"tag":"cat"}`).started()
	start := envelope([]byte(`{"start":{"process":{"tag":"cat"}}}`))
	for name, tc := range map[string]struct {
		part    []byte
		headers []string
		want    string
	}{
		"an error comes at once":                     {joined(start, envelope([]byte(`{"data":{}}`))), nil, "unimplemented"},
		"wrong flags are told at once":               {joined(start, []byte{9, 0, 0, 0, 0}), nil, "flags 0x09"},
		"the deadline passes between two messages":   {start, []string{"Connect-Timeout-Ms: 50"}, "deadline_exceeded"},
		"the deadline passes within an envelope":     {joined(start, []byte{0, 0}), []string{"Connect-Timeout-Ms: 50"}, "deadline_exceeded"},
		"the deadline passes within a message":       {joined(start, []byte{0, 0, 0, 9, 9, '{'}), []string{"Connect-Timeout-Ms: 50"}, "deadline_exceeded"},
		"the deadline passes within a large message": {joined(start, []byte{0, 0, 0xff, 0xff, 0xff, '{'}), []string{"Connect-Timeout-Ms: 50"}, "deadline_exceeded"},
	} {
		if got := s.openInput(tc.part, tc.headers...).answer(); !strings.Contains(got, tc.want) {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
	// The connection of a call that kept its deadline serves the next request.
	c := s.dial()
	for range 2 {
		c.send("POST", "/process.Process/StreamInput", []string{"Content-Type: application/connect+json", "Connect-Timeout-Ms: 60000"}, start)
		if got := c.answer(); strings.Contains(got, "error") {
			t.Errorf("a call in time: %q", got)
		}
	}
	s.call("CloseStdin", "{"+sel(cat.pid)+"}")
	cat.rest()
}

// TestATooLargeMessageIsToldToAClientThatSendsItWhole: most clients read the
// answer only when all is sent.
func TestATooLargeMessageIsToldToAClientThatSendsItWhole(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	const size = 20 << 20
	body := append(binary.BigEndian.AppendUint32([]byte{0}, size), make([]byte, size)...)
	c := s.dial()
	c.send("POST", "/process.Process/StreamInput", []string{"Content-Type: application/connect+json"}, body)
	if got, want := c.answer(), "message size 20971520 is larger than configured max 16777216"; !strings.Contains(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestErrorsDoNotRepeatWhatTheClientSent: not at any length, at least; a gRPC
// client gets them in a header.
func TestErrorsDoNotRepeatWhatTheClientSent(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	long := strings.Repeat("x", 1<<20)
	for name, body := range map[string]string{
		"a tag":                   `{"process":{"tag":"` + long + `"},"input":{"stdin":"aGk="}}`,
		"input that is no base64": `{"process":{"tag":"a"},"input":{"stdin":"?` + long + `"}}`,
	} {
		if _, got := s.call("SendInput", body); len(got) > 2000 || !strings.Contains(got, "xxx…") {
			t.Errorf("%s: the error has %d bytes: %.100q", name, len(got), got)
		}
	}
}
