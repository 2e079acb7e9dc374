package spool

import (
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
)

// Readers borrow buffers of a few fixed sizes. So a reader with a slow consumer
// holds about as much memory as the one event that it is waiting to deliver.
var bufferSizes = [...]int{4 << 10, 16 << 10, 64 << 10, defaultChunk, maxChunk}

var buffers [len(bufferSizes)]sync.Pool

// lent counts the bytes that all readers of this program have borrowed now.
var lent atomic.Int64

// mostLent bounds lent, in bytes. Buffers of the smallest size are given out beyond
// it. A reader gets at most an eighth of what is still free: so a thousand readers
// with stalled consumers together hold about as much as sixteen that ask for the
// largest pieces, and a few stalled ones do not affect the others.
const mostLent = 16 << 20

// pieceNow returns how many bytes a reader may borrow now if it wants at most want.
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

// buffer is borrowed memory.
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
