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

// stallAfter is how long a reader may leave a write unfinished before it loses its
// buffer. If no byte of the frame was sent, the frame is made again from the spool
// once the reader continues. So a thousand readers that never read hold nothing;
// [connOutlet.piece] makes nearly all of them stall before a frame begins.
const stallAfter = time.Second

// crowd is how many frames may wait at a time for stallAfter; those of more
// readers wait a moment only, and carry no more than a batch. It bounds what a
// thousand readers hold that all stall at one time.
const crowd = 64

// waiting is how many frames, or rests of them, wait for their readers, in all
// streams.
var waiting atomic.Int64

// connOutlet writes chunked HTTP/1.1 to a connection taken over from net/http.
type connOutlet struct {
	ctx  context.Context // ends with the stream; the stream owns this outlet
	conn net.Conn
	// head is sent before all else: the response head, or the rest of an earlier
	// write that the reader did not take at once.
	head []byte
	raw  syscall.RawConn // of conn, once it was needed
	// sendBuffer of the socket in bytes when the reader last kept us waiting;
	// the kernel lets it grow. 0: not asked yet.
	sendBuffer int
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
	if o.head != nil { // rare, and small
		p = append(o.head[:len(o.head):len(o.head)], p...)
		o.head = nil
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

// later sends the rest of a frame to a reader that has stalled.
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

// frame implements [outlet]. The whole frame is read and checked before its first
// byte is sent. If only a part was sent, the rest is kept here and not read again
// from the spool: retention could free it meanwhile, and half a frame can neither be
// ended nor taken back. Frames are not sent from the file either (sendfile): the
// socket would hold the file's pages, and where retention frees a part of a large
// page, the kernel fills that part with zeros before the client has read it.
func (o *connOutlet) frame(enc *frameEncoder) error {
	if err := o.settle(); err != nil {
		return err
	}
	for o.broken == nil {
		buf, err := enc.encode()
		if err != nil {
			return err // nothing of it was sent: the caller can say why
		}
		p := append(buf.b, '\r', '\n')[putChunkLine(buf.b):]
		patience := stallAfter
		if waiting.Add(1) > crowd {
			patience = stallAfter / 1000
		}
		n, err := o.tryFor(patience, p)
		stalled := errors.Is(err, os.ErrDeadlineExceeded)
		var rest []byte
		if stalled && n > 0 {
			rest = append(rest, p[n:]...)
		}
		frames.Put(buf)
		if rest != nil {
			err = o.later(rest)
		}
		waiting.Add(-1)
		if !stalled || rest != nil {
			o.broken = err
			return err
		}
		o.broken = o.writable()
	}
	return o.broken
}

// settle sends the response head, or what is left of a chunk.
func (o *connOutlet) settle() error {
	if o.broken == nil && o.head != nil {
		head := o.head
		o.head = nil
		o.broken = o.later(head)
	}
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
// before them, and returns where it starts. At most 8 digits fit, which no message
// comes near.
func putChunkLine(buf []byte) int {
	const hex = "0123456789abcdef"
	buf[chunkRoom-2], buf[chunkRoom-1] = '\r', '\n'
	at := chunkRoom - 2
	for n := len(buf) - chunkRoom; n > 0; n >>= 4 {
		at--
		buf[at] = hex[n&15]
	}
	return at
}
