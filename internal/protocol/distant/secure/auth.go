package secure

import (
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/tend-run/tend/internal/protocol/distant/wire"
)

// ErrKey: the client has not shown the key.
var ErrKey = errors.New("the key is not the one of this server")

const methodName = "static_key"

// maxMethods bounds what a client may choose from what was offered.
const maxMethods = 16

// Frames of a whole connect, the key exchange for the one-time password
// included, as both sides count them: id, initialization, start, challenge,
// finished, exchange; Connect, methods, answer, exchange.
const (
	ConnectSent     = 6 // by the server
	ConnectReceived = 4
)

// Authenticate sends the client its id and asks for the key. It returns [ErrKey] if
// the key is wrong, and then sends the client nothing, as the original.
func (c *Conn) Authenticate(id uint32, key Key) error {
	if err := c.send(id); err != nil {
		return err
	}
	if err := c.offer(); err != nil {
		return err
	}
	if err := c.send(wire.Map{"type", "auth_start_method", "method", methodName}); err != nil {
		return err
	}
	if err := c.send(challenge); err != nil {
		return err
	}
	frame, err := c.ReadFrame()
	if err != nil {
		return err
	}
	shown, err := parseAnswer(frame)
	if err != nil {
		return err
	}
	if subtle.ConstantTimeCompare(shown[:], key[:]) != 1 {
		return ErrKey
	}
	return c.send(finished)
}

// offer names the one method there is, and wants it chosen.
func (c *Conn) offer() error {
	if err := c.send(wire.Map{"type", "auth_initialization", "methods", wire.List{methodName}}); err != nil {
		return err
	}
	frame, err := c.ReadFrame()
	if err != nil {
		return err
	}
	m, err := parseTyped(frame, "auth_initialization_response", "methods")
	if err != nil {
		return err
	}
	methods, err := m[0].Array()
	if err != nil {
		return bad(err)
	}
	for _, v := range methods[:min(len(methods), maxMethods)] {
		if name, err := v.Str(); err == nil && name == methodName {
			return nil
		}
	}
	return fmt.Errorf("%w: the client does not want to show a key", ErrKey)
}

// parseAnswer returns the key that was shown. One that is no key at all is
// compared like any other.
func parseAnswer(frame []byte) (Key, error) {
	m, err := parseTyped(frame, "auth_challenge_response", "answers")
	if err != nil {
		return Key{}, err
	}
	answers, err := m[0].Array()
	if err != nil || len(answers) != 1 {
		return Key{}, fmt.Errorf("%w: one question was asked", ErrFrame)
	}
	text, err := answers[0].Str()
	if err != nil {
		return Key{}, bad(err)
	}
	return ParseKey(text)
}

// ParseKey reads a key of 64 hexadecimal digits.
func ParseKey(text string) (Key, error) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != KeySize {
		return Key{}, ErrKey
	}
	return Key(b), nil
}

// String is the key as it stands in a distant:// URI. It is a secret.
func (k Key) String() string { return hex.EncodeToString(k[:]) }

// Equal compares in constant time.
func (k Key) Equal(o Key) bool { return subtle.ConstantTimeCompare(k[:], o[:]) == 1 }

var (
	question  = wire.Map{"label", "key", "text", "Provide a key: ", "options", wire.Map{}} // clients look for exactly this label
	challenge = wire.Map{"type", "auth_challenge", "questions", wire.List{question}, "options", wire.Map{}}
	finished  = wire.Map{"type", "auth_finished"}
)

// send sends a frame that holds one value.
func (c *Conn) send(v any) error { return c.WriteFrame(wire.Pack(v)) }

func parseTyped(frame []byte, typ string, names ...string) ([]wire.Value, error) {
	m, err := parseMap(frame, append([]string{"type"}, names...)...)
	if err != nil {
		return nil, err
	}
	if got, err := m[0].Str(); err != nil || got != typ {
		return nil, fmt.Errorf("%w: want %s, got %.40q", ErrFrame, typ, got)
	}
	return m[1:], nil
}
