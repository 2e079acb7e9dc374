package secure

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"

	"github.com/tend-run/tend/internal/protocol/distant/wire"
)

// Version is the version of the protocol that both sides send and expect.
var Version = [3]uint64{0, 20, 0}

const cipherName = "XChaCha20Poly1305"

// Hello is what a client wants first.
type Hello struct {
	// Resume: an earlier connection, which ID and OTP name. Otherwise it is a
	// new one.
	Resume bool
	ID     uint32
	OTP    Key
}

// Progress is implemented by a connection that follows how far its client has come.
type Progress interface{ Progressed() }

func progressed(nc net.Conn) {
	if p, ok := nc.(Progress); ok {
		p.Progressed()
	}
}

// Server sets a connection up to the client's first encrypted frame. Set a
// deadline before.
func Server(nc net.Conn) (*Conn, Hello, error) {
	c := newConn(nc)
	if err := writeVersion(nc); err != nil {
		return nil, Hello{}, err
	}
	if err := c.send(wire.Map{"compression_types", wire.List{}, "encryption_types", wire.List{cipherName}}); err != nil {
		return nil, Hello{}, err
	}
	choice, err := c.ReadFrame()
	if err != nil {
		return nil, Hello{}, err
	}
	if err := checkChoice(choice); err != nil {
		return nil, Hello{}, err
	}
	progressed(nc)
	if err := c.encrypt(); err != nil {
		return nil, Hello{}, err
	}
	progressed(nc)
	first, err := c.ReadFrame()
	if err != nil {
		return nil, Hello{}, err
	}
	hello, err := parseHello(first)
	if err == nil {
		progressed(nc)
	}
	return c, hello, err
}

func writeVersion(w io.Writer) error {
	var b []byte
	for _, part := range Version {
		b = binary.BigEndian.AppendUint64(b, part)
	}
	_, err := w.Write(b)
	return err
}

// checkChoice refuses everything but encryption: without it anyone on the way could
// read the key.
func checkChoice(message []byte) error {
	m, err := parseMap(message, "compression_type", "encryption_type")
	if err != nil {
		return err
	}
	if !m[0].Null() {
		return fmt.Errorf("%w: compression was chosen, and none was offered", ErrFrame)
	}
	if name, err := m[1].Str(); err != nil || name != cipherName {
		return fmt.Errorf("%w: the encryption that was offered was not chosen", ErrFrame)
	}
	return nil
}

func parseHello(message []byte) (Hello, error) {
	v, err := wire.ParsePack(message)
	if err != nil {
		return Hello{}, bad(err)
	}
	if s, err := v.Str(); err == nil {
		if s != "Connect" {
			return Hello{}, fmt.Errorf("%w: the client wants %.40q, which is not known", ErrFrame, s)
		}
		return Hello{}, nil
	}
	m, err := fieldsOf(v, "Reconnect")
	if err != nil {
		return Hello{}, err
	}
	m, err = fieldsOf(m[0], "id", "otp")
	if err != nil {
		return Hello{}, err
	}
	id, err := m[0].Uint(1<<32 - 1)
	if err != nil {
		return Hello{}, bad(err)
	}
	otp, err := m[1].Bytes()
	if err != nil {
		return Hello{}, bad(err)
	}
	if len(otp) != KeySize {
		return Hello{}, fmt.Errorf("%w: a one-time password of %d bytes", ErrFrame, len(otp))
	}
	return Hello{Resume: true, ID: uint32(id), OTP: Key(otp)}, nil
}

// message encodes what parseHello reads.
func (h Hello) message() []byte {
	if !h.Resume {
		return wire.Pack("Connect")
	}
	return wire.Pack(wire.Map{"Reconnect", wire.Map{"id", h.ID, "otp", h.OTP[:]}})
}

// Stats are the counters that both sides send when they resume: frames sent
// and received since the connection began, and how many of the sent ones could
// be sent again.
type Stats struct{ Sent, Received, Available uint64 }

// WriteStats and ReadStats carry them.
func (c *Conn) WriteStats(s Stats) error {
	return c.send(wire.List{s.Sent, s.Received, s.Available})
}

// ReadStats skips heartbeats.
func (c *Conn) ReadStats() (Stats, error) {
	for {
		frame, err := c.ReadFrame()
		if err != nil {
			return Stats{}, err
		}
		if len(frame) > 0 {
			return parseStats(frame)
		}
	}
}

func parseStats(frame []byte) (Stats, error) {
	v, err := wire.ParsePack(frame)
	if err != nil {
		return Stats{}, bad(err)
	}
	a, err := v.Array()
	if err != nil {
		return Stats{}, bad(err)
	}
	if len(a) != 3 {
		return Stats{}, fmt.Errorf("%w: %d counters, want 3", ErrFrame, len(a))
	}
	var n [3]uint64
	for i := range a {
		if n[i], err = a[i].Uint(1<<63 - 1); err != nil {
			return Stats{}, bad(err)
		}
	}
	return Stats{n[0], n[1], n[2]}, nil
}
