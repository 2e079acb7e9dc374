//go:build linux

package main

import (
	"bufio"
	"bytes"
	"testing"

	envd "github.com/tend-run/tend/internal/gen/envd/process"
	"github.com/tend-run/tend/internal/support/proctest"
)

func TestPieceCountsTheBytesOfAnEvent(t *testing.T) {
	t.Parallel()
	data := func(d *envd.ProcessEvent_DataEvent) *envd.StartResponse {
		return &envd.StartResponse{Event: &envd.ProcessEvent{Event: &envd.ProcessEvent_Data{Data: d}}}
	}
	stdout := func(n int) *envd.StartResponse {
		return data(&envd.ProcessEvent_DataEvent{Output: &envd.ProcessEvent_DataEvent_Stdout{Stdout: make([]byte, n)}})
	}
	tests := []struct {
		name string
		msg  *envd.StartResponse
		want int // -1: no output
	}{
		{"one byte", stdout(1), 1},
		{"two bytes", stdout(2), 2},
		{"three bytes, no padding", stdout(3), 3},
		{"the largest that is kept whole", stdout(1400), 1400},
		{"of which only the ends are kept", stdout(100_000), 100_000},
		{"of which only the ends are kept, padded", stdout(100_001), 100_001},
		{"a terminal's", data(&envd.ProcessEvent_DataEvent{Output: &envd.ProcessEvent_DataEvent_Pty{Pty: make([]byte, 5000)}}), 5000},
		{"stderr", data(&envd.ProcessEvent_DataEvent{Output: &envd.ProcessEvent_DataEvent_Stderr{Stderr: make([]byte, 70)}}), 70},
		{"an end", &envd.StartResponse{Event: &envd.ProcessEvent{Event: &envd.ProcessEvent_End{End: &envd.ProcessEvent_EndEvent{Exited: true, Status: "exit status 0"}}}}, -1},
		{"a keepalive", &envd.StartResponse{Event: &envd.ProcessEvent{Event: &envd.ProcessEvent_Keepalive{Keepalive: &envd.ProcessEvent_KeepAlive{}}}}, -1},
	}
	for _, codec := range []codec{binaryCodec(), jsonCodec()} {
		for _, test := range tests {
			t.Run(codec.unary+" "+test.name, func(t *testing.T) {
				t.Parallel()
				m := proctest.Value(codec.marshal(test.msg))(t)
				s := &frames{r: bufio.NewReader(bytes.NewReader(envelope(nil, m)))}
				var f frame
				s.next(&f)
				got, ok := codec.piece(&f)
				if !ok {
					got = -1
				}
				if got != test.want {
					t.Errorf("piece is %d, want %d; frame %q … %q", got, test.want, f.head, f.tail)
				}
			})
		}
	}
}
