package process

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"time"
)

// ID identifies a process permanently. It is opaque and never the pid. IDs from [NewID]
// sort by their creation time.
//
// A caller may choose its own: 1 to [MaxIDLen] bytes, the first a letter or a
// digit, the others letters, digits, '.', '_' or '-'. IDs are file names in
// the spool, hence the alphabet.
type ID string

// MaxIDLen bounds the length of an [ID] in bytes.
const MaxIDLen = 100

// IDAlphabet are the letters and digits of new IDs: Crockford's, in lower case.
const IDAlphabet = "0123456789abcdefghjkmnpqrstvwxyz"

// NewID returns a new ID: 48 bits of milliseconds, then 80 random bits, as 26 letters
// and digits.
func NewID() ID {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], uint64(time.Now().UnixMilli())<<16)
	rand.Read(b[6:]) // never fails: crypto/rand ends the program instead
	hi, lo := binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
	var out [26]byte
	for i := len(out) - 1; i >= 0; i-- {
		out[i] = IDAlphabet[lo&31]
		lo = lo>>5 | hi<<59
		hi >>= 5
	}
	return ID(out[:])
}

// Validate returns an [*InvalidError] if a caller-chosen ID is invalid, or nil.
func (id ID) Validate() error {
	if id == "" {
		return &InvalidError{Field: "id", Reason: "is empty"}
	}
	if len(id) > MaxIDLen {
		return &InvalidError{Field: "id", Reason: fmt.Sprintf("has %d bytes; the limit is %d", len(id), MaxIDLen)}
	}
	for i := 0; i < len(id); i++ {
		c := id[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case i > 0 && (c == '.' || c == '_' || c == '-'):
		default:
			return &InvalidError{Field: "id",
				Reason: fmt.Sprintf("has the byte %q at %d; letters and digits are allowed, and '.', '_', '-' after the first", c, i)}
		}
	}
	return nil
}
