package guard

import (
	"bytes"
	"math"
	"math/bits"
	"slices"
	"strings"
)

// dumps calls back for what the numbers in a view may stand for as bytes. It reads them as
// programs write bytes (hexdump, xxd and od in all their forms, lists in code): hexadecimal
// numbers of any number of digits, octal, binary and decimal ones of one to eight bytes, the
// first byte first or last. What stands between numbers does not matter. Three readings are
// tried: all that is there; without the white space, as where lines were broken in the middle
// of numbers; and the columns of a dump alone, without offsets and text beside.
func (s *scratch) dumps(v *view, found func(*view)) {
	n := s.numbers(v, found)
	for _, joined := range []bool{false, true} {
		n.read(0, len(v.text), joined, -1)
		n.flush()
	}
	if s.partial { // the last number may not be complete
		n.read(0, len(bytes.TrimRightFunc(v.text, isWordRune)), false, -1)
		n.flush()
	}
	s.columns(v, n)
	s.free = append(s.free, n)
}

func isWordRune(c rune) bool { return c < 0x80 && classes[c]&inWord != 0 }

// number is one as it is written. Its digits are in numbers.digits.
type number struct {
	start, end int
	base       int  // that it names, as 0x does, or 0
	minus      bool // it has a sign
	part       bool // letters stand before or behind it
}

func (x number) len() int { return x.end - x.start }

// numbers are those of a view that follow one another.
type numbers struct {
	v      *view
	digits []byte  // their values
	at     []int32 // where they are in the view
	to     []int32 // up to where each is hidden, in the view
	list   []number
	out    view
	found  func(*view)
	least  int // bytes that are taken for a text
}

// numbers returns an empty list, with the memory of another.
func (s *scratch) numbers(v *view, found func(*view)) *numbers {
	n := &numbers{}
	if k := len(s.free) - 1; k >= 0 {
		n, s.free = s.free[k], s.free[:k]
	}
	n.v, n.found, n.least = v, found, s.least()
	n.reset()
	return n
}

func (n *numbers) reset() {
	n.digits, n.at, n.to, n.list = n.digits[:0], n.at[:0], n.to[:0], n.list[:0]
}

// hexValues are those of hexadecimal digits, or -1.
var hexValues = func() (t [256]int8) {
	for i := range t {
		t[i] = int8(hexValue(byte(i)))
	}
	return t
}()

// read adds what is between two places of the view. A word that is no number ends a list. A
// number is hidden up to the place to, if that is not negative.
func (n *numbers) read(from, end int, joined bool, to int) {
	x := number{start: len(n.digits)}
	word := false // a word has begun
	finish := func() {
		if x.end = len(n.digits); x.len() > 0 {
			n.list = append(n.list, n.binary(x))
		}
		x = number{start: len(n.digits)}
	}
	for i := from; i < end; i++ {
		c := n.v.text[i]
		if classes[c]&inWord == 0 {
			if word && (!joined || classes[c]&isLoosened == 0) {
				finish()
				word = false
			}
			continue
		}
		if !word {
			word = true
			x.minus = i > from && n.v.text[i-1] == '-'
		}
		d := hexValues[c]
		if d < 0 {
			k := len(n.digits)
			if c = lower(c); (c == 'x' || c == 'o') && k-x.start == 1 && n.digits[k-1] == 0 && !x.part && x.base == 0 {
				n.digits, n.at, n.to = n.digits[:k-1], n.at[:k-1], n.to[:k-1]
				x.base = map[byte]int{'x': 16, 'o': 8}[c]
				continue
			}
			x.part = true
			finish()
			n.flush()
			x = number{part: true}
			continue
		}
		hidden := int32(i + 1)
		if to >= 0 {
			hidden = int32(to)
		}
		n.digits, n.at, n.to = append(n.digits, byte(d)), append(n.at, int32(i)), append(n.to, hidden)
	}
	finish()
}

// binary takes 0b off a number of one byte.
func (n *numbers) binary(x number) number {
	if x.len() == 10 && x.base == 0 && n.digits[x.start] == 0 && n.digits[x.start+1] == 0xb {
		if _, ok := n.value(number{start: x.start + 2, end: x.end}, 2); ok {
			x.start, x.base = x.start+2, 2
		}
	}
	return x
}

// value is that of a number in a base, if it is one of at most 64 bits.
func (n *numbers) value(x number, base uint64) (v uint64, ok bool) {
	if x.len() > 22 || x.base != 0 && uint64(x.base) != base {
		return 0, false
	}
	for _, d := range n.digits[x.start:x.end] {
		high, low := bits.Mul64(v, base)
		if uint64(d) >= base || high != 0 || low+uint64(d) < low {
			return 0, false
		}
		v = low + uint64(d)
	}
	return v, true
}

