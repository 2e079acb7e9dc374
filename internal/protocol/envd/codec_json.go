package envd

import (
	"bytes"
	"errors"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	pb "github.com/tend-run/tend/internal/gen/envd/process"
	"github.com/tend-run/tend/internal/protocol"
)

// jsonCodec is Connect's JSON codec with a short cut for input messages. All
// E2B SDKs send input as JSON, and protojson takes longer over the base64 text
// than all the rest of a call.
type jsonCodec struct{ name string }

func (c jsonCodec) Name() string { return c.name }

func (c jsonCodec) Marshal(m any) ([]byte, error) { return c.MarshalAppend(nil, m) }

func (c jsonCodec) MarshalAppend(b []byte, m any) ([]byte, error) {
	msg, ok := m.(proto.Message)
	if !ok {
		return nil, errNoMessage
	}
	return protojson.MarshalOptions{}.MarshalAppend(b, msg)
}

func (c jsonCodec) Unmarshal(b []byte, m any) error {
	switch req := m.(type) {
	case *pb.SendInputRequest:
		p := inputParser{b: b}
		if p.sendInput(req) {
			return nil
		}
		req.Reset()
	case *pb.StreamInputRequest:
		p := inputParser{b: b}
		if p.streamInput(req) {
			return nil
		}
		req.Reset()
	}
	msg, ok := m.(proto.Message)
	if !ok {
		return errNoMessage
	}
	if len(b) == 0 {
		return errors.New("zero-length payload is not a valid JSON object")
	}
	if err := protocol.CheckJSON(b); err != nil {
		return err
	}
	if err := unmarshalJSON.Unmarshal(b, msg); err != nil {
		// protojson quotes the value that it does not like, of any length.
		return errors.New(clipped(err.Error()))
	}
	return nil
}

// maxQuoted bounds what of a client's text is quoted in an error, in bytes.
const maxQuoted = 512

// clipped cuts text to a length fit for an error.
func clipped(text string) string {
	if len(text) <= maxQuoted {
		return text
	}
	return strings.ToValidUTF8(text[:maxQuoted], "") + "…"
}

var errNoMessage = errors.New("not a protobuf message")

// inputParser reads the input messages in the form every client writes them.
// Each method reports false for anything else (escapes, unknown or repeated
// fields, nulls), which protojson then judges.
type inputParser struct {
	b  []byte
	at int
	// payload, if set, is where the input is decoded to; it grows at need.
	payload *[]byte
}

func (p *inputParser) sendInput(req *pb.SendInputRequest) bool {
	ok := p.object(func(key string) bool {
		switch {
		case key == "process" && req.Process == nil:
			req.Process = &pb.ProcessSelector{}
			return p.selector(req.Process)
		case key == "input" && req.Input == nil:
			req.Input = &pb.ProcessInput{}
			return p.input(req.Input)
		}
		return false
	})
	return ok && p.end()
}

func (p *inputParser) streamInput(req *pb.StreamInputRequest) bool {
	ok := p.object(func(key string) bool {
		if req.Event != nil {
			return false
		}
		switch key {
		case "start":
			start := &pb.StreamInputRequest_StartEvent{}
			req.Event = &pb.StreamInputRequest_Start{Start: start}
			return p.object(func(key string) bool {
				if key != "process" || start.Process != nil {
					return false
				}
				start.Process = &pb.ProcessSelector{}
				return p.selector(start.Process)
			})
		case "data":
			data := &pb.StreamInputRequest_DataEvent{}
			req.Event = &pb.StreamInputRequest_Data{Data: data}
			return p.object(func(key string) bool {
				if key != "input" || data.Input != nil {
					return false
				}
				data.Input = &pb.ProcessInput{}
				return p.input(data.Input)
			})
		}
		return false
	})
	return ok && p.end()
}

