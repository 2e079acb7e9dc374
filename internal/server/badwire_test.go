package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/support/proctest"
)

// TestBadWireGetsAnErrorAndEndsNothing: what no client sends, in each protocol,
// to the methods of both APIs. Each request gets an answer that says no, and
// the server answers the next one.
func TestBadWireGetsAnErrorAndEndsNothing(t *testing.T) {
	s := serve(t, nil)
	frame := func(flags byte, size uint32, body string) string {
		return string(binary.BigEndian.AppendUint32([]byte{flags}, size)) + body
	}
	bodies := map[string]string{
		"a frame that says 4 GiB":                frame(0, 1<<32-1, "x"),
		"a frame above the limit":                frame(0, 64<<20, strings.Repeat("x", 1<<20)),
		"half a head":                            "\x00\x00",
		"half a frame":                           frame(0, 100, "half"),
		"a frame that is no message":             frame(0, 4, "\xff\xff\xff\xff"),
		"a compressed flag without compression":  frame(1, 4, "\x0a\x00\x0a\x00"),
		"unknown flags":                          frame(0x7c, 0, ""),
		"a trailer in place of a message":        frame(0x80, 14, "grpc-status: 0"),
		"an end of stream in place of a message": frame(2, 2, "{}"),
		"no frame at all":                        "GET / HTTP/1.1\r\n\r\n",
	}
	headers := map[string]http.Header{
		"as usual":                             {},
		"with a compression that nobody knows": {"Grpc-Encoding": {"zip"}, "Connect-Content-Encoding": {"zip"}},
		"with a huge timeout":                  {"Grpc-Timeout": {"99999999999999999999H"}, "Connect-Timeout-Ms": {"99999999999999999999"}},
		"with a negative timeout":              {"Grpc-Timeout": {"-1S"}, "Connect-Timeout-Ms": {"-1"}},
		"with keepalive 0":                     {"Keepalive-Ping-Interval": {"0"}},
		"with keepalive -1":                    {"Keepalive-Ping-Interval": {"-1"}},
		"with keepalive 10^18":                 {"Keepalive-Ping-Interval": {"1000000000000000000"}},
	}
	paths := []string{"/process.Process/Start", "/process.Process/Connect", "/process.Process/SendInput", "/process.Process/StreamInput",
		"/tend.v1.ProcessService/Start", "/tend.v1.ProcessService/Read", "/tend.v1.ProcessService/Write"}
	for _, kind := range []string{"application/grpc", "application/grpc+proto", "application/grpc+json", "application/grpc-web", "application/grpc-web-text",
		"application/connect+proto", "application/connect+json", "application/connect+zip", "text/html", ""} {
		client := &http.Client{Transport: &http.Transport{Protocols: new(http.Protocols), DisableKeepAlives: true}}
		p := client.Transport.(*http.Transport).Protocols
		p.SetUnencryptedHTTP2(strings.HasPrefix(kind, "application/grpc") && !strings.Contains(kind, "web"))
		p.SetHTTP1(!p.UnencryptedHTTP2())
		t.Run(fmt.Sprintf("content type %q", kind), func(t *testing.T) {
			defer client.CloseIdleConnections()
			for _, path := range paths {
				for bad, body := range bodies {
					for extra, header := range headers {
						ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
						req := proctest.Value(http.NewRequestWithContext(ctx, "POST", s.tcp+path, strings.NewReader(body)))(t)
						req.Header = header.Clone()
						req.Header.Set("Content-Type", kind)
						if p.UnencryptedHTTP2() {
							req.Header.Set("Te", "trailers")
						}
						res, err := client.Do(req)
						if err != nil {
							// A server that has said no may close before all is sent.
							if ctx.Err() != nil {
								t.Errorf("%s, %s %s: no answer: %v", path, bad, extra, err)
							}
							cancel()
							continue
						}
						text, _ := io.ReadAll(io.LimitReader(res.Body, 1<<20)) // cut is an answer, too
						if ctx.Err() != nil {
							t.Errorf("%s, %s %s: the answer does not end: %d %q", path, bad, extra, res.StatusCode, text)
						}
						status := res.Trailer.Get("Grpc-Status") + res.Header.Get("Grpc-Status")
						said := res.StatusCode != 200 || status != "" && status != "0" || bytes.Contains(text, []byte(`"error"`)) ||
							bytes.Contains(text, []byte("rpc-status: ")) && !bytes.Contains(text, []byte("rpc-status: 0"))
						// In gRPC-Web a trailer is the end: an empty stream, which is fine.
						empty := strings.HasSuffix(path, "/StreamInput") && strings.HasPrefix(bad, "a trailer")
						if !said && !empty && kind != "application/grpc-web-text" {
							t.Errorf("%s, %s %s: taken for good: %d %v %q", path, bad, extra, res.StatusCode, res.Trailer, text)
						}
						res.Body.Close()
						cancel()
					}
				}
			}
		})
	}
	res, err := http.Get(s.tcp + "/health")
	if err != nil || res.StatusCode != http.StatusNoContent {
		t.Fatalf("the server does not answer any more: %v", err)
	}
	res.Body.Close()
}
