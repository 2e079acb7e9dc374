package torture

import (
	"encoding/binary"
	"fmt"
)

// fill makes b the pattern from offset on.
func fill(b []byte, offset int64) {
	var word [8]byte
	for len(b) > 0 {
		binary.LittleEndian.PutUint64(word[:], uint64(offset/8))
		n := copy(b, word[offset%8:])
		b, offset = b[n:], offset+int64(n)
	}
}

// Check returns an error at the first byte that is not what the program writes from offset on.
func Check(b []byte, offset int64) error {
	var word [8]byte
	for len(b) > 0 {
		binary.LittleEndian.PutUint64(word[:], uint64(offset/8))
		for i, want := range word[offset%8 : min(8, offset%8+int64(len(b)))] {
			if b[i] != want {
				return fmt.Errorf("byte %d is %#02x, not %#02x as was written", offset+int64(i), b[i], want)
			}
		}
		n := min(len(b), 8-int(offset%8))
		b, offset = b[n:], offset+int64(n)
	}
	return nil
}