// source is where digits are in the source.
func (n *numbers) source(start, end int) (from, to int32) {
	return n.v.span(int(n.at[start]), int(n.to[end-1]))
}

// flush reads the list, and empties it.
func (n *numbers) flush() {
	if len(n.digits) >= n.least { // each byte has one
		n.hexadecimal()
		if len(n.list) > 1 || n.least == 1 {
			n.words()
			n.octal()
			n.bits8()
			for _, size := range []int{1, 2, 4, 8} {
				n.decimal(size)
			}
		}
	}
	n.reset()
}

// give calls back for what was read, and empties it.
func (n *numbers) give() {
	if len(n.out.text) >= n.least {
		n.found(&n.out)
	}
	n.out.reset()
}

// hexadecimal reads digits in the order that they have, in pairs. If they are not written in
// pairs, these may also begin with the second.
func (n *numbers) hexadecimal() {
	long := slices.ContainsFunc(n.list, func(x number) bool { return x.len() > 2 || x.len() == 1 && x.base != 16 })
	for skip := range 2 {
		if skip == 1 && !long {
			break
		}
		high, first := -1, 0
		for _, x := range n.list {
			if x.len() == 1 && x.base == 16 && high < 0 && skip == 0 {
				high, first = 0, x.start // 0xa has a zero that is not written
			}
			for i := x.start; i < x.end; i++ {
				switch {
				case skip > 0:
					skip = 0
				case high < 0:
					high, first = int(n.digits[i]), i
				default:
					from, to := n.source(first, i+1)
					n.out.add(byte(high<<4|int(n.digits[i])), from, to)
					high = -1
				}
			}
		}
		n.give()
	}
}

// words reads hexadecimal words of several bytes, of which the last byte is the first, as
// hexdump and od write them. The last word may be short.
func (n *numbers) words() {
	width := 0
	for _, x := range n.list {
		size := x.len()
		if size > 16 || size%2 != 0 || size > width && (size&(size-1) != 0 || size == 2) || x.part {
			n.give()
			width = 0
			continue
		}
		if size > width {
			n.give()
			width = size
		}
		from, to := n.source(x.start, x.end)
		for k := x.end; k > x.start; k -= 2 {
			n.out.add(n.digits[k-2]<<4|n.digits[k-1], from, to)
		}
		if size < width {
			n.give()
			width = 0
		}
	}
	n.give()
}

// add adds the bytes of a value, the lowest first.
func (n *numbers) add(x number, value uint64, size int) {
	from, to := n.source(x.start, x.end)
	for range size {
		n.out.add(byte(value), from, to)
		value >>= 8
	}
}

// octals are how many bytes an octal number of so many digits has.
var octals = [23]int{3: 1, 4: 1, 6: 2, 11: 4, 22: 8}

func (n *numbers) octal() {
	width := 0
	for _, x := range n.list {
		size := octals[min(x.len(), 5)]
		if x.len() > 5 && x.len() < len(octals) {
			size = octals[x.len()]
		}
		if x.base == 8 {
			size = 1
		}
		v, ok := uint64(0), false
		if size > 0 && !x.part {
			v, ok = n.value(x, 8)
		}
		if !ok || size < 8 && v>>(8*size) != 0 {
			n.give()
			width = 0
			continue
		}
		if size != width {
			n.give()
			width = size
		}
		n.add(x, v, size)
	}
	n.give()
}

func (n *numbers) bits8() {
	for _, x := range n.list {
		if v, ok := n.value(x, 2); ok && x.len() == 8 && !x.part {
			n.add(x, v, 1)
			continue
		}
		n.give()
	}
	n.give()
}

// decimal reads numbers of so many bytes, with or without a sign. At least one of them needs
// more than half of these.
func (n *numbers) decimal(size int) {
	most, wide := uint64(math.MaxUint64)>>(64-8*size), uint64(0)
	if size > 1 {
		wide = most >> (4 * size)
	}
	needed := false
	end := func() {
		if !needed {
			n.out.reset()
		}
		n.give()
		needed = false
	}
	for _, x := range n.list {
		v, ok := n.value(x, 10)
		if !ok || x.part || v > most || x.minus && v > most/2+1 {
			end()
			continue
		}
		needed = needed || v >= wide
		if x.minus {
			v = -v
		}
		n.add(x, v, size)
	}
	end()
}

