package secure

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"

	"github.com/tend-run/tend/internal/protocol/distant/wire"
)

// Client is the other side of [Server]: for tests and tools.
func Client(nc net.Conn, hello Hello) (*Conn, error) {
	c := newConn(nc)
	var version [24]byte
	if _, err := io.ReadFull(c.r, version[:]); err != nil {
		return nil, err
	}
	for i, want := range Version[:2] {
		if got := binary.BigEndian.Uint64(version[8*i:]); got != want {
			return nil, fmt.Errorf("%w: version part %d is %d, want %d", ErrFrame, i, got, want)
		}
	}
	options, err := c.ReadFrame()
	if err != nil {
		return nil, err
	}
	if _, err := parseMap(options, "compression_types", "encryption_types"); err != nil {
		return nil, err
	}
	if err := c.send(wire.Map{"compression_level", nil, "compression_type", nil, "encryption_type", cipherName}); err != nil {
		return nil, err
	}
	if err := c.encrypt(); err != nil {
		return nil, err
	}
	c.Trust()
	return c, c.WriteFrame(hello.message())
}

// Login is the other side of [Conn.Authenticate]. It returns the id of the
// connection.
func (c *Conn) Login(key Key) (uint32, error) {
	frame, err := c.ReadFrame()
	if err != nil {
		return 0, err
	}
	v, err := wire.ParsePack(frame)
	if err != nil {
		return 0, bad(err)
	}
	id, err := v.Uint(1<<32 - 1)
	if err != nil {
		return 0, bad(err)
	}
	if err := c.expect("auth_initialization", "methods"); err != nil {
		return 0, err
	}
	if err := c.send(wire.Map{"type", "auth_initialization_response", "methods", wire.List{methodName}}); err != nil {
		return 0, err
	}
	if err := c.expect("auth_start_method", "method"); err != nil {
		return 0, err
	}
	if err := c.expect("auth_challenge", "questions", "options"); err != nil {
		return 0, err
	}
	if err := c.send(wire.Map{"type", "auth_challenge_response", "answers", wire.List{key.String()}}); err != nil {
		return 0, err
	}
	return uint32(id), c.expect("auth_finished")
}

func (c *Conn) expect(typ string, names ...string) error {
	frame, err := c.ReadFrame()
	if err == nil {
		_, err = parseTyped(frame, typ, names...)
	}
	return err
}
