package spool

import (
	"fmt"
	"io"
	"os"
	"sync"
)

// Buffers are lent in a few sizes, so that a reader whose consumer is slow
// holds about as much as the event it waits with.
var bufferSizes = [...]int{4 << 10, 64 << 10, defaultChunk, maxChunk}

var buffers [len(bufferSizes)]sync.Pool

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
	if b, ok := buffers[size].Get().(*buffer); ok {
		return b
	}
	return &buffer{make([]byte, bufferSizes[size]), size}
}

func (b *buffer) giveBack() { buffers[b.size].Put(b) }

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
