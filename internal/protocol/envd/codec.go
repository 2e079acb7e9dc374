package envd

import (
	"encoding/binary"
	"encoding/json"
	"strconv"

	"connectrpc.com/connect"
	"github.com/segmentio/asm/base64"

	"github.com/tend-run/tend/process"
)

// codec writes the events of Start and Connect in one wire form. Both
// responses have the same shape (field 1 is the event), so one encoder serves
// both. It is written by hand because a stream of output is nothing but this:
// protojson would copy each byte four times.
type codec uint8

const (
	// codecJSON: Connect envelopes with protojson text.
	codecJSON codec = iota + 1
	// codecProto: Connect envelopes with binary protobuf.
	codecProto
	// codecLines: newline-delimited JSON without envelopes, the answer to a
	// stream method that is called with plain application/json.
	codecLines
)

// Envelope flags of the Connect streaming protocol.
const (
	envelopeSize        = 5
	flagCompressed      = 0x01
	flagEndStream       = 0x02
	flagReserved   byte = ^byte(flagCompressed | flagEndStream)
)

func (c codec) contentType() string {
	switch c {
	case codecProto:
		return "application/connect+proto"
	case codecLines:
		return "application/json"
	}
	return "application/connect+json"
}

var (
	jsonData = [4]string{
		process.Stdout: `{"event":{"data":{"stdout":"`,
		process.Stderr: `{"event":{"data":{"stderr":"`,
		process.PTY:    `{"event":{"data":{"pty":"`,
	}
	base64Std = base64.StdEncoding
)

const jsonDataTail = `"}}}`

// maxDataOverhead bounds what a data event adds around its payload: envelope,
// the longest prefix, the tail, and a newline.
const maxDataOverhead = envelopeSize + len(`{"event":{"data":{"stdout":"`) + len(jsonDataTail) + 1

// payloadLen is the length of n bytes of output in this codec.
func (c codec) payloadLen(n int) int {
	if c == codecProto {
		return n
	}
	return (n + 2) / 3 * 4
}

// appendData appends a whole data event.
func (c codec) appendData(b []byte, s process.Stream, data []byte) []byte {
	b = c.appendDataHead(b, s, len(data))
	if c == codecProto {
		return append(b, data...)
	}
	at, n := len(b), c.payloadLen(len(data))
	b = append(b, make([]byte, n)...) // the compiler grows b in place: no slice is made
	base64Std.Encode(b[at:], data)
	return c.appendDataTail(b)
}

// appendDataHead appends all that precedes the payload of a data event with n
// bytes of output.
func (c codec) appendDataHead(b []byte, s process.Stream, n int) []byte {
	if c == codecProto {
		field := 1 + sizeVarint(n) + n         // DataEvent.stdout/stderr/pty
		event := 1 + sizeVarint(field) + field // ProcessEvent.data
		size := 1 + sizeVarint(event) + event  // Start/ConnectResponse.event
		b = appendEnvelope(b, 0, size)
		b = binary.AppendUvarint(append(b, 1<<3|2), uint64(event))
		b = binary.AppendUvarint(append(b, 2<<3|2), uint64(field))
		return binary.AppendUvarint(append(b, byte(s)<<3|2), uint64(n)) // field numbers equal process.Stream: stdout 1, stderr 2, pty 3
	}
	head := jsonData[s]
	if c == codecJSON {
		b = appendEnvelope(b, 0, len(head)+c.payloadLen(n)+len(jsonDataTail))
	}
	return append(b, head...)
}

func (c codec) appendDataTail(b []byte) []byte {
	switch c {
	case codecJSON:
		return append(b, jsonDataTail...)
	case codecLines:
		return append(append(b, jsonDataTail...), '\n')
	}
	return b
}

// appendStart appends the start event.
func (c codec) appendStart(b []byte, pid int) []byte {
	if c == codecProto {
		var start []byte
		if pid != 0 {
			start = binary.AppendUvarint([]byte{1<<3 | 0}, uint64(uint32(pid)))
		}
		return appendProtoEvent(b, 1, start)
	}
	if pid == 0 {
		return c.appendJSON(b, `{"event":{"start":{}}}`)
	}
	return c.appendJSON(b, `{"event":{"start":{"pid":`+strconv.FormatUint(uint64(uint32(pid)), 10)+`}}}`)
}

