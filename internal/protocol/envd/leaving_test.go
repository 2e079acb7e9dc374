package envd_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/protocol/envd"
	"github.com/tend-run/tend/internal/support/proctest"
)

// TestHalfARequestIsEnded: the client continues holding the connection, and the
// rest of the body never comes.
func TestHalfARequestIsEnded(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *envd.Config) { c.BodyTimeout = 50 * time.Millisecond })
	whole := envelope([]byte(`{"process":{"cmd":"true"}}`))
	for _, tc := range []struct{ method, kind, part string }{
		{"Start", "application/connect+json", string(whole[:9])},
		{"Start", "application/json", `{"process":`},
		{"Start", "application/connect+proto", "\x00"},
		{"Start", "application/grpc-web+proto", "\x00\x00"},
		{"Connect", "application/connect+json", string(whole[:3])},
		{"SendInput", "application/json", `{"process":`},
		{"SendInput", "application/proto", "\x0a"},
		{"List", "application/json", "{"},
		{"SendSignal", "application/json", ""},
		{"NoSuchMethod", "application/json", "{"},
	} {
		t.Run(tc.method+" in "+tc.kind, func(t *testing.T) {
			t.Parallel()
			c := s.dial()
			fmt.Fprintf(c, "POST /process.Process/%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nContent-Length: 100\r\n\r\n%s", tc.method, tc.kind, tc.part)
			b, err := io.ReadAll(c)
			if err != nil && !strings.Contains(err.Error(), "reset") {
				t.Errorf("the connection was not ended: %v, after %q", err, b)
			}
			if bytes.Contains(b, []byte(`"start"`)) {
				t.Errorf("half a request was carried out: %q", b)
			}
		})
	}
}

// unread is a StreamInput whose input is more than may wait for the process
// with this tag.
func (s *server) unread(tag string, size int) (c *conn, sent <-chan struct{}) {
	s.t.Helper()
	c = s.openInput(envelope([]byte(`{"start":{"process":{"tag":"` + tag + `"}}}`)))
	piece := envelope([]byte(`{"data":{"input":{"stdin":"` + b64(strings.Repeat("x", 48<<10)) + `"}}}`))
	all := make(chan struct{})
	go func() { // ends with the connection at the latest
		defer close(all)
		for range size / (48 << 10) {
			if _, err := fmt.Fprintf(c, "%x\r\n%s\r\n", len(piece), piece); err != nil {
				return
			}
		}
		fmt.Fprint(c, "0\r\n\r\n")
	}()
	return c, all
}

// TestInputOfAClientThatLeftIsNotHeldForEver: the process never reads.
func TestInputOfAClientThatLeftIsNotHeldForEver(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *envd.Config) { c.AfterHangup = 50 * time.Millisecond })
	st := s.stream("Start", `{"process":{"cmd":"/bin/sleep","args":["1000"]},"stdin":true,"tag":"deaf"}`).started()
	proctest.Eventually(s.t, "the stream is on a connection that was taken over", func() bool { return s.conns.Load() == 0 })
	// A little more than the daemon takes in (1 MiB beside the pipe): a client
	// whose bytes still lie in its own kernel cannot be told from one that waits.
	c, sent := s.unread("deaf", 1<<20+192<<10)
	proctest.Eventually(s.t, "the request is served", func() bool { return s.conns.Load() == 1 })
	<-sent
	c.Close()
	proctest.Eventually(s.t, "the request of the client that left ends", func() bool { return s.conns.Load() == 0 })
	// Others may write, or close, at once.
	if status, text := s.call("CloseStdin", "{"+sel(st.pid)+"}"); status != 200 {
		t.Errorf("CloseStdin: %d %s", status, text)
	}
	s.call("SendSignal", "{"+sel(st.pid)+`,"signal":"SIGNAL_SIGKILL"}`)
	st.rest()
}

// TestInputOfAClientThatLeftIsDelivered: a process that reads a little later
// gets all that was sent.
func TestInputOfAClientThatLeftIsDelivered(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *envd.Config) { c.AfterHangup = patience })
	const pieces = 24
	gate := filepath.Join(t.TempDir(), "gate")
	line := fmt.Sprintf("while [ ! -e %s ]; do sleep 0.02; done; head -c %d | wc -c", gate, pieces*48<<10)
	st := s.stream("Start", sh(line, `"tag":"late"`)).started()
	c, sent := s.unread("late", pieces*48<<10)
	<-sent // the kernel has it
	c.Close()
	proctest.Must(t, os.WriteFile(gate, nil, 0o600))
	if got := strings.TrimSpace(st.rest().Stdout); got != fmt.Sprint(pieces*48<<10) {
		t.Errorf("%s bytes came; want %d", got, pieces*48<<10)
	}
}
