package journal

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"

	"github.com/tend-run/tend/process"
)

// Kind of a record.
type Kind uint8

const (
	KindState Kind = iota + 1
	KindMessage
	KindOutput
	KindDone
	KindHeartbeat
	KindStream
	KindInput
	KindOTP
	KindWatch
	KindSearch
	KindWrite
)

// Record is one entry. Which fields count depends on the kind.
type Record struct {
	Kind    Kind
	Frame   uint64 // number of a frame that is sent
	Request uint64 // number of a frame that was received
	Index   uint32 // in a batch
	Slot    uint32
	Process uint32 // number of a process
	Stream  process.Stream
	Offset  int64
	Length  uint32
	Data    []byte // a message, passwords, or JSON
}

const (
	headSize = 9
	// maxRecord bounds a record in bytes: a message of 64 MiB fits.
	maxRecord = 80 << 20
)

// castagnoli is the table of the checksums. Go makes it at the first use, which takes 0.1 ms
// of the start of a program.
func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// ErrTorn: the bytes are no whole record.
var ErrTorn = errors.New("torn record")

// Append appends the record to b.
func (r *Record) Append(b []byte) []byte {
	start := len(b)
	b = append(b, make([]byte, headSize)...)
	le := binary.LittleEndian
	switch r.Kind {
	case KindMessage:
		b = le.AppendUint64(le.AppendUint64(b, r.Frame), r.Request)
		b = append(b, r.Data...)
	case KindOutput:
		b = le.AppendUint32(le.AppendUint64(b, r.Frame), r.Slot)
		b = le.AppendUint64(append(b, byte(r.Stream)), uint64(r.Offset))
		b = le.AppendUint32(b, r.Length)
	case KindDone:
		b = le.AppendUint32(le.AppendUint64(b, r.Frame), r.Slot)
		b = append(b, r.Data...)
	case KindHeartbeat:
		b = le.AppendUint64(b, r.Frame)
	case KindInput:
		b = le.AppendUint32(le.AppendUint64(b, r.Request), r.Index)
		b = le.AppendUint64(le.AppendUint32(b, r.Process), uint64(r.Offset))
	default:
		b = append(b, r.Data...)
	}
	rec := b[start:]
	rec[8] = byte(r.Kind)
	le.PutUint32(rec, uint32(len(rec)-headSize+1))
	le.PutUint32(rec[4:], crc32.Checksum(rec[8:], castagnoli()))
	return b
}

// Parse reads the record that b begins with, and returns its length. Data is
// part of b. A record of a kind from the future has its Kind and Data alone.
func Parse(b []byte) (Record, int, error) {
	if len(b) < headSize {
		return Record{}, 0, ErrTorn
	}
	le := binary.LittleEndian
	n := int64(le.Uint32(b)) + 8
	if n < headSize || n > maxRecord || n > int64(len(b)) {
		return Record{}, 0, ErrTorn
	}
	if crc32.Checksum(b[8:n], castagnoli()) != le.Uint32(b[4:]) {
		return Record{}, 0, ErrTorn
	}
	r := Record{Kind: Kind(b[8])}
	body := b[headSize:n:n]
	if want, fixed := bodySizes[r.Kind]; fixed && len(body) != want || r.Kind == KindMessage && len(body) < 16 ||
		r.Kind == KindDone && len(body) < 12 {
		return Record{}, 0, ErrTorn
	}
	switch r.Kind {
	case KindMessage:
		r.Frame, r.Request, r.Data = le.Uint64(body), le.Uint64(body[8:]), body[16:]
	case KindOutput:
		r.Frame, r.Slot, r.Stream = le.Uint64(body), le.Uint32(body[8:]), process.Stream(body[12])
		r.Offset, r.Length = int64(le.Uint64(body[13:])), le.Uint32(body[21:])
	case KindDone:
		r.Frame, r.Slot, r.Data = le.Uint64(body), le.Uint32(body[8:]), body[12:]
	case KindHeartbeat:
		r.Frame = le.Uint64(body)
	case KindInput:
		r.Request, r.Index, r.Process = le.Uint64(body), le.Uint32(body[8:]), le.Uint32(body[12:])
		r.Offset = int64(le.Uint64(body[16:]))
	default:
		r.Data = body
	}
	if r.Stream > process.PTY || r.Offset < 0 {
		return Record{}, 0, ErrTorn
	}
	return r, int(n), nil
}

var bodySizes = map[Kind]int{KindOutput: 25, KindHeartbeat: 8, KindInput: 24}

// cost is how many bytes on the wire the frame of the record stands for.
func (r *Record) cost() int64 {
	switch r.Kind {
	case KindMessage:
		return int64(len(r.Data)) + 64
	case KindOutput:
		return int64(r.Length) + 64
	case KindDone, KindHeartbeat:
		return 64
	}
	return 0
}

// isFrame reports whether the record is of a frame that is sent.
func (r *Record) isFrame() bool { return r.Kind >= KindMessage && r.Kind <= KindHeartbeat }

func jsonRecord(kind Kind, v any) (Record, error) {
	data, err := json.Marshal(v)
	return Record{Kind: kind, Data: data}, err
}
