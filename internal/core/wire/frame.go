package wire

import (
	"encoding/binary"
	"errors"
)

// MaxFrame bounds one frame in bytes: a spec (process.MaxSpecBytes) and room.
const MaxFrame = 24 << 20

// head is the size of a frame's number and operation.
const head = 9

// Body is what a frame carries.
type Body interface{ Append(*Enc) }

// AppendRequest appends a whole frame that asks for an operation. body nil: it
// has none.
func AppendRequest(b []byte, number uint64, op uint8, body Body) []byte {
	return appendFrame(b, number, op, body)
}

// AppendAnswer appends a whole frame with the answer to the request of this
// number; fds is how many descriptors travel with it. An Error as the body says
// that the request failed.
func AppendAnswer(b []byte, number uint64, fds int, body Body) []byte {
	kind := uint8(fds) << 1
	if _, failed := body.(*Error); failed {
		kind |= 1
	}
	return appendFrame(b, number, kind, body)
}

func appendFrame(b []byte, number uint64, kind uint8, body Body) []byte {
	start := len(b)
	e := Enc{B: b}
	e.U32(0)
	e.U64(number)
	e.U8(kind)
	if body != nil {
		body.Append(&e)
	}
	binary.LittleEndian.PutUint32(e.B[start:], uint32(len(e.B)-start-4))
	return e.B
}

// Frame is a whole frame without its length.
type Frame []byte

// Cut takes the first whole frame off b. frame is nil if b does not hold a whole
// one yet.
func Cut(b []byte) (frame Frame, rest []byte, err error) {
	if len(b) < 4 {
		return nil, b, nil
	}
	n := int(binary.LittleEndian.Uint32(b))
	if n < head || n > MaxFrame {
		return nil, b, errors.New("frame has an impossible length")
	}
	if len(b) < 4+n {
		return nil, b, nil
	}
	return b[4 : 4+n], b[4+n:], nil
}

// Number is that of the request, or of the one that is answered.
func (f Frame) Number() uint64 { return binary.LittleEndian.Uint64(f) }

// Op is the operation of a request.
func (f Frame) Op() uint8 { return f[8] }

// Body aliases the frame.
func (f Frame) Body() []byte { return f[head:] }

// Answer takes an answer apart: how many descriptors came with it, and its body
// or the Error that it is. err: the Error cannot be read.
func (f Frame) Answer() (fds int, body []byte, werr *Error, err error) {
	if f[8]&1 != 0 {
		werr, err = ParseError(f.Body())
		return 0, nil, werr, err
	}
	return int(f[8] >> 1), f.Body(), nil, nil
}
