package wire

import "slices"

// numbers holds, for each byte, its decimal digits and a comma, and how many
// characters that is.
var numbers = func() (t [256]struct {
	text [4]byte
	n    uint8
}) {
	for i := range t {
		e := &t[i]
		for _, d := range []int{100, 10, 1} {
			if i >= d || d == 1 {
				e.text[e.n] = byte('0' + i/d%10)
				e.n++
			}
		}
		e.text[e.n] = ','
		e.n++
	}
	return t
}()

// AppendByteArray appends data as JSON array of numbers. Output is sent in
// this form, so it is written four characters at a time.
func AppendByteArray(b, data []byte) []byte {
	b = slices.Grow(b, 4*len(data)+2)
	b = append(b, '[')
	at := len(b)
	room := b[:cap(b)]
	for _, c := range data {
		e := &numbers[c]
		*(*[4]byte)(room[at:]) = e.text
		at += int(e.n)
	}
	if len(data) > 0 {
		at-- // the last comma
	}
	return append(b[:at], ']')
}
