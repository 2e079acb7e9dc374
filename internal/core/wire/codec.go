// Package wire is the protocol between the server and the keeper: frames on a
// unix stream socket. It is internal to the pair of binaries; the version is
// compared in the hello.
//
// # Frame
//
//	u32 LE  length of what follows (9 to MaxFrame)
//	u64 LE  request number, chosen by the server, echoed in the answer; 0: no
//	        answer is wanted
//	u8      operation (Op*) in a request; in an answer bit 0 says that an
//	        Error follows, the other bits are the number of descriptors
//	bytes   body
//
// Bodies are sequences of fields without names: u8, u32, u64, and strings with
// a u32 length. Descriptors travel by SCM_RIGHTS with the frame they belong to;
// the kernel may glue frames before it to it, hence the number.
package wire

import (
	"encoding/binary"
	"errors"
)

// Version of the protocol. The keeper answers a hello of the same or the
// previous version.
const Version = 1

// ErrShort: a body ended before its fields did, or a count is impossible.
var ErrShort = errors.New("frame is cut short or has an impossible count")

// Enc builds a body.
type Enc struct{ B []byte }

func (e *Enc) U8(v uint8)     { e.B = append(e.B, v) }
func (e *Enc) U32(v uint32)   { e.B = binary.LittleEndian.AppendUint32(e.B, v) }
func (e *Enc) U64(v uint64)   { e.B = binary.LittleEndian.AppendUint64(e.B, v) }
func (e *Enc) Str(s string)   { e.U32(uint32(len(s))); e.B = append(e.B, s...) }
func (e *Enc) Bytes(s []byte) { e.U32(uint32(len(s))); e.B = append(e.B, s...) }
func (e *Enc) Bool(v bool) {
	if v {
		e.U8(1)
	} else {
		e.U8(0)
	}
}
func (e *Enc) Strs(ss []string) {
	e.U32(uint32(len(ss)))
	for _, s := range ss {
		e.Str(s)
	}
}

// Dec takes a body apart. The first error sticks; check Err at the end.
type Dec struct {
	B   []byte
	err error
}

func (d *Dec) next(n int) []byte {
	if d.err != nil || n < 0 || n > len(d.B) {
		d.err = ErrShort
		return nil
	}
	b := d.B[:n]
	d.B = d.B[n:]
	return b
}

func (d *Dec) U8() uint8 {
	if b := d.next(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *Dec) U32() uint32 {
	if b := d.next(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (d *Dec) U64() uint64 {
	if b := d.next(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (d *Dec) Bool() bool    { return d.U8() != 0 }
func (d *Dec) Str() string   { return string(d.Bytes()) }
func (d *Dec) Bytes() []byte { return d.next(int(d.U32())) }

// Strs decodes a list. A count that the rest of the body cannot hold is an
// error before anything is allocated.
func (d *Dec) Strs() []string {
	n := int(d.U32())
	if d.err != nil || n > len(d.B)/4 {
		d.err = ErrShort
		return nil
	}
	ss := make([]string, n)
	for i := range ss {
		ss[i] = d.Str()
	}
	return ss
}

// done returns what was decoded, and Err.
func done[T any](d *Dec, v T) (T, error) { return v, d.Err() }

// Err returns the first error, or ErrShort if bytes are left over.
func (d *Dec) Err() error {
	if d.err == nil && len(d.B) > 0 {
		return errors.New("frame has bytes after its last field")
	}
	return d.err
}
