//go:build linux

package main

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strconv"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	envd "github.com/tend-run/tend/gen/envd/process"
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
func (c codec) start(on *conn, req *envd.StartRequest) (*frames, uint32, error) {
	body, err := c.marshal(req)
	if err != nil {
		return nil, 0, err
	}
	return c.open(on, "/process.Process/Start", "", body)
}

// connect opens a Connect stream and returns it behind its start event.
func (c codec) connect(on *conn, pid uint32, header string) (*frames, error) {
	body, err := c.marshal(&envd.ConnectRequest{Process: byPID(pid)})
	if err != nil {
		return nil, err
	}
	s, _, err := c.open(on, "/process.Process/Connect", header, body)
	return s, err
}

func (c codec) open(on *conn, path, header string, body []byte) (*frames, uint32, error) {
	s, err := on.streamWith(path, "Content-Type: "+c.stream+"\r\n"+header, body)
	if err != nil {
		return nil, 0, err
	}
	var f frame
	if err := s.next(&f); err != nil {
		return nil, 0, unexpected(err)
	}
	if err := f.check(); err != nil {
		return nil, 0, err
	}
	var first envd.StartResponse
	if err := c.unmarshal(f.head, &first); err != nil {
		return nil, 0, err
	}
	pid := first.GetEvent().GetStart().GetPid()
	if pid == 0 {
		return nil, 0, fmt.Errorf("%s: the first event is not start: %q", path, f.head)
	}
	return s, pid, nil
}

// drain reads to the end event, which must say success, and returns how many
// bytes of output came.
func (c codec) drain(s *frames) (total int64, err error) {
	var f frame
	for {
		if err := s.next(&f); err != nil {
			return total, unexpected(err)
		}
		if n, ok := c.piece(&f); ok {
			total += int64(n)
			continue
		}
		if err := f.check(); err != nil {
			return total, err
		}
		var m envd.StartResponse
		if err := c.unmarshal(f.head, &m); err != nil {
			return total, err
		}
		if end := m.GetEvent().GetEnd(); end != nil {
			if end.GetStatus() != "exit status 0" {
				return total, fmt.Errorf("the workload ended with %q", end.GetStatus())
			}
			return total, nil
		}
	}
}

// text collects small output up to the end event.
func (c codec) text(s *frames) (string, error) {
	var f frame
	var out []byte
	for {
		if err := s.next(&f); err != nil {
			return "", unexpected(err)
		}
		if err := f.check(); err != nil {
			return "", err
		}
		var m envd.StartResponse
		if err := c.unmarshal(f.head, &m); err != nil {
			return "", err
		}
		out = append(out, m.GetEvent().GetData().GetStdout()...)
		if m.GetEvent().GetEnd() != nil {
			return string(out), nil
		}
	}
}

func byPID(pid uint32) *envd.ProcessSelector {
	return &envd.ProcessSelector{Selector: &envd.ProcessSelector_Pid{Pid: pid}}
}

// startJSON is the Start message as the SDKs write it.
func startJSON(argv ...string) ([]byte, error) {
	type config struct {
		Cmd  string   `json:"cmd"`
		Args []string `json:"args,omitempty"`
	}
	return json.Marshal(map[string]any{"process": config{argv[0], argv[1:]}, "stdin": false})
}

// parseCount reads what wc printed.
func parseCount(text string) (int64, error) {
	return strconv.ParseInt(string(bytes.TrimSpace([]byte(text))), 10, 64)
}

// expect checks a count of bytes.
func expect(got, want int64) error {
	if got != want {
		return fmt.Errorf("%d bytes came of %d", got, want)
	}
	return nil
}
