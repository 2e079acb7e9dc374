package spool

import (
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
)

// Buffers are lent in a few sizes, so that a reader whose consumer is slow
// holds about as much as the event it waits with.
var bufferSizes = [...]int{4 << 10, 16 << 10, 64 << 10, defaultChunk, maxChunk}

var buffers [len(bufferSizes)]sync.Pool

// lent is how many bytes are lent to all readers of this program now.
var lent atomic.Int64

// mostLent bounds lent in bytes, but for the smallest buffers: a reader gets at
// most an eighth of what is left of it. So a thousand readers whose consumers
// stall hold about as much together as sixteen that ask for the largest pieces,
// and a few that stall are not noticed by the others.
const mostLent = 16 << 20

// pieceNow is how large a piece may be now of which at most want bytes are
// wanted.
func pieceNow(want int) int {
	free := int((mostLent - lent.Load()) / 8)
	most := bufferSizes[0]
	for _, size := range bufferSizes[1:] {
		if size <= free {
			most = size
		}
	}
	return min(want, most)
}

// buffer is lent memory.
type buffer struct {
	b    []byte
	size int // index in bufferSizes
}

// lend returns a buffer of at least n bytes; n is at most maxChunk.
func lend(n int) *buffer {
	size := 0
	for bufferSizes[size] < n {
		size++
	}
	lent.Add(int64(bufferSizes[size]))
	if b, ok := buffers[size].Get().(*buffer); ok {
		return b
	}
	return &buffer{make([]byte, bufferSizes[size]), size}
}

func (b *buffer) giveBack() {
	lent.Add(-int64(bufferSizes[b.size]))
	buffers[b.size].Put(b)
}

// readFull reads len(b) announced bytes. Fewer is an error, and never io.EOF,
// which would be taken for the end of the stream.
func readFull(f *os.File, b []byte, offset int64) error {
	for at := 0; at < len(b); {
		n, err := f.ReadAt(b[at:], offset+int64(at))
		at += n
		if at == len(b) {
			return nil
		}
		if err == io.EOF {
			return fmt.Errorf("%s has %d bytes, fewer than were announced: %w", f.Name(), offset+int64(at), io.ErrUnexpectedEOF)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
