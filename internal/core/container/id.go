package container

import (
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/tend-run/tend/process"
)

// IDLen is the length of a new [ID].
const IDLen = 20

// NewID returns a random ID: an i, as E2B's begin with, then 95 random bits as 19 letters
// and digits. It has no hyphen: clients of E2B take what stands before the first one for
// the ID, and in a host name one is between the port and the ID.
func NewID() ID {
	var b [IDLen]byte
	rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	for i := range b {
		b[i] = process.IDAlphabet[b[i]&31]
	}
	b[0] = 'i'
	return ID(b[:])
}

// NewUUID returns a random ID in the only form that keepers took until November 2026: a UUID
// of version 4.
func NewUUID() ID {
	var b [16]byte
	rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return ID(fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]))
}

// Validate reports an ID of another form as a *process.InvalidError.
func (id ID) Validate() error {
	if !id.isNew() && !id.isUUID() {
		return invalid("id", fmt.Sprintf("is %.40q; an i and %d letters and digits without i, l, o and u are needed, or a UUID in lower case",
			string(id), IDLen-1))
	}
	return nil
}

func (id ID) isNew() bool {
	if len(id) != IDLen || id[0] != 'i' {
		return false
	}
	for i := 1; i < len(id); i++ {
		if strings.IndexByte(process.IDAlphabet, id[i]) < 0 {
			return false
		}
	}
	return true
}

func (id ID) isUUID() bool {
	if len(id) != len("xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx") {
		return false
	}
	for i := range len(id) {
		switch c := id[i]; {
		case i == 8 || i == 13 || i == 18 || i == 23:
			if c != '-' {
				return false
			}
		case c >= '0' && c <= '9', c >= 'a' && c <= 'f':
		default:
			return false
		}
	}
	return true
}
