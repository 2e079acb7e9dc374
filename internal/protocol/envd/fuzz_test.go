package envd

import (
	"errors"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	pb "github.com/tend-run/tend/internal/gen/envd/process"
	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/process"
)

// FuzzInputParser: whatever the short cut accepts, protojson reads the same.
func FuzzInputParser(f *testing.F) {
	for _, s := range []string{
		`{"process":{"pid":12},"input":{"stdin":"aGVsbG8="}}`, ` { "input":{"pty":""} , "process":{"tag":"x y"}} `,
		`{"start":{"process":{"pid":4294967295}}}`, `{"data":{"input":{"stdin":"/+8="}}}`, `{"data":{}}`, `{"process":{"pid":01}}`,
		`{"process":{"tag":"\u0041"}}`, `{"process":{},"process":{}}`, `{"input":{"stdin":"a"}}`, `{}`, `{"input":{"stdin":"AB=="}} x`,
		"{\"process\":{\"tag\":\"\xff\"}}", `{"input":{"stdin":"QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWZnaGlqa2xtbm9wcXJzdHV2d3h5ejAxMjM0NTY3ODk="}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var fast, slow pb.SendInputRequest
		if p := (inputParser{b: b, payload: new([]byte)}); p.sendInput(&fast) {
			if err := unmarshalJSON.Unmarshal(b, &slow); err != nil || !proto.Equal(&fast, &slow) {
				t.Errorf("%q: the short cut reads %v, protojson %v (%v)", b, &fast, &slow, err)
			}
		}
		var fastStream, slowStream pb.StreamInputRequest
		if p := (inputParser{b: b}); p.streamInput(&fastStream) {
			if err := unmarshalJSON.Unmarshal(b, &slowStream); err != nil || !proto.Equal(&fastStream, &slowStream) {
				t.Errorf("%q: the short cut reads %v, protojson %v (%v)", b, &fastStream, &slowStream, err)
			}
		}
	})
}

// FuzzProtoInput: what is read without a copy is what protobuf reads.
func FuzzProtoInput(f *testing.F) {
	stdin := &pb.ProcessInput{Input: &pb.ProcessInput_Stdin{Stdin: []byte("hello")}}
	for _, m := range []proto.Message{
		&pb.SendInputRequest{Process: &pb.ProcessSelector{Selector: &pb.ProcessSelector_Pid{Pid: 12}}, Input: stdin},
		&pb.StreamInputRequest{Event: &pb.StreamInputRequest_Data{Data: &pb.StreamInputRequest_DataEvent{Input: stdin}}},
		&pb.StreamInputRequest{Event: &pb.StreamInputRequest_Keepalive{}},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(append(b, b...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var buffers inputBuffers
		var fast, slow pb.SendInputRequest
		if buffers.parseSendInput(codecProto, b, &fast) {
			if err := proto.Unmarshal(b, &slow); err != nil || !proto.Equal(&fast, &slow) {
				t.Errorf("%q: the short cut reads %v, protobuf %v (%v)", b, &fast, &slow, err)
			}
		}
		var fastStream, slowStream pb.StreamInputRequest
		if buffers.parseStreamInput(codecProto, b, &fastStream) {
			if err := proto.Unmarshal(b, &slowStream); err != nil || !proto.Equal(&fastStream, &slowStream) {
				t.Errorf("%q: the short cut reads %v, protobuf %v (%v)", b, &fastStream, &slowStream, err)
			}
		}
	})
}

// FuzzCodec: the events written by hand are what protobuf reads.
func FuzzCodec(f *testing.F) {
	f.Add([]byte("hello"), uint8(1), 12, 3, 0)
	f.Add([]byte{0xff, 0, 1}, uint8(3), 0, -1, 9)
	f.Add(make([]byte, 70000), uint8(2), 1<<31, 255, 11)
	f.Fuzz(func(t *testing.T, data []byte, stream uint8, pid, code, sig int) {
		s := process.Stream(1 + stream%3)
		pid &= 1<<31 - 1
		exit := &process.Exit{Code: int(int32(code)), Signal: sig & 63}
		for _, c := range []codec{codecJSON, codecProto} {
			b := c.appendStart(nil, pid)
			b = c.appendData(b, s, data)
			b = c.appendEnd(b, exit)
			b = c.appendKeepalive(b)
			var evs []*pb.ProcessEvent
			for len(b) > 0 {
				n := envelopeSize + int(b[1])<<24 + int(b[2])<<16 + int(b[3])<<8 + int(b[4])
				var res pb.StartResponse
				if err := unmarshal(c, b[envelopeSize:n], &res); err != nil {
					t.Fatalf("codec %d: %q: %v", c, b[:n], err)
				}
				evs, b = append(evs, res.GetEvent()), b[n:]
			}
			if len(evs) != 4 || evs[0].GetStart() == nil || int(evs[0].GetStart().GetPid()) != pid || evs[3].GetKeepalive() == nil {
				t.Fatalf("codec %d: events %v", c, evs)
			}
			d := evs[1].GetData()
			got := map[process.Stream][]byte{process.Stdout: d.GetStdout(), process.Stderr: d.GetStderr(), process.PTY: d.GetPty()}[s]
			if string(got) != string(data) {
				t.Errorf("codec %d: %d bytes came back as %d others", c, len(data), len(got))
			}
			want, e := endOf(exit), evs[2].GetEnd()
			if e.GetExitCode() != want.ExitCode || e.GetExited() != want.Exited || e.GetStatus() != want.Status || e.GetError() != want.Error || (e.Error == nil) != (want.Error == "") {
				t.Errorf("codec %d: end %v, want %+v", c, e, want)
			}
		}
	})
}

// FuzzOptions: no header makes the parsers panic or leave their bounds.
func FuzzOptions(f *testing.F) {
	f.Add("0")
	f.Add("stdout=1,stderr=2")
	f.Add("-1")
	f.Add("1000000000000000000")
	f.Add("tree ")
	f.Add("sigusr1")
	f.Add("pty=9223372036854775807,pty=-0, stdout = 1")
	f.Add("stdin=0")
	refused := func(t *testing.T, v string, err error) {
		var e *connect.Error
		if err != nil && (!errors.As(err, &e) || e.Code() != connect.CodeInvalidArgument || !strings.Contains(e.Message(), "Tend-")) {
			t.Errorf("%q: %v", v, err)
		}
	}
	f.Fuzz(func(t *testing.T, v string) {
		h := map[string][]string{"Keepalive-Ping-Interval": {v}, headerTimeout: {v}, headerKillScope: {v}}
		if d := protocol.KeepaliveOf(h); d < time.Second || d > 24*time.Hour {
			t.Errorf("keepalive %q is %v", v, d)
		}
		if d, ok := timeoutOf(h); ok && d < 0 {
			t.Errorf("timeout %q is %v", v, d)
		}
		from, err := fromOf(v, [4]int64{})
		if refused(t, v, err); err == nil {
			for _, n := range from {
				if n < 0 {
					t.Errorf("offset %q is %v", v, from)
				}
			}
		}
		n, err := signalOf(v)
		if refused(t, v, err); err == nil && (n < 1 || n > 64) {
			t.Errorf("signal %q is %d", v, n)
		}
		scope, err := killScopeOf(h)
		if refused(t, v, err); err == nil && scope > process.ScopeGroup {
			t.Errorf("scope %q is %d", v, scope)
		}
	})
}
