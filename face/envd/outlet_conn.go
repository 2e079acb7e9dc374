package envd

import (
	"context"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// stallAfter is how long a reader may leave a write unfinished before its
// buffer is taken away. The frame is then made again from the spool once the
// reader goes on, so that a thousand readers that never read hold nothing.
const stallAfter = time.Second

// crowd is how many frames may wait at a time for stallAfter; those of more
// readers wait a moment only. It bounds what a thousand readers hold in the
// second in which they all stall.
const crowd = 64

// waiting is how many frames wait for their readers, in all streams.
var waiting atomic.Int64

// connOutlet writes chunked HTTP/1.1 to a connection taken over from net/http.
type connOutlet struct {
	ctx  context.Context // ends with the stream; the stream owns this outlet
	conn net.Conn
	// head is sent before all else: the response head, or what the reader did not
	// take at once of what was sent before.
	head []byte
	raw  syscall.RawConn // of conn, once it was needed
	// sendBuffer of the socket in bytes when the reader last kept us waiting;
	// the kernel lets it grow. 0: not asked yet.
	sendBuffer int
	// owed: the CR LF of the chunk before is still to be sent (see sendfile).
	owed bool
	// broken: a write failed or was given up, so nothing may follow.
	broken error
}

// batch implements [outlet].
func (o *connOutlet) batch(buf []byte, _, last bool) error {
	if o.broken != nil {
		return o.broken
	}
	if len(buf) == chunkRoom && !last {
		return nil
	}
	p := o.chunk(buf, last)
	n, err := o.try(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		// At most batchSize is kept: the pooled buffer goes back.
		err = o.later(append([]byte(nil), p[n:]...))
	}
	o.broken = err
	return err
}

// chunk makes buf a chunk behind what is still to be sent before it.
func (o *connOutlet) chunk(buf []byte, last bool) []byte {
	start := chunkRoom
	if len(buf) > chunkRoom {
		start = putChunkLine(buf)
		buf = append(buf, '\r', '\n')
	}
	if last {
		buf = append(buf, "0\r\n\r\n"...)
	}
	p := buf[start:]
	if o.head != nil || o.owed {
		// Rare and small: the first write of a response, or the first after
		// a frame sent from the file.
		first := o.head
		if o.owed {
			first = []byte("\r\n")
		}
		p = append(first[:len(first):len(first)], p...)
		o.head, o.owed = nil, false
	}
	return p
}

// clear implements [promptOutlet].
func (o *connOutlet) clear() bool { return o.head == nil && o.broken == nil }

// now implements [promptOutlet]. If the connection has failed the next write
// will find that out.
func (o *connOutlet) now(buf []byte) {
	p := o.chunk(buf, false)
	if n := o.writeNow(p); n < len(p) {
		o.head = append([]byte(nil), p[n:]...)
	}
}

// later sends what is left of a batch to a reader that has stalled.
func (o *connOutlet) later(rest []byte) error {
	for {
		if err := o.writable(); err != nil {
			return err
		}
		n, err := o.try(rest)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		rest = rest[n:]
	}
}

// frame implements [outlet].
func (o *connOutlet) frame(enc *frameEncoder) error {
	if o.broken != nil {
		return o.broken
	}
	sent, err := o.sendFrame(enc)
	if err != nil && sent {
		o.broken = err // part of it is out, or the connection has failed
	}
	return err
}

// sendFrame reports whether anything was written, or tried to.
func (o *connOutlet) sendFrame(enc *frameEncoder) (tried bool, err error) {
	if enc.codec == codecProto && enc.out.Span.File != nil {
		if done, err := o.sendfile(enc); done {
			return true, err
		}
	}
	if o.head != nil || o.owed {
		if err := o.settle(); err != nil {
			return true, err
		}
	}
	for sent := 0; ; {
		buf, err := enc.encode()
		switch {
		case err != nil && sent > 0:
			return true, errDamaged // half a frame is out: no error can follow it
		case err != nil:
			return false, err
		}
		start := putChunkLine(buf.b)
		p := append(buf.b, '\r', '\n')[start:]
		patience := stallAfter
		if waiting.Add(1) > crowd {
			patience = stallAfter / 1000
		}
		n, err := o.tryFor(patience, p[sent:])
		waiting.Add(-1)
		frames.Put(buf)
		sent += n
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return true, err
		}
		if err := o.writable(); err != nil {
			return true, err
		}
	}
}

// settle sends the response head, what is left of a chunk, or the end of the
// chunk before.
func (o *connOutlet) settle() error {
	if o.broken != nil {
		return o.broken
	}
	p := o.head
	if o.owed {
		p = []byte("\r\n")
	}
	o.head, o.owed = nil, false
	o.broken = o.later(p)
	return o.broken
}

// try writes p for at most stallAfter and returns how much was written. The
// error wraps os.ErrDeadlineExceeded if the reader did not take it all.
func (o *connOutlet) try(p []byte) (int, error) { return o.tryFor(stallAfter, p) }

func (o *connOutlet) tryFor(patience time.Duration, p []byte) (int, error) {
	// A deadline, which most writes do not need, costs more than a write.
	sent := o.writeNow(p)
	if sent == len(p) {
		return sent, nil
	}
	if err := o.conn.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		return sent, err
	}
	n, err := o.conn.Write(p[sent:])
	return sent + n, err
}

// putChunkLine writes the chunk-size line for the bytes after the room, right
// before them, and returns where it starts.
func putChunkLine(buf []byte) int { return putChunkSize(buf, len(buf)-chunkRoom) }

// putChunkSize does the same for a chunk of size bytes. At most 8 digits fit,
// which no message comes near.
func putChunkSize(buf []byte, size int) int {
	const hex = "0123456789abcdef"
	buf[chunkRoom-2], buf[chunkRoom-1] = '\r', '\n'
	at := chunkRoom - 2
	for n := size; n > 0; n >>= 4 {
		at--
		buf[at] = hex[n&15]
	}
	return at
}
