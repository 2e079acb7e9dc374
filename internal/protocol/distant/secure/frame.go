package secure

import (
	"bufio"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"golang.org/x/crypto/chacha20poly1305"

	"github.com/tend-run/tend/internal/lib/budget"
)

const (
	lengthSize = 8
	nonceSize  = chacha20poly1305.NonceSizeX
	// Head is the room in front of the plaintext of a frame, and Tail the room
	// behind it, that [Conn.Seal] fills.
	Head = lengthSize + nonceSize
	Tail = chacha20poly1305.Overhead

	// MaxSetup bounds the frames before a caller has shown the key, in bytes.
	MaxSetup = 64 << 10
	// MaxFrame bounds the frames of authenticated callers, in bytes.
	MaxFrame = 64 << 20
)

// ErrFrame: the peer sent a frame that cannot be one of this protocol's. The
// connection is of no use any more.
var ErrFrame = errors.New("bad frame")

// Conn carries frames. One goroutine may read while another writes.
type Conn struct {
	net.Conn
	r     *bufio.Reader
	limit uint64      // of a frame that is read, in bytes
	aead  cipher.AEAD // nil until the keys are exchanged
	held  *budget.Charge
}

func newConn(nc net.Conn) *Conn {
	return &Conn{Conn: nc, r: bufio.NewReaderSize(nc, 32<<10), limit: MaxSetup}
}

// Trust lets the peer send frames of up to MaxFrame bytes.
func (c *Conn) Trust() { c.limit = MaxFrame }

// Charge charges for the frame that is read, until the next one is, or the caller releases the
// charge.
func (c *Conn) Charge(held *budget.Charge) { c.held = held }

// ReadFrame returns the plaintext of the next frame, in memory of its own. A
// heartbeat is empty.
func (c *Conn) ReadFrame() ([]byte, error) { return c.ReadFrameInto(nil) }

// ReadFrameInto is ReadFrame into the memory of buf, if it is large enough.
func (c *Conn) ReadFrameInto(buf []byte) ([]byte, error) {
	c.held.Release()
	var head [lengthSize]byte
	if _, err := io.ReadFull(c.r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint64(head[:])
	if n > c.limit {
		return nil, fmt.Errorf("%w: %d bytes are announced, and at most %d allowed", ErrFrame, n, c.limit)
	}
	item, err := c.readItem(buf[:0], int(n))
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return c.open(item)
}

// freeFrame is what a frame may have without being charged for, in bytes.
const freeFrame = 4 << 10

// firstPiece is how much memory an announced frame has before a byte of it came.
const firstPiece = 1 << 20

// readItem reads n bytes into buf, or into memory that grows as they come: what is
// only announced holds none.
func (c *Conn) readItem(buf []byte, n int) ([]byte, error) {
	for len(buf) < n {
		room := min(n, cap(buf))
		if room <= len(buf) {
			room = min(n, max(firstPiece, 4*len(buf)))
			if n > freeFrame {
				if err := c.held.Add(int64(room - len(buf))); err != nil {
					return nil, err
				}
			}
			buf = append(make([]byte, 0, room), buf...)
		}
		if _, err := io.ReadFull(c.r, buf[len(buf):room]); err != nil {
			return nil, err
		}
		buf = buf[:room]
	}
	return buf, nil
}

func (c *Conn) open(item []byte) ([]byte, error) {
	if c.aead == nil {
		return item, nil
	}
	if len(item) < nonceSize+Tail {
		return nil, fmt.Errorf("%w: %d bytes are too few for an encrypted one", ErrFrame, len(item))
	}
	nonce, sealed := item[:nonceSize], item[nonceSize:]
	plain, err := c.aead.Open(sealed[:0], nonce, sealed, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: it was not encrypted with the key of this connection", ErrFrame)
	}
	return plain, nil
}

// Seal encrypts the plaintext buf[Head:] in place and returns the frame, which
// begins at buf[0]. With Tail bytes of spare capacity nothing is allocated. It
// may be called concurrently.
func (c *Conn) Seal(buf []byte) []byte {
	if c.aead == nil {
		// A plain frame: the length moves up to the item.
		binary.BigEndian.PutUint64(buf[nonceSize:], uint64(len(buf)-Head))
		return buf[nonceSize:]
	}
	nonce := buf[lengthSize:Head]
	rand.Read(nonce) // never fails: crypto/rand ends the program instead
	return sealWith(c.aead, buf)
}

// sealWith seals with the nonce that is in the buffer.
func sealWith(aead cipher.AEAD, buf []byte) []byte {
	binary.BigEndian.PutUint64(buf, uint64(len(buf)-lengthSize+Tail))
	sealed := aead.Seal(buf[:Head], buf[lengthSize:Head], buf[Head:], nil)
	return sealed
}

// WriteFrame sends one frame.
func (c *Conn) WriteFrame(plain []byte) error {
	buf := make([]byte, Head, Head+len(plain)+Tail)
	_, err := c.Write(c.Seal(append(buf, plain...)))
	return err
}
