//go:build linux

package main

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	envd "github.com/tend-run/tend/internal/gen/envd/process"
)

// codec is how messages of the envd face are written.
type codec struct {
	unary, stream string // content types
	marshal       func(proto.Message) ([]byte, error)
	unmarshal     func([]byte, proto.Message) error
	// piece returns how many bytes of output a frame carries, and false if it
	// is another event.
	piece func(f *frame) (int, bool)
}

func binaryCodec() codec {
	return codec{"application/proto", "application/connect+proto", proto.Marshal, proto.Unmarshal, binaryPiece}
}

func jsonCodec() codec {
	return codec{"application/json", "application/connect+json", protojson.Marshal, protojson.Unmarshal, jsonPiece}
}

// binaryPiece follows StartResponse.event(1).data(2).{stdout,stderr,pty}.
func binaryPiece(f *frame) (int, bool) {
	b, size := f.head, 0
	for _, want := range []protowire.Number{1, 2, 0} {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 || typ != protowire.BytesType || want != 0 && num != want {
			return 0, false
		}
		length, m := binary.Uvarint(b[n:])
		if m <= 0 {
			return 0, false
		}
		b, size = b[n+m:], int(length)
	}
	return size, true
}

// jsonPiece computes the length from the frame's, as the base64 is all of it
// but the fixed ends.
func jsonPiece(f *frame) (int, bool) {
	if !bytes.Contains(f.head, []byte(`"data":`)) {
		return 0, false
	}
	end := f.tail
	if len(end) == 0 {
		end = f.head
	}
	for _, name := range []string{`"stdout":"`, `"stderr":"`, `"pty":"`} {
		i := bytes.Index(f.head, []byte(name))
		if i < 0 {
			continue
		}
		closing := bytes.LastIndexByte(end, '"')
		if closing < 0 {
			return 0, false
		}
		chars := f.size - (i + len(name)) - (len(end) - closing)
		pad := 0
		for j := closing - 1; j >= 0 && end[j] == '='; j-- {
			pad++
		}
		return base64.StdEncoding.DecodedLen(chars) - pad, true
	}
	return 0, false
}

// start opens a Start stream and returns it behind its start event.
func (c codec) start(on *conn, req *envd.StartRequest) (*frames, uint32) {
	return c.open(on, "/process.Process/Start", "", req)
}

// connect opens a Connect stream and returns it behind its start event.
func (c codec) connect(on *conn, pid uint32, header string) *frames {
	s, _ := c.open(on, "/process.Process/Connect", header, &envd.ConnectRequest{Process: byPID(pid)})
	return s
}

func (c codec) open(on *conn, path, header string, req proto.Message) (*frames, uint32) {
	s := on.streamWith(path, "Content-Type: "+c.stream+"\r\n"+header, must(c.marshal(req)))
	var f frame
	pid := c.event(s, &f).GetStart().GetPid()
	if pid == 0 {
		fail("%s: the first event is not start: %q", path, f.head)
	}
	return s, pid
}

// event reads a frame whose head is all of it.
func (c codec) event(s *frames, f *frame) *envd.ProcessEvent {
	s.next(f)
	return c.decode(f)
}

func (c codec) decode(f *frame) *envd.ProcessEvent {
	var m envd.StartResponse
	check(c.unmarshal(f.head, &m))
	return m.GetEvent()
}

// drain reads to the end event, which must say success, and returns how many
// bytes of output came.
func (c codec) drain(s *frames) (total int64) {
	var f frame
	for {
		s.next(&f)
		if n, ok := c.piece(&f); ok {
			total += int64(n)
			continue
		}
		if end := c.decode(&f).GetEnd(); end != nil {
			if end.GetStatus() != "exit status 0" {
				fail("the workload ended with %q", end.GetStatus())
			}
			return total
		}
	}
}

// text collects small output up to the end event.
func (c codec) text(s *frames) string {
	var f frame
	var out []byte
	for {
		ev := c.event(s, &f)
		out = append(out, ev.GetData().GetStdout()...)
		if ev.GetEnd() != nil {
			return string(out)
		}
	}
}

func byPID(pid uint32) *envd.ProcessSelector {
	return &envd.ProcessSelector{Selector: &envd.ProcessSelector_Pid{Pid: pid}}
}

// startJSON is the Start message as the SDKs write it.
func startJSON(argv ...string) []byte {
	type config struct {
		Cmd  string   `json:"cmd"`
		Args []string `json:"args,omitempty"`
	}
	return must(json.Marshal(map[string]any{"process": config{argv[0], argv[1:]}, "stdin": false}))
}

// parseCount reads what wc printed.
func parseCount(text string) int64 {
	return must(strconv.ParseInt(strings.TrimSpace(text), 10, 64))
}

// expect checks a count of bytes.
func expect(got, want int64) {
	if got != want {
		fail("%d bytes came of %d", got, want)
	}
}
