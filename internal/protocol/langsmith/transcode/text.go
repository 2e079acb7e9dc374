package transcode

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// replacement is U+FFFD in UTF-8.
const replacement = "\uFFFD"

// Grown is how many bytes longer than the raw byte its replacement is.
const Grown = len(replacement) - 1

// maxSequence is the length of the longest character in UTF-8.
const maxSequence = utf8.UTFMax

// Settled returns how many bytes of raw, which begins at a character or a byte
// to be replaced, can be turned into text whatever comes behind them. It is at
// least len(raw)-3.
func Settled(raw []byte) int {
	for i := max(0, len(raw)-maxSequence+1); i < len(raw); i++ {
		// A sequence that is only cut off is one that could still be valid.
		if utf8.RuneStart(raw[i]) && !utf8.FullRune(raw[i:]) {
			return i
		}
	}
	return len(raw)
}

// Replaced counts the bytes of raw that are no part of a character. raw begins
// and ends where characters do.
func Replaced(raw []byte) int {
	n := 0
	for i := 0; i < len(raw); {
		i += ascii(raw[i:])
		for i < len(raw) && raw[i] >= utf8.RuneSelf {
			r, size := utf8.DecodeRune(raw[i:])
			if r == utf8.RuneError && size == 1 {
				n++
			}
			i += size
		}
	}
	return n
}

// ascii returns how many bytes at the beginning of b are below 0x80.
func ascii(b []byte) int {
	const high = 0x8080808080808080
	i := 0
	for ; len(b)-i >= 8; i += 8 {
		if m := binary.LittleEndian.Uint64(b[i:]) & high; m != 0 {
			return i + bits.TrailingZeros64(m)/8
		}
	}
	for i < len(b) && b[i] < utf8.RuneSelf {
		i++
	}
	return i
}

// characterStart returns where the character that raw[i] belongs to begins: i
// itself for the first byte of one and for a byte that is replaced. It needs
// the three bytes before i and the three behind, as far as there are any.
func characterStart(raw []byte, i int) int {
	if i >= len(raw) || raw[i]&0xC0 != 0x80 {
		return i
	}
	for k := i - 1; k >= 0 && k > i-maxSequence; k-- {
		if raw[k]&0xC0 == 0x80 {
			continue
		}
		if _, size := utf8.DecodeRune(raw[k:]); size > i-k {
			return k
		}
		return i
	}
	return i
}

// sequence returns the length of the character at the beginning of raw, or 0
// if there is none.
func sequence(raw []byte) int {
	r, size := utf8.DecodeRune(raw)
	if r == utf8.RuneError && size <= 1 {
		return 0
	}
	return size
}
