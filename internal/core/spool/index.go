package spool

import (
	"encoding/binary"
	"hash/crc32"
	"os"

	"github.com/tend-run/tend/process"
)

// IndexSize is the length of an index record in bytes.
const IndexSize = 32

// IndexKind tells index records apart. Part of the format: do not change.
type IndexKind uint8

const (
	IndexData  IndexKind = 1 // Len bytes of Stream were written at Offset
	IndexTrim  IndexKind = 2 // bytes of Stream before Offset were freed
	IndexSized IndexKind = 3 // the terminal has another size from Offset on; see Sized
)

// IndexRecord is one record of the index.
type IndexRecord struct {
	Kind   IndexKind
	Stream process.Stream
	Len    uint32
	Offset int64
	Wall   int64  // unix ns; 0: unknown
	Mono   uint32 // ms of the machine's monotonic clock, wrapping
}

// Sized is the record of a size that a terminal has from an offset on.
func Sized(offset int64, size process.Size) IndexRecord {
	return IndexRecord{Kind: IndexSized, Stream: process.PTY, Offset: offset, Len: uint32(size.Cols) | uint32(size.Rows)<<16}
}

// Size returns the size in a record of kind IndexSized.
func (r IndexRecord) Size() process.Size {
	return process.Size{Cols: uint16(r.Len), Rows: uint16(r.Len >> 16)}
}

// Put encodes the record.
func (r IndexRecord) Put(b *[IndexSize]byte) {
	le := binary.LittleEndian
	b[0], b[1], b[2], b[3] = byte(r.Kind), byte(r.Stream), 0, 0
	le.PutUint32(b[4:], r.Len)
	le.PutUint64(b[8:], uint64(r.Offset))
	le.PutUint64(b[16:], uint64(r.Wall))
	le.PutUint32(b[24:], r.Mono)
	le.PutUint32(b[28:], crc32.Checksum(b[:28], castagnoli()))
}

// ParseIndex decodes the record at the head of b; ok is false if it is truncated or
// damaged.
func ParseIndex(b []byte) (r IndexRecord, ok bool) {
	le := binary.LittleEndian
	if len(b) < IndexSize || crc32.Checksum(b[:28], castagnoli()) != le.Uint32(b[28:]) {
		return r, false
	}
	r = IndexRecord{Kind: IndexKind(b[0]), Stream: process.Stream(b[1]), Len: le.Uint32(b[4:]),
		Offset: int64(le.Uint64(b[8:])), Wall: int64(le.Uint64(b[16:])), Mono: le.Uint32(b[24:])}
	return r, r.Stream >= process.Stdout && r.Stream <= process.PTY && r.Offset >= 0 && r.Offset+int64(r.Len) >= 0
}

// nextRecord is where the first record of an index lies that is not in a hole,
// at or after an offset; end if there is none before it.
func nextRecord(f *os.File, at, end int64) int64 {
	if next := nextData(f, at, end); next-at >= IndexSize {
		return next - (next-at)%IndexSize
	}
	return at
}

// pastHole is how many bytes of an index to pass over, from at on, where raw was
// read: 0 if there may be records in it. A damaged file may have a hole that
// would take hours to read.
func pastHole(f *os.File, raw []byte, at, end int64) int64 {
	if len(raw) < IndexSize || [IndexSize]byte(raw) != ([IndexSize]byte{}) {
		return 0
	}
	return nextRecord(f, at, end) - at
}
