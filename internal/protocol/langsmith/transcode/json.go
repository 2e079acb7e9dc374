package transcode

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// MaxEscaped is the most bytes that [AppendJSON] makes of one raw byte:
// control characters become \u00XX.
const MaxEscaped = 6

// plain says which bytes stand for themselves in a JSON string.
var plain = func() (t [256]bool) {
	for c := 0x20; c < utf8.RuneSelf; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// short holds the letter of the two-byte escapes.
var short = [256]byte{'"': '"', '\\': '\\', '\b': 'b', '\f': 'f', '\n': 'n', '\r': 'r', '\t': 't'}

// AppendJSON appends the text of raw, which begins and ends where characters do,
// escaped for the inside of a JSON string, and returns how many bytes were
// replaced. Nothing is escaped that needs not be.
func AppendJSON(dst, raw []byte) (text []byte, replaced int) {
	const hex = "0123456789abcdef"
	for i := 0; i < len(raw); {
		n := plainLen(raw[i:])
		dst = append(dst, raw[i:i+n]...)
		if i += n; i == len(raw) {
			break
		}
		switch c := raw[i]; {
		case short[c] != 0:
			dst = append(dst, '\\', short[c])
			i++
		case c < 0x20:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
			i++
		default:
			n := 0
			dst, n, replaced = appendHigh(dst, raw[i:], replaced)
			i += n
		}
	}
	return dst, replaced
}

// appendHigh appends the run of bytes from 0x80 on at the beginning of raw and
// returns how long it is.
func appendHigh(dst, raw []byte, replaced int) ([]byte, int, int) {
	i, from := 0, 0
	for i < len(raw) && raw[i] >= utf8.RuneSelf {
		r, size := utf8.DecodeRune(raw[i:])
		if r == utf8.RuneError && size == 1 {
			dst = append(dst, raw[from:i]...)
			dst = append(dst, replacement...)
			replaced++
			from = i + 1
		}
		i += size
	}
	return append(dst, raw[from:i]...), i, replaced
}

// plainLen returns how many bytes at the beginning of b stand for themselves,
// eight at a time.
func plainLen(b []byte) int {
	const (
		ones = 0x0101010101010101
		high = 0x8080808080808080
	)
	i := 0
	for ; len(b)-i >= 8; i += 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		quote, slash := w^(ones*'"'), w^(ones*'\\')
		// The lowest byte that is marked is marked rightly: borrows reach
		// upwards only.
		m := (w | (w - ones*0x20) | (quote - ones) | (slash - ones)) & high
		if m != 0 {
			return i + bits.TrailingZeros64(m)/8
		}
	}
	for i < len(b) && plain[b[i]] {
		i++
	}
	return i
}
