package oci

import (
	"bufio"
	"bytes"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// Decompress returns what is in a stream that may be compressed by gzip or zstd, as its first
// bytes say.
func Decompress(r io.Reader) (io.ReadCloser, error) {
	in := bufio.NewReaderSize(r, 256<<10)
	magic, _ := in.Peek(4)
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		return gzip.NewReader(in)
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		d, err := zstd.NewReader(in, zstd.WithDecoderMaxWindow(MaxWindow), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, err
		}
		return d.IOReadCloser(), nil
	}
	return io.NopCloser(in), nil
}

// ahead reads in a goroutine of its own, so that who decompresses and who writes files do so at
// the same time. stop ends it, and waits for it.
func ahead(r io.Reader) (out io.Reader, stop func()) {
	const pieces, size = 8, 256 << 10
	a := &readAhead{full: make(chan piece, pieces), free: make(chan []byte, pieces), quit: make(chan struct{}), over: make(chan struct{})}
	for range pieces {
		a.free <- make([]byte, size)
	}
	go a.run(r)
	return a, func() {
		close(a.quit)
		<-a.over
	}
}

type piece struct {
	all []byte // to be used again
	b   []byte
	err error
}

type readAhead struct {
	full       chan piece
	free       chan []byte
	quit, over chan struct{}
	now        piece
}

func (a *readAhead) run(r io.Reader) {
	defer close(a.over)
	defer func() { // of a decoder; an image is no reason for the server's end
		if v := recover(); v != nil {
			a.full <- piece{err: fmt.Errorf("the layer cannot be decompressed: %v", v)}
		}
	}()
	for {
		select {
		case <-a.quit:
			return
		case b := <-a.free:
			n, err := 0, error(nil)
			for n < len(b) && err == nil { // not ReadFull: a stream that is cut off has its error
				var k int
				k, err = r.Read(b[n:])
				n += k
			}
			a.full <- piece{b, b[:n], err} // there is room: as many pieces as there are
			if err != nil {
				return
			}
		}
	}
}

func (a *readAhead) Read(p []byte) (int, error) {
	for len(a.now.b) == 0 {
		if a.now.err != nil {
			return 0, a.now.err
		}
		if a.now.all != nil {
			a.free <- a.now.all
		}
		a.now = <-a.full
	}
	n := copy(p, a.now.b)
	a.now.b = a.now.b[n:]
	return n, nil
}