func (p *inputParser) selector(s *pb.ProcessSelector) bool {
	return p.object(func(key string) bool {
		if s.Selector != nil {
			return false
		}
		switch key {
		case "pid":
			n, ok := p.number()
			s.Selector = &pb.ProcessSelector_Pid{Pid: n}
			return ok
		case "tag":
			text, ok := p.text()
			s.Selector = &pb.ProcessSelector_Tag{Tag: string(text)}
			return ok && utf8.Valid(text)
		}
		return false
	})
}

func (p *inputParser) input(in *pb.ProcessInput) bool {
	return p.object(func(key string) bool {
		if in.Input != nil || key != "stdin" && key != "pty" {
			return false
		}
		text, ok := p.base64()
		if !ok || len(text)%4 != 0 {
			return false
		}
		data := p.room(base64Std.DecodedLen(len(text)))
		n, err := base64Std.Decode(data, text)
		if key == "stdin" {
			in.Input = &pb.ProcessInput_Stdin{Stdin: data[:n]}
		} else {
			in.Input = &pb.ProcessInput_Pty{Pty: data[:n]}
		}
		return err == nil
	})
}

func (p *inputParser) room(n int) []byte {
	if p.payload == nil {
		return make([]byte, n)
	}
	if cap(*p.payload) < n {
		*p.payload = make([]byte, max(n, 4<<10))
	}
	return (*p.payload)[:n]
}

// object reads {"key": value, …}; field reads the value of each key.
func (p *inputParser) object(field func(key string) bool) bool {
	if !p.accept('{') {
		return false
	}
	if p.accept('}') {
		return true
	}
	for {
		p.space()
		key, ok := p.text()
		if !ok || !p.accept(':') {
			return false
		}
		p.space()
		if !field(string(key)) {
			return false
		}
		if p.accept('}') {
			return true
		}
		if !p.accept(',') {
			return false
		}
	}
}

// text reads a string without escapes and without control characters.
func (p *inputParser) text() ([]byte, bool) {
	if p.at >= len(p.b) || p.b[p.at] != '"' {
		return nil, false
	}
	start := p.at + 1
	end := plainEnd(p.b, start)
	if end >= len(p.b) || p.b[end] != '"' {
		return nil, false
	}
	p.at = end + 1
	return p.b[start:end], true
}

// base64 reads a string that holds base64, whose decoder refuses what text
// would: searching for the quote alone is many times faster, and nearly all of
// a message is this.
func (p *inputParser) base64() ([]byte, bool) {
	if p.at >= len(p.b) || p.b[p.at] != '"' {
		return nil, false
	}
	start := p.at + 1
	n := bytes.IndexByte(p.b[start:], '"')
	if n < 0 {
		return nil, false
	}
	p.at = start + n + 1
	return p.b[start : start+n], true
}

// plainEnd returns where the run of plain characters from i on ends.
func plainEnd(b []byte, i int) int {
	for i < len(b) && b[i] != '"' && b[i] != '\\' && b[i] >= 0x20 {
		i++
	}
	return i
}

// number reads an unsigned 32-bit integer without sign, point or exponent.
func (p *inputParser) number() (uint32, bool) {
	start, n := p.at, uint64(0)
	for p.at < len(p.b) && p.b[p.at] >= '0' && p.b[p.at] <= '9' && p.at-start < 11 {
		n = n*10 + uint64(p.b[p.at]-'0')
		p.at++
	}
	digits := p.at - start
	if digits == 0 || n > 1<<32-1 || digits > 1 && p.b[start] == '0' {
		return 0, false
	}
	return uint32(n), true
}

func (p *inputParser) accept(c byte) bool {
	p.space()
	if p.at < len(p.b) && p.b[p.at] == c {
		p.at++
		return true
	}
	return false
}

func (p *inputParser) space() {
	for p.at < len(p.b) && (p.b[p.at] == ' ' || p.b[p.at] == '\t' || p.b[p.at] == '\n' || p.b[p.at] == '\r') {
		p.at++
	}
}

func (p *inputParser) end() bool {
	p.space()
	return p.at == len(p.b)
}