// appendKeepalive appends a keepalive event.
func (c codec) appendKeepalive(b []byte) []byte {
	if c == codecProto {
		return appendProtoEvent(b, 4, nil)
	}
	return c.appendJSON(b, `{"event":{"keepalive":{}}}`)
}

// end is the content of an end event (envd.md §3.4).
type end struct {
	ExitCode int32  `json:"exitCode,omitempty"`
	Exited   bool   `json:"exited,omitempty"`
	Status   string `json:"status,omitempty"`
	Error    string `json:"error,omitempty"` // absent for exit status 0
}

// endOf maps an exit as the reference does: the code is -1 and exited false
// for a death by signal; the error repeats the status for all but success. A
// process whose end nobody witnessed is neither: -1, not exited, and the
// status says so.
func endOf(x *process.Exit) end {
	e := end{Status: x.String()}
	if x.Signal != 0 || x.Lost() {
		e.ExitCode = -1
	} else {
		e.ExitCode, e.Exited = int32(x.Code), true
	}
	if e.ExitCode != 0 {
		e.Error = e.Status
	}
	return e
}

// appendEnd appends the end event.
func (c codec) appendEnd(b []byte, x *process.Exit) []byte {
	e := endOf(x)
	if c == codecProto {
		var m []byte
		if e.ExitCode != 0 {
			m = binary.AppendUvarint(append(m, 1<<3|0), uint64(uint32(e.ExitCode<<1)^uint32(e.ExitCode>>31))) // sint32: zigzag
		}
		if e.Exited {
			m = append(m, 2<<3|0, 1)
		}
		m = appendProtoString(m, 3, e.Status)
		if e.Error != "" {
			m = appendProtoString(m, 4, e.Error)
		}
		return appendProtoEvent(b, 3, m)
	}
	text, err := json.Marshal(e)
	if err != nil { // impossible: two strings, a number and a bool
		text = []byte(`{}`)
	}
	return c.appendJSON(b, `{"event":{"end":`+string(text)+`}}`)
}

type wireError struct {
	Code    string `json:"code"`
	Message string `json:"message,omitempty"`
}

// appendTrailer appends what ends the response: the end-of-stream envelope,
// or in codecLines the error as a last line, if there is one.
func (c codec) appendTrailer(b []byte, e *connect.Error) []byte {
	text := []byte(`{}`)
	if e != nil {
		text = errorText(e)
	}
	if c == codecLines {
		if e == nil {
			return b
		}
		return append(append(b, text...), '\n')
	}
	return append(appendEnvelope(b, flagEndStream, len(text)), text...)
}

func errorText(e *connect.Error) []byte {
	text, err := json.Marshal(struct {
		Error wireError `json:"error"`
	}{wireError{Code: e.Code().String(), Message: e.Message()}})
	if err != nil { // impossible: two strings
		return []byte(`{"error":{"code":"internal"}}`)
	}
	return text
}

func (c codec) appendJSON(b []byte, text string) []byte {
	if c == codecLines {
		return append(append(b, text...), '\n')
	}
	return append(appendEnvelope(b, 0, len(text)), text...)
}

// appendProtoEvent appends an enveloped response whose event's oneof holds
// msg under the field number.
func appendProtoEvent(b []byte, field byte, msg []byte) []byte {
	event := 1 + sizeVarint(len(msg)) + len(msg)
	b = appendEnvelope(b, 0, 1+sizeVarint(event)+event)
	b = binary.AppendUvarint(append(b, 1<<3|2), uint64(event))
	b = binary.AppendUvarint(append(b, field<<3|2), uint64(len(msg)))
	return append(b, msg...)
}

func appendProtoString(b []byte, field byte, s string) []byte {
	return append(binary.AppendUvarint(append(b, field<<3|2), uint64(len(s))), s...)
}

func appendEnvelope(b []byte, flags byte, size int) []byte {
	return binary.BigEndian.AppendUint32(append(b, flags), uint32(size))
}

func sizeVarint(n int) int {
	size := 1
	for ; n >= 0x80; n >>= 7 {
		size++
	}
	return size
}
