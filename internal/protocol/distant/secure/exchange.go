package secure

import (
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"fmt"

	"golang.org/x/crypto/chacha20poly1305"

	"github.com/tend-run/tend/internal/protocol/distant/wire"
)

// KeySize is the size of keys and one-time passwords in bytes.
const KeySize = 32

const saltSize = 32

// Key is a shared secret: of a connection, of a server, or a one-time password.
type Key [KeySize]byte

// share is what one side of an exchange has made up.
type share struct {
	private *ecdh.PrivateKey
	salt    [saltSize]byte
}

func newShare() (*share, error) {
	private, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	s := &share{private: private}
	rand.Read(s.salt[:]) // never fails
	return s, nil
}

// message is what the other side gets.
func (s *share) message() []byte {
	return wire.Pack(wire.Map{"public_key", s.private.PublicKey().Bytes(), "salt", s.salt[:]})
}

// derive makes the key from what the other side has sent.
func (s *share) derive(message []byte) (Key, error) {
	public, salt, err := parseShare(message)
	if err != nil {
		return Key{}, err
	}
	secret, err := s.private.ECDH(public)
	if err != nil {
		return Key{}, fmt.Errorf("%w: %v", ErrFrame, err)
	}
	for i := range salt {
		salt[i] ^= s.salt[i]
	}
	out, err := hkdf.Key(sha256.New, secret, salt[:], "", KeySize)
	if err != nil {
		return Key{}, err
	}
	return Key(out), nil
}

func parseShare(message []byte) (*ecdh.PublicKey, [saltSize]byte, error) {
	var salt [saltSize]byte
	m, err := parseMap(message, "public_key", "salt")
	if err != nil {
		return nil, salt, err
	}
	point, err := m[0].Bytes()
	if err != nil {
		return nil, salt, bad(err)
	}
	public, err := ecdh.P256().NewPublicKey(point)
	if err != nil {
		return nil, salt, bad(err)
	}
	b, err := m[1].Bytes()
	if err != nil {
		return nil, salt, bad(err)
	}
	if len(b) != saltSize {
		return nil, salt, fmt.Errorf("%w: a salt of %d bytes, want %d", ErrFrame, len(b), saltSize)
	}
	return public, [saltSize]byte(b), nil
}

// Exchange makes a new key with the other side, inside the connection as it
// is. It counts for one frame in each direction.
func (c *Conn) Exchange() (Key, error) {
	mine, err := newShare()
	if err != nil {
		return Key{}, err
	}
	if err := c.WriteFrame(mine.message()); err != nil {
		return Key{}, err
	}
	theirs, err := c.ReadFrame()
	if err != nil {
		return Key{}, err
	}
	return mine.derive(theirs)
}

// ExchangeSecond is Exchange for the side that speaks second: keep gets the key
// before the other side can have it, so that what is kept is never behind what
// the other side believes. An error of keep ends the exchange.
func (c *Conn) ExchangeSecond(keep func(Key) error) error {
	mine, err := newShare()
	if err != nil {
		return err
	}
	theirs, err := c.ReadFrame()
	if err != nil {
		return err
	}
	key, err := mine.derive(theirs)
	if err != nil {
		return err
	}
	if err := keep(key); err != nil {
		return err
	}
	return c.WriteFrame(mine.message())
}

// encrypt turns encryption on.
func (c *Conn) encrypt() error {
	key, err := c.Exchange()
	if err != nil {
		return err
	}
	c.aead, err = chacha20poly1305.NewX(key[:])
	return err
}

func bad(err error) error { return fmt.Errorf("%w: %v", ErrFrame, err) }

// parseMap returns the values of the named fields. Others are ignored.
func parseMap(message []byte, names ...string) ([]wire.Value, error) {
	v, err := wire.ParsePack(message)
	if err != nil {
		return nil, bad(err)
	}
	return fieldsOf(v, names...)
}

func fieldsOf(v wire.Value, names ...string) ([]wire.Value, error) {
	fields, err := v.Object()
	if err != nil {
		return nil, bad(err)
	}
	out := make([]wire.Value, len(names))
	for i, name := range names {
		for _, f := range fields {
			if f.Name == name {
				out[i] = f.Value
			}
		}
		if out[i] == nil {
			return nil, fmt.Errorf("%w: the field %s is missing", ErrFrame, name)
		}
	}
	return out, nil
}
