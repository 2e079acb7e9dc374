package server

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/support/proctest"
)

// TestTheRestOfABodyIsNoRequest: what a handler left of a body must not be
// taken for the next request of the connection: a proxy in front would let
// one caller speak in the place of another.
func TestTheRestOfABodyIsNoRequest(t *testing.T) {
	s := serve(t, nil)
	host := strings.TrimPrefix(s.tcp, "http://")
	const hidden = "GET /-/hidden HTTP/1.1\r\nHost: hidden\r\n\r\n"
	frame := func(flags byte, size uint32) string {
		return string(binary.BigEndian.AppendUint32([]byte{flags}, size))
	}
	rests := map[string]string{}
	for name, body := range map[string]string{
		// Behind each head nothing but requests.
		"short, with unknown flags":           frame(0x7c, 3) + strings.Repeat(hidden, 100),
		"long, with unknown flags":            frame(0x7c, 3) + strings.Repeat(hidden, 30_000),
		"long, in too large a frame":          frame(0, 64<<20) + strings.Repeat(hidden, 30_000),
		"long, in a frame that is no message": frame(0, 4) + strings.Repeat(hidden, 30_000),
		"long, in one word":                   frame(0, 64<<20) + strings.Repeat("x", 1<<20),
	} {
		rests[name+", by length"] = fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
		rests[name+", by chunks"] = fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body)
	}
	for _, path := range []string{"/process.Process/Start", "/process.Process/SendInput", "/process.Process/StreamInput", "/process.Process/Connect",
		"/tend.v1.ProcessService/Read", "/tend.v1.ProcessService/Write", "/files?path=/tmp/x", "/files/compose", "/filesystem.Filesystem/Stat", "/init", "/boxes", "/nothing"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			for _, kind := range []string{"application/json", "application/proto", "application/connect+json", "application/connect+proto", "application/connect+zip", "application/grpc-web", "application/grpc", "multipart/form-data; boundary=x", "text/html"} {
				for name, rest := range rests {
					c := proctest.Value(net.Dial("tcp", host))(t)
					_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
					go func() { // the server may answer, and close, before it has all
						_, _ = fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: %s\r\n%s", path, host, kind, rest)
						_, _ = fmt.Fprintf(c, "GET /-/healthz HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", host)
					}()
					r := bufio.NewReader(c)
					var answers []int
					for {
						res, err := http.ReadResponse(r, nil)
						if err != nil {
							break
						}
						_, _ = io.Copy(io.Discard, res.Body)
						res.Body.Close()
						answers = append(answers, res.StatusCode)
					}
					c.Close()
					if len(answers) > 2 || len(answers) == 2 && answers[1] != http.StatusOK {
						t.Errorf("%s, body %s: answers %v to two requests", kind, name, answers)
					}
				}
			}
		})
	}
}