// columns reads what has lines that begin with an offset: the bytes in its columns, without
// the offsets and without the text beside, which is hidden with them.
func (s *scratch) columns(v *view, n *numbers) {
	chars := s.view()
	flush := func() {
		n.flush()
		if len(chars.text) >= n.least {
			n.found(chars)
		}
		chars.reset()
	}
	for start := 0; start < len(v.text); {
		end := len(v.text)
		if i := bytes.IndexByte(v.text[start:], '\n'); i >= 0 {
			end = start + i
		}
		line := bytes.TrimRight(v.text[start:end], "\r")
		switch data, colon := offset(line); {
		case data > 0:
			stop, hidden := columnsEnd(line, data, colon)
			if hidden > stop {
				n.read(start+data, start+stop, false, start+hidden)
			} else {
				n.read(start+data, start+stop, false, -1)
			}
			v.characters(chars, start+data, start+len(line))
		case len(line) < 8 && string(bytes.TrimSpace(line)) == "*": // lines that are as the one before
		default:
			flush()
		}
		start = end + 1
	}
	flush()
	s.put(chars)
}

// offset returns where the data of a line of a dump begins, or 0, and whether a colon is
// before it. The first line of a dump may stand behind something else.
func offset(line []byte) (data int, colon bool) {
	i := 0
	for i < len(line) && blank(line[i]) {
		i++
	}
	if data, colon := offsetAt(line, i); data > 0 {
		return data, colon
	}
	const zeros = "000000"
	for {
		k := bytes.Index(line[i:], []byte(zeros))
		if k < 0 {
			return 0, false
		}
		i += k
		if data, colon := offsetAt(line, i); data > 0 && len(bytes.Trim(line[i:data], "0:")) == 0 {
			return data, colon
		}
		i += len(zeros)
	}
}

// offsetAt is offset for a line whose first word is at i.
func offsetAt(line []byte, i int) (data int, colon bool) {
	if i+1 < len(line) && line[i] == '0' && lower(line[i+1]) == 'x' {
		i += 2
	}
	start := i
	for i < len(line) && i-start <= 16 && hexValues[line[i]] >= 0 {
		i++
	}
	switch {
	case i-start < 4 || i-start > 16:
	case i == len(line) || blank(line[i]):
		return i, false
	case line[i] == ':':
		return i + 1, true
	}
	return 0, false
}

// blank reports whether a byte is a space, or that of a form.
func blank(c byte) bool { return c == '+' || white(c) }

// columnsEnd returns where the columns of a line end, and where the text beside them does.
func columnsEnd(line []byte, data int, colon bool) (end, hidden int) {
	first := data
	for first < len(line) && blank(line[first]) {
		first++
	}
	for i := first; i+2 < len(line); i++ {
		switch {
		case !blank(line[i]) || !blank(line[i+1]):
		case colon: // xxd
			return i, len(line)
		case line[i+2] == '|': // hexdump -C
			return i, bytes.LastIndexByte(line, '|') + 1
		case line[i+2] == '>': // od -t x1z
			return i, len(line)
		}
	}
	return len(line), len(line)
}

// names are what od -a calls the characters that are not seen.
var names = strings.Fields("nul soh stx etx eot enq ack bel bs ht nl vt ff cr so si " +
	"dle dc1 dc2 dc3 dc4 nak syn etb can em sub esc fs gs rs us sp")

func octalByte(s []byte) (byte, bool) {
	if len(s) != 3 || s[0] < '0' || s[0] > '3' || s[1] < '0' || s[1] > '7' || s[2] < '0' || s[2] > '7' {
		return 0, false
	}
	return (s[0]-'0')<<6 | (s[1]-'0')<<3 | (s[2] - '0'), true
}

// characters reads those of a line of od -c, od -a or hexdump -c, each of which takes four
// places.
func (v *view) characters(out *view, start, end int) {
	for ; start+4 <= end; start += 4 {
		field := bytes.TrimLeft(v.text[start:start+4], " ")
		if len(field) > 1 && field[0] == '+' { // in a form
			field = bytes.TrimLeft(field, "+")
		}
		c := byte(' ')
		switch n := len(field); n {
		case 0:
		case 1:
			c = field[0]
		case 2, 3:
			e := escape{}
			if field[0] == '\\' {
				e = backslash(field)
			}
			if o, ok := octalByte(field); ok {
				e = octet(o, 3)
			} else if i := slices.Index(names, strings.ToLower(string(field))); i >= 0 {
				e = octet(byte(i), n)
			}
			if e.n != 1 {
				return
			}
			c = e.bytes[0]
		default:
			return
		}
		from, to := v.span(start, start+4)
		out.add(c, from, to)
	}
}
