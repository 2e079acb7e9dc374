package guard

import (
	"bytes"
	"strings"
)

const (
	alphabet64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	alphabet32 = "abcdefghijklmnopqrstuvwxyz234567"
	alphabet2  = "01"
)

// base64Value is that of a character of the standard alphabet or of that of URLs, or -1.
func base64Value(c byte) int {
	if i := strings.IndexByte("-_", c); i >= 0 {
		return 62 + i
	}
	return strings.IndexByte(alphabet64, c)
}

func base32Value(c byte) int { return strings.IndexByte(alphabet32, lower(c)) }

func base2Value(c byte) int { return strings.IndexByte(alphabet2, c) }

// base is an alphabet of a power of two.
type base struct {
	class  uint8 // of its characters
	values [256]int8
	bits   int
	group  int // how many characters are whole bytes
}

func newBase(class uint8, value func(byte) int, bits, group int) *base {
	b := &base{class: class, bits: bits, group: group}
	for c := range b.values {
		b.values[c] = int8(value(byte(c)))
	}
	return b
}

// bases are those of base64, base32 and basenc. Of bits the text that is read from its end has
// those that come with the lowest first.
var bases = []*base{
	newBase(in64, base64Value, 6, 4), newBase(in32, base32Value, 5, 8), newBase(inBits, base2Value, 1, 8),
}

// bases calls back for what the characters of the alphabets in a view stand for: of each stretch
// of them, at each alignment. White space and quotes in a stretch are passed over. A stretch
// has ended if another character is behind it, in the order of the source.
func (s *scratch) bases(v *view, found func(_ *view, ended bool)) {
	back := v.back()
	for _, b := range bases {
		start, n, before := 0, 0, false
		for i := 0; i <= len(v.text); i++ {
			if i < len(v.text) {
				class := classes[v.text[i]]
				if class&b.class != 0 {
					if n++; n == 1 {
						start = i
					}
					continue
				}
				if class&isLoosened != 0 {
					continue
				}
			}
			last, ended := s.view(), back && before || !back && i < len(v.text)
			least := minSecret
			if !ended {
				least = s.least()
			}
			for skip := 0; skip < b.group && (n-skip)*b.bits >= 8*least; skip++ {
				out := s.view()
				b.decode(out, v, start, i, skip)
				if m := min(len(last.text), len(out.text)); m == 0 || !bytes.Equal(last.text[:m], out.text[:m]) { // one letter many times
					found(out, ended)
				}
				s.put(last)
				last = out
			}
			s.put(last)
			n, before = 0, true
		}
	}
}

// decode adds what a stretch stands for from its character skip on.
func (b *base) decode(out, v *view, start, end, skip int) {
	var acc uint32
	bits, first := 0, -1
	text, froms, tos := out.text, out.from, out.to // quicker than through the pointer
	for i := start; i < end; i++ {
		d := b.values[v.text[i]]
		if d < 0 {
			continue
		}
		if skip > 0 {
			skip--
			continue
		}
		if first < 0 {
			first = i
		}
		acc = acc<<b.bits | uint32(d)
		if bits += b.bits; bits < 8 {
			continue
		}
		bits -= 8
		from, to := v.span(first, i+1)
		text, froms, tos = append(text, byte(acc>>bits)), append(froms, from), append(tos, to)
		if first = i; bits == 0 {
			first = -1
		}
	}
	out.text, out.from, out.to = text, froms, tos
}
