package torture

import (
	"encoding/binary"
	"fmt"
)

// fill makes b the pattern from offset on.
func fill(b []byte, offset int64) {
	var word [8]byte
	for i := range b {
		at := offset + int64(i)
		if i == 0 || at%8 == 0 {
			binary.LittleEndian.PutUint64(word[:], uint64(at/8))
		}
		b[i] = word[at%8]
	}
}

// check returns an error at the first byte that is not the pattern's.
func check(b []byte, offset int64) error {
	var word [8]byte
	for i, got := range b {
		at := offset + int64(i)
		if i == 0 || at%8 == 0 {
			binary.LittleEndian.PutUint64(word[:], uint64(at/8))
		}
		if got != word[at%8] {
			return fmt.Errorf("byte %d is %#02x, not %#02x as was written", at, got, word[at%8])
		}
	}
	return nil
}

// Check reports whether b is what the program writes from offset on: nil, or an
// error that names the first other byte.
func Check(b []byte, offset int64) error { return check(b, offset) }
